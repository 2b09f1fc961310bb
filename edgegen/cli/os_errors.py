"""What errors of the operating system mean to a command: a reader that has gone, a path that is too long."""

import errno
import sys
from pathlib import Path

_LONGEST_FOLDER, _LONGEST_PATH = 247, 259
_NOT_FOUND = (errno.ENOENT, errno.ENAMETOOLONG, errno.EINVAL)


def reader_has_gone(error: OSError, system: str = sys.platform) -> bool:
    """Whether the error is that of a pipe which nobody reads any more; Windows' C library calls that EINVAL.

    An invalid path is EINVAL too, but such an error names it.
    """
    return isinstance(error, BrokenPipeError) or (
        system == "win32" and error.errno == errno.EINVAL and error.filename is None
    )


def long_path_note(error: BaseException, system: str = sys.platform) -> str | None:
    """What to do about a path that is too long for Windows, which says "not found"; None if that is not the cause.

    ``error``: as it was raised, or another that was raised because of it.
    """
    cause: BaseException | None = error
    while system == "win32" and cause is not None:
        if isinstance(cause, OSError) and cause.errno in _NOT_FOUND and isinstance(cause.filename, str):
            length = len(str(Path(cause.filename).absolute()))
            if length > _LONGEST_FOLDER:
                return (
                    f"this path has {length} characters, and Windows takes {_LONGEST_PATH}, of a folder "
                    f"{_LONGEST_FOLDER}, unless long paths are enabled: enable them (LongPathsEnabled in the "
                    f"registry), or use a folder nearer to the root."
                )
        cause = cause.__cause__ or cause.__context__
    return None
