"""VerifiedFiles: files that must have the sizes and hashes which are known of them.

Verification reads every file and compares size and SHA-256. It is remembered per file identity (device, inode, size,
modification and change time), so that it costs once, not at every start.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgegen.bundle.manifest import FileEntry
from edgegen.system import home_folder

# A file changed within the clock's granularity after it was hashed would look unchanged.
_SETTLED_AFTER_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class VerifiedFiles:
    """Files of ``content`` by name; ``root`` is the folder that none of them may lead out of."""

    root: Path
    content: Path
    files: Mapping[str, FileEntry]

    def faults(self) -> list[str]:
        """What is wrong with any of the files, a few words each, whatever was remembered."""
        from concurrent.futures import ThreadPoolExecutor  # not needed at most starts

        with ThreadPoolExecutor(max_workers=2) as pool:
            return [fault for fault in pool.map(self.fault, self.files) if fault]

    def faults_once(self) -> list[str]:
        """:meth:`faults`, or none if these very files have been found right before."""
        before = self._identities()
        memory = (
            home_folder() / "verified" / f"{hashlib.sha256(str(self.root.resolve()).encode()).hexdigest()[:32]}.json"
        )
        with suppress(OSError, ValueError):
            if before and json.loads(memory.read_text()) == before:
                return []
        if faults := self.faults():
            return faults
        if before and before == self._identities() and self._settled(before):
            with suppress(OSError):  # a home that cannot be written costs a verification per start, no more
                memory.parent.mkdir(parents=True, exist_ok=True)
                draft = memory.with_suffix(f".{os.getpid()}")
                draft.write_text(json.dumps(before))
                draft.replace(memory)
        return []

    def fault(self, name: str) -> str | None:
        """What is wrong with a file, in a few words."""
        path, wanted = self.content / name, self.files[name]
        try:
            if not path.resolve(strict=True).is_relative_to(self.root.resolve()):
                return f"{name}: leads out of the bundle"
            if not path.is_file():
                return f"{name}: not a file"
            if (size := path.stat().st_size) != wanted.size:
                return f"{name}: {size} bytes, but the manifest says {wanted.size}"
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return f"{name}: missing"
        except RuntimeError:  # Python before 3.13 calls a loop of links so
            return f"{name}: a link that leads to itself"
        except OSError as error:
            return f"{name}: cannot be read: {error.strerror}"
        return None if digest == wanted.sha256 else f"{name}: contents differ from the manifest's hash"

    def _identities(self) -> dict[str, Any]:
        """What makes each file the one that was verified; empty where one cannot be read."""
        try:
            stats = {name: (self.content / name).stat() for name in self.files}
        except OSError:
            return {}
        identity = {
            name: [s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for name, s in sorted(stats.items())
        }
        expected = {name: entry.sha256 for name, entry in sorted(self.files.items())}
        return {"files": identity, "sha256": expected}

    @staticmethod
    def _settled(identities: dict[str, Any]) -> bool:
        newest = max(max(identity[3:]) for identity in identities["files"].values())
        return time.time_ns() - newest > _SETTLED_AFTER_NS
