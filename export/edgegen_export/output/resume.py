"""ResumeFolder: the intermediate results of an export, kept beside its target so that the same export can resume.

An export that was interrupted or killed, or found the disk full, leaves it. It is the same export if tensors,
options and versions are the same, whatever file the tensors lie in (:func:`fingerprint`).
"""

import hashlib
import json
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import onnxruntime

import edgegen
from edgegen.system import locked, remove_folder
from edgegen_export.files.threads import in_threads
from edgegen_export.tensors.lazy import LazyTensor

KEPT_PREFIX = ".unfinished-"
_KEPT_S = 7 * 24 * 3600


class ResumeFolder:
    """Used as a context. A finished bundle, and an export that would fail again, leave nothing of this."""

    def __init__(self, target: Path, scratch: Path, warn: Callable[[str], None]) -> None:
        """``scratch``: where to work instead, while another process works on the same. ``warn`` hears what is kept."""
        self._target, self._scratch, self._warn = target, scratch, warn
        self._claimed: Path | None = None
        self._lock = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()
        if error is not None and _may_pass(error):
            if self._claimed and _holds_work(self._claimed):
                self._warn("what was worked out so far is kept: the same export goes on from there")
                return
        elif error is None:
            self._remove(older_than=0)
        if self._claimed:
            remove_folder(self._claimed)

    def claim(self, key: str) -> tuple[Path, bool]:
        """The folder for what belongs to ``key``, and whether an earlier export has left something there."""
        self._remove(older_than=_KEPT_S)
        folder = self._target / (KEPT_PREFIX + key)
        if not self._lock.enter_context(locked(folder)):
            return self._scratch, False
        folder.mkdir(exist_ok=True)
        self._claimed = folder
        return folder, _holds_work(folder)

    def _remove(self, older_than: float) -> None:
        """Folders of that age in seconds, but for those that another process works in."""
        for folder in _kept(self._target):
            if time.time() - folder.stat().st_mtime >= older_than:
                with locked(folder) as free:
                    if free:
                        remove_folder(folder)


def kept_bytes(target: Path) -> int:
    """Bytes that interrupted exports have left beside ``target``, which the next one needs no room for."""
    found = (path.stat() for folder in _kept(target) for path in folder.iterdir())
    return sum(stat.st_size for stat in found)


def _kept(target: Path) -> list[Path]:
    """The folders, without the locks that lie beside them: Windows removes no folder with an open file."""
    return [path for path in target.glob(KEPT_PREFIX + "*") if path.is_dir()]


def _may_pass(error: BaseException) -> bool:
    """Whether the next time may end otherwise: after an interruption, or where the machine had no more to give."""
    return isinstance(error, OSError | MemoryError) or not isinstance(error, Exception)


def _holds_work(folder: Path) -> bool:
    return any(folder.iterdir())


def fingerprint(tensors: Mapping[str, LazyTensor], facts: object, on_progress: Callable[[int, int], None]) -> str:
    """Twelve digits that tell ``tensors`` and ``facts`` (plain values), and what computes with them, from others."""
    digest = hashlib.blake2b(digest_size=6)
    versions = [edgegen.__version__, np.__version__, onnxruntime.__version__]
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    digest.update(json.dumps([versions, facts, shapes], sort_keys=True).encode())
    for done, of_tensor in enumerate(in_threads(_digest_of, (tensors[name] for name in sorted(tensors))), 1):
        digest.update(of_tensor)
        on_progress(done, len(tensors))
    return digest.hexdigest()


def _digest_of(tensor: LazyTensor) -> bytes:
    """The checksums of its slabs: a changed checkpoint changes many, and a digest takes five times as long."""
    return b"".join(zlib.crc32(np.ascontiguousarray(slab).data).to_bytes(4, "little") for _, _, slab in tensor.slabs())
