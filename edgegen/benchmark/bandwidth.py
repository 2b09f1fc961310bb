"""Memory bandwidth of this machine: the ceiling of decoding, which reads every weight once per token.

Each thread takes the maximum over its own share of a block of integers, again and again: one vector load and
one vector instruction per 64 bytes, no writes, NumPy without the GIL. The block (140 MB by default, about the
int8 weights of GPT-2 small) is read by all threads together; a pass ends when the slowest thread ends.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_MIN_MEGABYTES, _MAX_MEGABYTES = 140, 512
"""Of a block that stands for a model."""


def megabytes_for(bytes_read: int, available: int | None) -> int:
    """Megabytes of a block for a model of whose weights a token reads ``bytes_read``: as many, from 140 to 512.

    It takes no more than a quarter of the memory that is ``available``, in bytes, if that is known; but for the least.
    """
    limit = _MAX_MEGABYTES if available is None else min(_MAX_MEGABYTES, available // 4_000_000)
    return max(_MIN_MEGABYTES, min(limit, bytes_read // 1_000_000))


def read_bandwidth(threads: int, megabytes: int = _MIN_MEGABYTES, seconds: float = 1.0) -> float:
    """Bytes per second of the best pass; the best, because a ceiling is what is looked for."""
    words = megabytes * 1_000_000 // 4 // threads
    # Written here and not lazily zero: untouched pages would all be the one zero page, and cached.
    shares = [np.arange(words, dtype=np.int32) for _ in range(threads)]
    total = sum(share.nbytes for share in shares)
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        end = time.perf_counter() + seconds
        while best == float("inf") or time.perf_counter() < end:
            start = time.perf_counter()
            list(pool.map(np.ndarray.max, shares))
            best = min(best, time.perf_counter() - start)
    return total / best
