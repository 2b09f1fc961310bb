"""VerifiedFiles: checks that files have the sizes and SHA-256 hashes that a manifest has.

Verification reads every file and compares size and SHA-256. It is remembered per file identity (device, inode, size,
modification and change time), so that it costs once, not at every start.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from edgegen.bundle.manifest import FileEntry
from edgegen.system import change_time, home_folder, open_regular, path_too_long, read_regular_text, replace_text

# A file changed within the clock's granularity after it was hashed would look unchanged.
_SETTLED_AFTER_NS = 2_000_000_000

_BLOCK = 1 << 18
_CHECKS = 2
"""One more whenever a bundle that has passed before is to be looked at again."""


class VerifiedFiles(NamedTuple):
    """Files of ``content`` by name; ``root`` is the folder that none of them may lead out of.

    ``found_inside``: what is wrong with whole files; it is asked where all of them are, and remembered with the rest.
    ``changed``: when a file was last changed in any way, in ns since 1970; where it is not kept, nothing is remembered.
    """

    root: Path
    content: Path
    files: Mapping[str, FileEntry]
    found_inside: Callable[[], list[str]] = list
    changed: Callable[[Path], int | None] = change_time

    def problems(self, on_progress: Callable[[int], object] | None = None) -> list[str]:
        """Check all files, whatever was remembered, and return the problems, a few words each.

        ``on_progress`` is called in this thread with how many bytes have been read.
        """
        return self._problems(on_progress) or self.found_inside()

    def _problems(self, on_progress: Callable[[int], object] | None) -> list[str]:
        if on_progress is None:
            from concurrent.futures import ThreadPoolExecutor  # not needed at most starts

            with ThreadPoolExecutor(max_workers=2) as pool:
                return [problem for problem in pool.map(self.problem, self.files) if problem]
        found, read = list[str](), 0
        for name in self.files:
            for size in self._check(name, found):
                read += size
                on_progress(read)
        return found

    def problems_once(self, on_progress: Callable[[int], object] | None = None) -> list[str]:
        """:meth:`problems`, or none if these very files have been found right before."""
        before = self._identities()
        memory = (
            home_folder() / "verified" / f"{hashlib.sha256(str(self.root.resolve()).encode()).hexdigest()[:32]}.json"
        )
        with suppress(OSError, ValueError):
            if before and json.loads(read_regular_text(memory)) == before:
                return []
        if problems := self.problems(on_progress):
            return problems
        if before and before == self._identities() and self._settled(before):
            with suppress(OSError):  # a home that cannot be written costs a verification per start, no more
                replace_text(memory, json.dumps(before))
        return []

    def problem(self, name: str) -> str | None:
        """Return the problem of a file, in a few words; None if there is none."""
        found = list[str]()
        for _ in self._check(name, found):
            pass
        return found[0] if found else None

    def _check(self, name: str, problems: list[str]) -> Iterator[int]:
        """Read a file, yielding how many bytes each read gave; what is wrong with it goes to ``problems``."""
        path, wanted = self.content / name, self.files[name]
        try:
            if not path.resolve(strict=True).is_relative_to(self.root.resolve()):
                problems.append(f"{name}: leads out of the bundle")
            elif not path.is_file():
                problems.append(f"{name}: not a file")
            elif (size := path.stat().st_size) != wanted.size:
                problems.append(f"{name}: {size} bytes, but the manifest says {wanted.size}")
            else:
                digest, block = hashlib.sha256(), memoryview(bytearray(_BLOCK))
                with open_regular(path) as file:
                    while read := file.readinto(block):
                        digest.update(block[:read])
                        yield read
                if digest.hexdigest() != wanted.sha256:
                    problems.append(f"{name}: contents differ from the manifest's hash")
        except FileNotFoundError:
            problems.append(f"{name}: {path_too_long(path) or 'missing'}")
        except RuntimeError:  # Python before 3.13 calls a loop of links so
            problems.append(f"{name}: a link that leads to itself")
        except OSError as error:
            problems.append(f"{name}: cannot be read: {error.strerror}")

    def _identities(self) -> dict[str, Any]:
        """Return the marks by which each file is known to be the one that was verified; empty where one cannot be
        read."""
        identity = dict[str, list[int]]()
        try:
            for name in sorted(self.files):
                path = self.content / name
                stat, changed = path.stat(), self.changed(path)
                if changed is None:
                    return {}
                identity[name] = [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, changed]
        except OSError:
            return {}
        expected = {name: entry.sha256 for name, entry in sorted(self.files.items())}
        return {"files": identity, "sha256": expected, "checks": _CHECKS}

    @staticmethod
    def _settled(identities: dict[str, Any]) -> bool:
        newest = max(max(identity[3:]) for identity in identities["files"].values())
        return time.time_ns() - newest > _SETTLED_AFTER_NS
