"""The file of a compiled tokenizer, as the exporter writes it and ``kernels/tokenizer/tokenizer.c`` reads it.

A header, and sections whose offsets are multiples of 8; all numbers are little-endian. docs/bundle-format.md describes
them.
"""

import json
import struct
from pathlib import Path
from typing import Any, NamedTuple, Self

from edgegen.system import read_regular

COMPILED = "tokenizer.compiled"
"""Its name in a bundle, beside ``tokenizer.json``."""

MAGIC = b"edgetok\0"
VERSION = 1

IGNORE_MERGES = 1
"""A flag: a word that is a token is not split."""

STRIPS_LEFT, STRIPS_RIGHT = 1, 2
"""Flags of an added token: it takes in the white space beside it."""

WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""Characters that count as white space."""

LITERAL = 1 << 31
"""Of where a token's bytes start: they are its letters in UTF-8, not bytes that its letters spell."""

NONE = (1 << 32) - 1
"""No id."""

DEAD, ACCEPTS = 0x7FFF, 0x8000
"""Of an automaton's move: the state that nothing leaves, and that a match ends before the character moved over."""

PAGES = 0x110000 >> 8
MOST_SPLITS = 8
MOST_CLASSES = 255

SECTIONS: tuple[str, ...] = (
    "details",
    "token_starts",
    "token_bytes",
    "slots",
    "rows",
    "merges",
    "letters",
    "page_numbers",
    "classes",
    "states",
    "moves",
    "raw_tokens",
    "normalized_tokens",
)

_HEADER = struct.Struct(f"<8sII32sII{2 * len(SECTIONS)}I")


class Header(NamedTuple):
    """Header before the sections.

    ``source``: the SHA-256 of the ``tokenizer.json``. ``classes``: of characters. ``sections``: offset and size of
    each, by its name.
    """

    flags: int
    source: bytes
    classes: int
    sections: dict[str, tuple[int, int]]

    @classmethod
    def read(cls, data: bytes | memoryview) -> Self | None:
        """The header of a file; None where it is another file, of another version, or shorter than it says."""
        if len(data) < _HEADER.size:
            return None
        magic, version, flags, source, classes, _, *numbers = _HEADER.unpack_from(data)
        if magic != MAGIC or version != VERSION:
            return None
        places = zip(numbers[::2], numbers[1::2], strict=True)
        sections = dict(zip(SECTIONS, places, strict=True))
        if any(offset % 8 or offset + size > len(data) for offset, size in sections.values()):
            return None
        return cls(flags, source, classes, sections)


def file_of(flags: int, source: bytes, classes: int, sections: dict[str, bytes]) -> bytes:
    """The file with these sections."""
    numbers, offset = list[int](), -(-_HEADER.size // 8) * 8
    parts: list[bytes] = []
    for name in SECTIONS:
        data = sections[name]
        numbers += [offset, len(data)]
        parts.append(data + bytes(-len(data) % 8))
        offset += len(parts[-1])
    header = _HEADER.pack(MAGIC, VERSION, flags, source, classes, 0, *numbers)
    return b"".join([header, bytes(-len(header) % 8), *parts])


def added_tokens(path: Path, sha256: str) -> list[dict[str, Any]] | None:
    """The added tokens in the file at ``path``, which was made of a ``tokenizer.json`` with that hash; None if not."""
    try:
        data = read_regular(path)
        header = Header.read(data)
        if header is None or header.source.hex() != sha256:
            return None
        offset, size = header.sections["details"]
        return json.loads(data[offset : offset + size])["added_tokens"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
