"""Builds the source distribution and the wheels of every platform on one machine, and holds them to their promises.

`make wheels` runs it in an environment of packaging/wheel_tools.txt. The compiler of all platforms is zig's clang, from
PyPI: no other is needed, and the same sources give the same bytes anywhere. Everything is built twice, unless told
otherwise, in folders of other names and with caches of their own, and compared.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import commit
from wheel_promises import Name, Report, check

ROOT = Path(__file__).resolve().parents[1]

TARGETS: Mapping[str, str] = {
    "manylinux_2_28_x86_64": "x86_64-linux-gnu.2.28",
    "manylinux_2_28_aarch64": "aarch64-linux-gnu.2.28",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
    "win_arm64": "aarch64-windows-gnu",
}
"""The platforms, by the tags of their wheels, and what zig calls them.

ONNX Runtime has no wheels for musl, 32 bits and, in the versions that edgegen takes, Macs with Intel's processors.
"""

SYSTEMS: Mapping[str, str] = {
    "manylinux_2_28_x86_64": "Linux x86-64",
    "manylinux_2_28_aarch64": "Linux aarch64",
    "macosx_11_0_arm64": "macOS arm64",
    "win_amd64": "Windows x64",
    "win_arm64": "Windows arm64",
}
"""Names of systems in docs/installing.md, by platform tag."""

PURE = "any"


class WheelsError(Exception):
    """Something cannot be built, or is not what it should be; the text says what."""


@dataclass(frozen=True)
class Built:
    """A distribution in the folder of results."""

    name: str
    sha256: str
    report: Report | None = None
    """Findings of the wheel's check; None for the source distribution."""


def compiler(target: str) -> str:
    """The command of zig's clang for a target, without debug information."""
    return f"{sys.executable} -m ziglang cc -target {target} -g0 -s"


def build_all(output: Path, platforms: Sequence[str], work: Path) -> list[Path]:
    """Build the source distribution of this checkout into ``output``, and from it the wheels of ``platforms``.

    ``work`` is an empty folder for what is in between: unpacked sources, and zig's cache.

    Raises:
        WheelsError: a build fails.
    """
    output.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(work / "zig"), "ZIG_LOCAL_CACHE_DIR": str(work / "zig")}
    for variable in ("CC", "EDGEGEN_WHEEL_PLATFORM", "EDGEGEN_PURE_WHEEL", "EDGEGEN_KERNELS_REQUIRED"):
        environment.pop(variable, None)
    if (made := commit.time_of_commit(ROOT)) is not None:
        environment.setdefault("SOURCE_DATE_EPOCH", str(made))
    source = _hatchling("sdist", ROOT, output, environment)
    with tarfile.open(source) as archive:
        archive.extractall(work, filter="data")
    (sources,) = (path for path in work.iterdir() if (path / "PKG-INFO").is_file())

    def wheel(platform: str) -> Path:
        if platform == PURE:
            own = {"EDGEGEN_PURE_WHEEL": "1"}
        else:
            own = {"CC": compiler(TARGETS[platform]), "EDGEGEN_WHEEL_PLATFORM": platform}
        began = time.monotonic()
        built = _hatchling("wheel", sources, output, environment | own)
        print(f"{built.name}: built in {time.monotonic() - began:.0f} s", flush=True)
        return built

    with ThreadPoolExecutor(os.cpu_count()) as builds:
        return [source, *builds.map(wheel, platforms)]


def _hatchling(target: str, sources: Path, output: Path, environment: Mapping[str, str]) -> Path:
    """Build one distribution, and return where it is.

    Raises:
        WheelsError: it fails; what it wrote is shown.
    """
    with tempfile.TemporaryDirectory(dir=output) as folder:
        command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder]
        done = subprocess.run(command, cwd=sources, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
            raise WheelsError(f"the {target} for {environment.get('EDGEGEN_WHEEL_PLATFORM', PURE)} cannot be built")
        (made,) = Path(folder).iterdir()
        return made.replace(output / made.name)


def differences(first: Sequence[Path], second: Sequence[Path]) -> list[str]:
    """The names of what a second build, of all or of some platforms, has made differently."""
    made = {path.name: path for path in first}
    return [path.name for path in second if _sha256(path) != _sha256(made[path.name])]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_sums(built: Sequence[Built], output: Path) -> None:
    """SHA256SUMS as sha256sum checks it, wheels.json with what was found, and findings.json for the docs."""
    (output / "SHA256SUMS").write_text("".join(f"{one.sha256}  {one.name}\n" for one in built), "utf-8")
    (output / "wheels.json").write_text(json.dumps([asdict(one) for one in built], indent=1) + "\n", "utf-8")
    (output / "findings.json").write_text(json.dumps(findings(built), indent=1) + "\n", "utf-8")


def findings(built: Sequence[Built]) -> list[dict[str, str]]:
    """Return the wheels' findings of each system, for docs/make_systems.py."""
    found = list[dict[str, str]]()
    for one in built:
        if one.report is None or one.report.problems:
            continue
        system = SYSTEMS.get(Name.of(one.name).platform)
        if system is not None:
            cells = {"installs": "a wheel", "kernels": f"for {one.report.system}"}
            found += [{"system": system, "column": c, "how": "cross-built", "what": what} for c, what in cells.items()]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, compare, check, and say what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="the folder for the distributions; earlier ones of edgegen go")
    parser.add_argument("--only", choices=[*TARGETS, PURE], action="append", help="this platform; may be repeated")
    second = parser.add_mutually_exclusive_group()
    second.add_argument("--once", action="store_true", help="do not build everything a second time to compare")
    second.add_argument(
        "--again", choices=[*TARGETS, PURE], action="append", help="build this alone a second time; may be repeated"
    )
    chosen = parser.parse_args(arguments)
    platforms, output = chosen.only or [*TARGETS, PURE], chosen.output.absolute()
    if unbuilt := sorted({*(chosen.again or ())} - {*platforms}):
        parser.error(f"--again {unbuilt[0]}: it is not built a first time")
    for old in output.glob("edgegen-*"):
        old.unlink()
    problems = list[str]()
    try:
        with tempfile.TemporaryDirectory(prefix="wheels-") as first:
            paths = build_all(output, platforms, Path(first))
        if not chosen.once:
            with tempfile.TemporaryDirectory(prefix="the-same-wheels-again-") as again:
                work = Path(again) / "work"
                work.mkdir()
                others = differences(paths, build_all(Path(again) / "dist", chosen.again or platforms, work))
            problems += [f"{name}: a second build has other bytes" for name in others]
    except WheelsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    built = [Built(paths[0].name, _sha256(paths[0]))]
    for path in paths[1:]:
        report = check(path)
        problems += [f"{path.name}: {problem}" for problem in report.problems]
        built.append(Built(path.name, _sha256(path), report))
        print(f"{path.name}: {report.size / 1e6:.2f} MB{report.system and f', needs {report.system}'}")
    write_sums(built, output)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
