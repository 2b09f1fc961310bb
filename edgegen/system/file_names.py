"""File names that mean one file on every system, so that what is written on one can be read on another."""

import re
from collections.abc import Iterable
from pathlib import Path

from edgegen.system.source import LOCAL, Source

_RESERVED = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3]) *(?:\..*)?", re.IGNORECASE
)
"""Devices of Windows, with whatever ending."""

_FORBIDDEN = frozenset('\\:<>"|?*')
"""On Windows; a colon begins a stream of the file before it."""

_LONG_PATHS = "HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem\\LongPathsEnabled"
_LONGEST_PATH = 259
"""Characters, on Windows without long paths."""


def is_portable(path: str) -> bool:
    """Whether ``path`` is relative, in plain POSIX form, stays inside its folder and names a file on every system.

    So no part of it is a device of Windows (``NUL``, ``com1.txt``), ends with a dot or a space, which Windows drops,
    or has a character that is forbidden there or not printable.
    """
    if not path.isprintable() or not _FORBIDDEN.isdisjoint(path):
        return False
    return all(part and part[-1] not in ". " and not _RESERVED.fullmatch(part) for part in path.split("/"))


def name_clashes(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of ``paths`` that are one file where case, or the form of an accent, makes no difference."""
    seen, found = dict[str, str](), list[tuple[str, str]]()
    for path in sorted(set(paths)):
        if (first := seen.setdefault(_folded(path), path)) != path:
            found.append((first, path))
    return found


def _folded(path: str) -> str:
    if path.isascii():
        return path.lower()
    import unicodedata  # which most names do not need

    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def path_too_long(path: Path, more: int = 0, source: Source = LOCAL) -> str | None:
    """Why Windows cannot open ``path``, or what has ``more`` characters after it, and what to do; None if it can."""
    length = len(str(path.absolute())) + more
    if source.system != "win32" or length <= _LONGEST_PATH or source.call(_LONG_PATHS) == b"1":
        return None
    return (
        f"{path.absolute()} is too long a path: with the names of files in it {length} characters, and Windows is set "
        f"to at most {_LONGEST_PATH}; give a shorter one, or enable long paths (LongPathsEnabled) in Windows"
    )
