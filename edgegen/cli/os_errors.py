"""Errors of the operating system as a command sees them: a reader that has gone, a path that is too long."""

import errno
import sys
from pathlib import Path

from edgegen.system import LOCAL, Source, path_too_long

_NOT_FOUND = (errno.ENOENT, errno.ENAMETOOLONG, errno.EINVAL)


def reader_has_gone(error: OSError, system: str = sys.platform) -> bool:
    """Whether the error is that of a pipe which nobody reads any more; Windows' C library calls that EINVAL.

    An invalid path is EINVAL too, but such an error names it.
    """
    return isinstance(error, BrokenPipeError) or (
        system == "win32" and error.errno == errno.EINVAL and error.filename is None
    )


def long_path_note(error: BaseException, source: Source = LOCAL) -> str | None:
    """Say what to do about a path that is too long for Windows, which says "not found"; None if that is not the cause.

    ``error``: as it was raised, or another that was raised because of it.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _NOT_FOUND and isinstance(cause.filename, str):
            return path_too_long(Path(cause.filename), source=source)
        cause = cause.__cause__ or cause.__context__
    return None
