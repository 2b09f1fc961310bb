"""Reads UTF-8 text from a file or standard input."""

import codecs
import sys
from pathlib import Path

from edgegen.errors import UsageError


def read_text(source: str, what: str) -> str:
    """The text of a file, or of standard input for ``-``, without a byte order mark; ``what`` names it in errors.

    Raises:
        UsageError: it cannot be read, or is not UTF-8 text.
    """
    if source == "-":
        data = sys.stdin.buffer.read()
    else:
        try:
            data = Path(source).read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read the {what} file {source}: {error.strerror}.") from None
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        where = "standard input" if source == "-" else source
        raise UsageError(
            f"the {what} in {where} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}."
        ) from None
