"""The commit of the checkout that a distribution is built from."""

import json
import subprocess
from pathlib import Path

RECORD = Path("edgegen/system/build_info.json")
"""Where a distribution has it, below the root of the sources; `edgegen --version` reads it."""


def record(root: Path) -> str | None:
    """The text of the record for the sources in ``root``: commit, and whether nothing else was changed.

    None where they are no checkout of their own, or where git is not there or fails.
    """
    if not (root / ".git").exists():
        return None  # git would answer for a repository around it
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain")
    if commit is None or changes is None:
        return None
    return json.dumps({"commit": commit, "clean": not changes}) + "\n"


def time_of_commit(root: Path) -> int | None:
    """When the commit was made, in seconds since 1970, or None as above: the time of files in reproducible archives."""
    time = _git(root, "log", "-1", "--format=%ct") if (root / ".git").exists() else None
    return None if time is None else int(time)


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()
