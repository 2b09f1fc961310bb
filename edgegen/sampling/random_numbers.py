"""Counter-based random numbers: a function of the request's seed and the token's position.

So a sequence samples the same tokens alone or in a batch, resumed, or with speculative decoding.
"""

_WORD = (1 << 64) - 1


def uniform(seed: int, position: int, stream: int = 0) -> float:
    """A random number in [0, 1) with 53 bits, always the same for the same arguments.

    Independent of those at other positions, under other seeds and in other streams, which are for a second
    random number at one position.
    """
    words = philox4x64(counter=(position & _WORD, stream & _WORD, 0, 0), key=(seed & _WORD, (seed >> 64) & _WORD))
    return (words[0] >> 11) * 2.0**-53


def philox4x64(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four random 64-bit words for a counter of four and a key of two: Philox4x64-10.

    Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011 (SC '11).
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0 = 0xD2E7470EE14C6C93 * c0
        p1 = 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = (p1 >> 64) ^ c1 ^ k0, p1 & _WORD, (p0 >> 64) ^ c3 ^ k1, p0 & _WORD
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & _WORD, (k1 + 0xBB67AE8584CAA73B) & _WORD
    return c0, c1, c2, c3
