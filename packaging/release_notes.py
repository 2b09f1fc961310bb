"""Prints a release's section of CHANGELOG.md: `release_notes.py v0.1.0`.

It fails where the tag is not the version of the package, or the section is missing, empty or still unreleased.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class ReleaseError(ValueError):
    """A tag that cannot be released as it is; the text says why, and what to do."""


def version(root: Path = ROOT) -> str:
    """Return the version of the package, from the one place that has it."""
    match = re.search(r'^__version__ = "([^"]+)"$', (root / "edgegen" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    assert match, "edgegen/__init__.py has no __version__"
    return match[1]


def notes(tag: str, root: Path = ROOT) -> str:
    """The changelog's section for a tag.

    Raises:
        ReleaseError: the tag is not the version, or its section is not that of a release.
    """
    own = version(root)
    if tag != f"v{own}":
        raise ReleaseError(f"the tag {tag} is not v{own}, the version in edgegen/__init__.py: change one of them")
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    match = re.search(rf"^## \[{re.escape(own)}\] - (.+)\n((?:(?!## ).*\n)*)", changelog, re.MULTILINE)
    if match is None:
        raise ReleaseError(f"CHANGELOG.md has no section '## [{own}] - DATE': write it before the tag")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", match[1]):
        raise ReleaseError(
            f"the section of {own} in CHANGELOG.md is dated '{match[1]}': give it the day, as 2026-01-31"
        )
    if not match[2].strip():
        raise ReleaseError(f"the section of {own} in CHANGELOG.md is empty: say what is new")
    return match[2].strip() + "\n"


def main(arguments: Sequence[str]) -> int:
    """Print the notes, or one line about what is wrong."""
    if len(arguments) != 1:
        print("usage: release_notes.py TAG", file=sys.stderr)
        return 2
    try:
        sys.stdout.write(notes(arguments[0]))
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
