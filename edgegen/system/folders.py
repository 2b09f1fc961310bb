"""Files and folders: locks, renames that last, and the folder of everything that edgegen keeps."""

import atexit
import errno
import gc
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

_T = TypeVar("_T")

_PATIENCE = (0.01, 0.03, 0.1, 0.3, 0.6) if sys.platform == "win32" else ()
"""Seconds between attempts. Windows refuses to rename or remove what a virus scanner or an indexer has just opened."""

_IN_USE = frozenset({303, 1224})
"""Errors of Windows that are no ``PermissionError``: a file that is being removed, and a file that is mapped."""

_REMAINS = set[Path]()
"""Folders to be removed when this process ends."""


@contextmanager
def locked(path: Path) -> Generator[bool]:
    """Lock ``path`` by a file beside it, ``.lock``, which is gone afterwards; False where another process has the lock.

    The system unlocks it when a process is killed.

    Raises:
        OSError: the file beside it cannot be written.
    """
    lock = path.with_name(path.name + ".lock")
    with lock.open("ab") as file:
        # A lock that has vanished belonged to a process which has just ended, and would not keep the next one off.
        if not (_lock(file) and _is_at(file, lock)):
            file.close()  # on Windows no process can remove a file that is open
            yield False
            return
        try:
            yield True
        finally:
            # While it is locked, lest it be the lock of the next one. Windows does so once it is closed only.
            try:
                lock.unlink()
            except OSError:
                file.close()
                with suppress(OSError):  # the next one has it open already
                    lock.unlink()


def _lock(file: BinaryIO) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_at(file: BinaryIO, path: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def is_in_use(error: OSError) -> bool:
    """Whether that may be as something is open: a file, or one in a folder, which then is not empty yet."""
    busy = isinstance(error, PermissionError) or error.errno in (errno.ENOTEMPTY, errno.EBUSY)
    return busy or getattr(error, "winerror", None) in _IN_USE


def retry_in_use(act: Callable[[], _T], waits: Sequence[float] = _PATIENCE) -> _T:
    """Call ``act``, which renames or removes, and return its result; try again while another program has the file open.

    Raises:
        OSError: of the last attempt.
    """
    for attempt, wait in enumerate(waits):
        try:
            return act()
        except OSError as error:
            if not is_in_use(error):
                raise
        if attempt == 0:
            gc.collect()  # arrays and sessions of this process that are no longer needed have files open too
        time.sleep(wait)
    return act()


def replace_text(path: Path, text: str) -> None:
    """Write ``path``, whole or not at all: other processes may read and write it. Its folder is made if need be.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, "utf-8")
        retry_in_use(lambda: temporary.replace(path))
    finally:
        temporary.unlink(missing_ok=True)


def remove_folder(folder: Path, waits: Sequence[float] = _PATIENCE, *, at_exit: bool = False) -> OSError | None:
    """Remove a folder and all in it; None if it is gone, else why it is not.

    ``at_exit``: try again when this process ends, if it is in use now; for a name that is not used a second time.
    """
    try:
        retry_in_use(lambda: _remove_tree(folder), waits)
    except OSError as error:
        if not os.path.lexists(folder):
            return None
        if at_exit and is_in_use(error):
            if not _REMAINS:
                atexit.register(_remove_remains)
            _REMAINS.add(folder)
        return error
    return None


def _remove_remains() -> None:
    gc.collect()
    while _REMAINS:
        with suppress(OSError):
            _remove_tree(_REMAINS.pop())


def _remove_tree(folder: Path) -> None:
    import shutil  # takes as long to import as all else of this wing

    shutil.rmtree(folder, ignore_errors=True)  # all but what is in use
    if os.path.lexists(folder):
        shutil.rmtree(folder)  # says why


def sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` durable over a power failure; Windows has no handle of a folder to sync."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def home_folder() -> Path:
    """Where named bundles and remembered verifications live: ``EDGEGEN_HOME``, or the user's data folder."""
    return expand_user(Path(os.environ.get("EDGEGEN_HOME") or _data_folder()))


def _data_folder() -> Path:
    """The user's data folder for edgegen; on Linux without platformdirs, whose import takes 8 ms."""
    if sys.platform == "linux" and Path(os.environ.get("HOME", "")).is_absolute():
        given = Path(os.environ.get("XDG_DATA_HOME", ""))
        return (given if given.is_absolute() else Path("~/.local/share")) / "edgegen"
    from platformdirs import user_data_path

    return user_data_path("edgegen", appauthor=False)


def expand_user(path: Path) -> Path:
    """``path`` with ``~`` replaced; unchanged where that home is not known."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path
