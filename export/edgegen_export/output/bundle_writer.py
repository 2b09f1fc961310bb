"""BundleWriter: atomic writes, so that a bundle appears whole or not at all.

Everything is written into a hidden folder inside the target, synced, renamed to the next version folder (``v1``,
``v2``, …); replacing ``edgegen.json``, which names that folder, is the one step that makes it the bundle. A reader sees
the old bundle or the new one; a crash leaves the old one, or a folder without ``edgegen.json``, which is no bundle.
"""

import hashlib
import os
import secrets
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import MANIFEST_NAME, FileEntry, Manifest
from edgegen.errors import ExportError
from edgegen.system import LOCAL, Source, locked, path_too_long, remove_folder, retry_in_use, sync_folder
from edgegen_export.output.resume import KEPT_PREFIX

PAGE = 4096
SMALL = 64
_NEW_MANIFEST = f".{MANIFEST_NAME}"
_PARTIAL = ".partial-"
_SCRATCH = ".scratch"
_LOCK = ".lock"
_LONGEST_NAME = 90
"""Characters of a temporary file's path from the target on, at most."""


class WeightsFile:
    """The one file of all weights, hashed as it is written. Tensors of a page or more start on a page."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("xb")
        self._hash = hashlib.sha256()
        self.size = 0

    def begin(self, nbytes: int) -> int:
        """Start a tensor of ``nbytes``; returns its offset."""
        alignment = PAGE if nbytes >= PAGE else SMALL
        self._write(bytes(-self.size % alignment))
        return self.size

    def append(self, array: NDArray[np.generic]) -> None:
        self._write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def close(self, *, kept: bool = True) -> FileEntry:
        """``kept``: whether the file is to outlive a power failure."""
        if kept:
            _sync(self._file)
        self._file.close()
        return FileEntry(self.size, self._hash.hexdigest())

    def abandon(self) -> None:
        """Let go of the file, whatever state it is in; after ``close``, nothing is left to do."""
        with suppress(OSError):  # what is buffered may not fit the disk
            self._file.close()

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)


class BundleWriter:
    """Writes one bundle; used as a context, it removes what it wrote unless :meth:`commit` was reached.

    Windows removes no file that is open: what is still in use then goes when this process ends, or with the next export
    to the same target.

    Raises:
        ExportError: the target holds a bundle (without ``force``) or something else.
    """

    def __init__(self, target: Path, *, force: bool = False) -> None:
        self.target = target
        self.files: dict[str, FileEntry] = {}
        self._committed = False
        self._weights: list[WeightsFile] = []
        self._lock = ExitStack()
        try:
            refuse_wrong_target(target, force=force)
            self._made_target = not target.exists()
            target.mkdir(parents=True, exist_ok=True)
            self._remove_abandoned()
            self.folder = target / f"{_PARTIAL}{os.getpid()}-{secrets.token_hex(4)}"
            # Beside the other, which is renamed at the end: a temporary file that is open would keep Windows from that.
            self._scratch = self.folder.with_name(self.folder.name + _SCRATCH)
            self._lock.enter_context(locked(self.folder))
            self.folder.mkdir(parents=True)
            self.version = f"v{max(self._versions(), default=0) + 1}"
        except OSError as error:
            self._lock.close()
            raise ExportError(f"{target} cannot be written: {error.strerror or error}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._committed:
            for weights in self._weights:
                weights.abandon()
            remove_folder(self.folder, at_exit=self.folder.name.startswith(_PARTIAL))
        remove_folder(self._scratch, at_exit=True)
        self._lock.close()
        if not self._committed and self._made_target:
            with suppress(OSError):  # another export may be writing there
                self.target.rmdir()
        if isinstance(error, OSError):
            raise ExportError(f"the bundle {self.target} was not written: {error.strerror or error}.") from error

    def weights(self, name: str) -> WeightsFile:
        self._weights.append(WeightsFile(self.folder / name))
        return self._weights[-1]

    def scratch(self) -> Path:
        """A folder for temporary files, which go with it at the end."""
        self._scratch.mkdir(exist_ok=True)
        return self._scratch

    def add(self, name: str, data: bytes) -> None:
        with (self.folder / name).open("xb") as file:
            file.write(data)
            _sync(file)
        self.files[name] = FileEntry(len(data), hashlib.sha256(data).hexdigest())

    def commit(self, manifest: Manifest) -> list[Path]:
        """Make what was written the bundle, then remove the version it replaces.

        Returns the folders of versions that are still in use (Windows): the next export to this target removes them.
        """
        with (self.folder / _NEW_MANIFEST).open("xb") as file:
            file.write(manifest.to_json().encode())
            _sync(file)
        sync_folder(self.folder)
        version = self.target / self.version
        try:
            retry_in_use(lambda: self.folder.rename(version))
        except OSError:
            if version.exists():
                raise ExportError(f"another export has written {self.target} meanwhile; that one is kept.") from None
            raise
        self.folder = version  # to be removed, should the last step fail
        sync_folder(self.target)
        self._committed = True  # before it is so: interrupted in between, an orphan is better than a hole
        try:
            retry_in_use(lambda: (version / _NEW_MANIFEST).replace(self.target / MANIFEST_NAME))
        except OSError:
            self._committed = False
            raise
        sync_folder(self.target)
        earlier = (path for number, path in self._versions().items() if number < int(self.version[1:]))
        return [path for path in earlier if remove_folder(path)]

    def _versions(self) -> dict[int, Path]:
        return {int(p.name[1:]): p for p in self.target.glob("v*") if _is_version(p)}

    def _remove_abandoned(self) -> None:
        """Remains of exports that were killed or found files in use; an export that runs has its own locked."""
        for name in {path.name.removesuffix(_LOCK).removesuffix(_SCRATCH) for path in self.target.glob(f"{_PARTIAL}*")}:
            partial = self.target / name
            with locked(partial) as free:
                for folder in (partial, partial.with_name(name + _SCRATCH)) if free else ():
                    remove_folder(folder, ())


def refuse_wrong_target(target: Path, *, force: bool, source: Source = LOCAL) -> None:
    """Judge where a bundle is to be written, and touch nothing.

    Raises:
        ExportError: ``target`` holds a bundle (without ``force``) or something else, or its path is too long.
    """
    if problem := path_too_long(target, _LONGEST_NAME, source):
        raise ExportError(f"{problem}.")
    try:
        if not target.exists():
            return
        entries = list(target.iterdir()) if target.is_dir() else None
    except OSError as error:
        raise ExportError(f"{target} cannot be written: {error.strerror or error}.") from error
    if entries is None:
        raise ExportError(f"{target} is a file; give -o a folder that does not exist yet.")
    if any(p.name == MANIFEST_NAME for p in entries):
        if not force:
            raise ExportError(f"{target} already holds a bundle; replace it with --force, or give another -o.")
    elif any(not (p.name.startswith((_PARTIAL, KEPT_PREFIX)) or _is_version(p)) for p in entries):
        raise ExportError(f"{target} holds other files and no bundle; give -o a new or an empty folder.")


def _is_version(path: Path) -> bool:
    return path.is_dir() and path.name[:1] == "v" and path.name[1:].isdecimal()


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
