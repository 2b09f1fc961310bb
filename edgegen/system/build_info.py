"""The commit that this package was built from, as the build recorded it in a file beside this one."""

import json
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_suffix(".json")
"""Written by hatch_build.py into wheels and source distributions; a checkout has none."""

_SHORT = 12


@dataclass(frozen=True)
class BuildInfo:
    """A commit of edgegen's repository."""

    commit: str
    """Its full hash."""

    clean: bool
    """Whether the checkout had no other changes when it was built."""

    @classmethod
    def read(cls, file: Path = _FILE) -> "BuildInfo | None":
        """Read what the build recorded; None where it could not know."""
        try:
            record = json.loads(file.read_text("utf-8"))
            commit, clean = record["commit"], record["clean"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return cls(commit, clean) if isinstance(commit, str) and isinstance(clean, bool) else None

    def __str__(self) -> str:
        return f"commit {self.commit[:_SHORT]}{'' if self.clean else ', modified'}"


def with_commit(version: str, file: Path = _FILE) -> str:
    """``0.1.0 (commit 0123456789ab)``, or only the version where the build does not know its commit."""
    info = BuildInfo.read(file)
    return version if info is None else f"{version} ({info})"
