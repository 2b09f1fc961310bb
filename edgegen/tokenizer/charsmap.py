"""charsmap_growth(): how much longer a compiled map of characters makes a text, after a check of the map.

SentencePiece's ``precompiled_charsmap``: the size of a trie (Darts-clone: 32-bit units), the trie, whose leaves say
where a replacement begins, and the replacements, each with a zero byte at its end. The tokenizers library reads it
without a check of its own.
"""

import base64
import binascii

import numpy as np
from numpy.typing import NDArray

_STEP = 4096
"""Nodes that are looked at together."""


def charsmap_growth(encoded: str) -> float:
    """Bytes that a byte of a text becomes at most; raises ``ValueError`` where the map is damaged."""
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("it is not base64") from error
    size = int.from_bytes(data[:4], "little")
    if len(data) < 8 or size % 4 or not 4 <= size <= len(data) - 4:
        raise ValueError("it is cut off, or says a wrong size of its trie")
    units, replacements = np.frombuffer(data, "<u4", size // 4, 4), data[4 + size :]
    try:
        replacements.decode()
    except UnicodeDecodeError as error:
        raise ValueError("its replacements are not UTF-8") from error
    return max(1.0, _growth(units, replacements))


def _growth(units: NDArray[np.uint32], replacements: bytes) -> float:
    """The longest replacement for each byte of the shortest text that has it."""
    ends = np.append(np.flatnonzero(np.frombuffer(replacements, np.uint8) == 0), len(replacements))
    seen = np.zeros(len(units), np.bool_)
    letters = np.arange(256, dtype=np.int64)
    nodes, length, growth = _offsets(units[:1], np.zeros(1, np.int64)), 0, 0.0
    while len(nodes):
        length += 1
        reached_nodes = list[NDArray[np.int64]]()
        for start in range(0, len(nodes), _STEP):
            places = nodes[start : start + _STEP, None] ^ letters
            _check_inside(places, units)
            reached = places[(units[places] & 0x800000FF) == letters]
            reached = np.unique(reached)
            reached = reached[~seen[reached]]
            seen[reached] = True
            after = _offsets(units[reached], reached)
            leaves = after[(units[reached] >> 8) & 1 == 1]
            _check_inside(leaves, units)
            values = (units[leaves] & 0x7FFFFFFF).astype(np.int64)
            if values.size:
                growth = max(growth, _longest(values, ends, replacements) / length)
            reached_nodes.append(after)
        nodes = np.unique(np.concatenate(reached_nodes))
    return growth


def _offsets(units: NDArray[np.uint32], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the children of the nodes at ``places`` begin."""
    wide = units.astype(np.int64)
    return places ^ ((wide >> 10) << ((wide & 0x200) >> 6))


def _check_inside(places: NDArray[np.int64], units: NDArray[np.uint32]) -> None:
    if places.size and places.max() >= len(units):
        raise ValueError("its trie leads out of itself")


def _longest(values: NDArray[np.int64], ends: NDArray[np.int64], replacements: bytes) -> int:
    if values.max() > len(replacements):
        raise ValueError("its trie leads out of its replacements")
    starts: list[int] = values.tolist()
    if any(replacements[start : start + 1] and 0x80 <= replacements[start] < 0xC0 for start in starts):
        raise ValueError("a replacement of it begins within a character")
    return int((ends[np.searchsorted(ends, values)] - values).max())
