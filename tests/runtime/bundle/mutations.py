"""Bytes changed, cut out, doubled and swapped, as a fuzzer does."""

import random

_PIECE = 64


def mutated(data: bytes, chance: random.Random) -> bytes:
    """``data`` with one to four changes."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, other = (chance.randrange(len(changed) - _PIECE) for _ in range(2))
        match chance.randrange(5):
            case 0:
                changed[at] = chance.randrange(256)
            case 1:
                changed[at] ^= 1 << chance.randrange(8)
            case 2:
                del changed[at : at + chance.randint(1, _PIECE)]
            case 3:
                changed[at:at] = changed[other : other + chance.randint(1, _PIECE)]
            case _:
                size = chance.choice((1, 2, 8))
                changed[at : at + size] = bytes(chance.choice((0, 1, 127, 128, 255)) for _ in range(size))
    return bytes(changed)
