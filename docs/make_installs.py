"""Writes the table of docs/installing.md: where pip finds wheels of everything, by its dry run for each platform.

``python docs/make_installs.py`` asks the package index that pip is set up with; nothing is downloaded but metadata.
Markers such as ``sys_platform`` are those of the machine that asks: pip's dry run does not change them.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import requires
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "installing.md"
BEGIN, END = "<!-- installs:begin -->\n", "<!-- installs:end -->\n"

PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def _manylinux(minor: int, machine: str) -> tuple[str, ...]:
    """The tags that a system with glibc 2.``minor`` takes: pip does not know the older ones by itself."""
    return (*(f"manylinux_2_{n}_{machine}" for n in range(minor, 16, -1)), f"manylinux2014_{machine}")


PLATFORMS: dict[str, tuple[str, ...]] = {
    "Linux x86-64, glibc 2.28": _manylinux(28, "x86_64"),
    "Linux x86-64, glibc 2.31": _manylinux(31, "x86_64"),
    "Linux aarch64, glibc 2.28": _manylinux(28, "aarch64"),
    "Linux aarch64, glibc 2.31": _manylinux(31, "aarch64"),
    "Windows x64": ("win_amd64",),
    "Windows arm64": ("win_arm64",),
    "macOS 14 arm64": ("macosx_14_0_arm64",),
}
"""Names of rows, and the platform tags of their wheels, the best first."""

_MISSING = re.compile(r"No matching distribution found for ([A-Za-z0-9][\w.-]*)")

Pip = Callable[[Sequence[str]], tuple[int, str]]
"""Runs pip with arguments; its exit status, and what it says."""


class NoIndexError(RuntimeError):
    """pip reaches no package index, or says something that is about none."""


def run_pip(arguments: Sequence[str]) -> tuple[int, str]:
    """pip in a process of its own."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def whole() -> list[str]:
    """Return the requirements of `pip install edgegen`."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]


def generating() -> list[str]:
    """Return the requirements of generating text, each of them listed."""
    lines = (ROOT / "packaging" / "generating.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def with_dependencies(requirements: Iterable[str]) -> list[str]:
    """These requirements and those of what they need, as the installed packages tell: one for each distribution.

    Asking pip for all of them at once without dependencies takes seconds; it would try every version of everything else
    before it says that a dependency has no wheel.
    """
    found, left = dict[str, str](), [Requirement(text) for text in requirements]
    while left:
        requirement = left.pop(0)
        name = _name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found[name] = f"{requirement.name}{requirement.specifier}"
        left += [Requirement(text) for text in requires(requirement.name) or ()]
    return [*found.values()]


def missing(requirements: Iterable[str], tags: Sequence[str], python: str, *, pip: Pip = run_pip) -> list[str]:
    """The names of what has no wheel; empty where everything has one.

    Raises:
        NoIndexError: pip fails for another reason.
    """
    left, found = list(requirements), list[str]()
    platforms = [word for tag in tags for word in ("--platform", tag)]
    with TemporaryDirectory() as target:
        flags = ["--dry-run", "--ignore-installed", "--no-input", "--only-binary=:all:", "--target", target, *platforms]
        flags += ["--implementation", "cp", "--python-version", python]
        while True:
            status, said = pip(["install", "--no-deps", *flags, *left])
            if not status:
                return found
            names = _MISSING.findall(said)
            if not names:
                raise NoIndexError(said.strip().rpartition("\n")[2] or "pip says nothing")
            found.append(names[-1])
            fewer = [requirement for requirement in left if _name(requirement) != _name(names[-1])]
            if len(fewer) == len(left) or not fewer:
                return found
            left = fewer


def _name(requirement: str) -> str:
    """The normalized name of a requirement."""
    match = re.match(r"[\w.-]+?(?=[^\w.-]|$)", requirement)
    assert match
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def check_index(pip: Pip = run_pip) -> None:
    """Check that pip reaches a package index.

    Raises:
        NoIndexError: not even a wheel of plain Python is found.
    """
    if found := missing(["click"], ["any"], PYTHONS[0], pip=pip):
        raise NoIndexError(f"pip finds no {found[0]}: it reaches no package index")


def table(pip: Pip = run_pip) -> str:
    """The rows of all platforms.

    Raises:
        NoIndexError: pip reaches no package index.
    """
    check_index(pip)
    lines = [f"| | {' | '.join(f'Python {python}' for python in PYTHONS)} |", "|---" * (len(PYTHONS) + 1) + "|"]
    for name, tags in PLATFORMS.items():
        cells = [cell(tags, python, pip=pip) for python in PYTHONS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cell(tags: Sequence[str], python: str, *, pip: Pip = run_pip) -> str:
    """Say what can be installed on a platform: everything, what generating needs, or what is missing for that."""
    lacks = missing(with_dependencies(whole()), tags, python, pip=pip)
    if not lacks:
        return "whole"
    rest = missing(generating(), tags, python, pip=pip)
    return f"no {', '.join(rest)}" if rest else f"generating (no {', '.join(lacks)})"


def in_page(rows: str, page: str) -> str:
    """The page with these rows."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + rows + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(in_page(table(), PAGE.read_text("utf-8")), "utf-8")
    sys.stdout.write(f"{PAGE}\n")
