"""Files and folders: locks, renames that last, and the folder of everything that edgegen keeps."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Generator[bool]:
    """Lock the file ``path``; False where another process has it. The system unlocks it when a process is killed."""
    with path.open("ab") as file:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


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
    from platformdirs import user_data_path

    return expand_user(Path(os.environ.get("EDGEGEN_HOME") or user_data_path("edgegen", appauthor=False)))


def expand_user(path: Path) -> Path:
    """``path`` with ``~`` replaced; unchanged where that home is not known."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path
