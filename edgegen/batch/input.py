"""InputLine: a line of a batch's input; lines are read one at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import BinaryIO

LONGEST_LINE = 1 << 24
"""Most bytes of a line; of a longer one no more than these are held."""


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line that is not blank.

    Attributes:
        number: where it stands in its file, counted from 1.
        start: how many bytes of the file come before it.
        data: its bytes without the end of the line, or the first of too many (:attr:`too_long`).
    """

    number: int
    start: int
    data: bytes

    @property
    def digest(self) -> str:
        """Digest of the line and of its number, 32 hexadecimal digits: other content or another place changes it."""
        return blake2b(b"%d " % self.number + self.data, digest_size=16).hexdigest()

    @property
    def too_long(self) -> bool:
        return len(self.data) > LONGEST_LINE


def read_lines(file: BinaryIO, number: int = 0, start: int = 0) -> Iterator[InputLine]:
    """The lines of ``file``, of which ``number`` lines of ``start`` bytes together have been read; blank ones left out.

    Of all that Python calls the end of a line, JSON texts may hold every one but the newline.
    """
    while data := file.readline(LONGEST_LINE + 2):
        number, length = number + 1, len(data)
        while not data.endswith(b"\n") and (rest := file.readline(LONGEST_LINE)):
            length += len(rest)
            if rest.endswith(b"\n"):
                break
        text = data.removesuffix(b"\n").removesuffix(b"\r")
        if text.strip():
            yield InputLine(number, start, text)
        start += length
