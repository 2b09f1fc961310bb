"""Text files of a checkpoint: UTF-8, without the byte order mark that some editors write."""

import codecs

from edgegen.errors import CheckpointError

_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),  # before UTF-16's, which it begins with
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def without_mark(data: bytes, name: str) -> bytes:
    """The contents of a text file without a byte order mark.

    Raises:
        CheckpointError: the file is UTF-16 or UTF-32.
    """
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)
    if encoding is None and b"\0" in data[:2]:  # what follows an ASCII character, or precedes it, in UTF-16
        encoding = "UTF-16"
    if encoding is not None:
        raise CheckpointError(f"{name} is {encoding}: save it as UTF-8")
    return data.removeprefix(codecs.BOM_UTF8)
