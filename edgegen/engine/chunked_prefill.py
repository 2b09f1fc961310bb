"""Chunked prefill: where each chunk of a prompt ends, so that chunking does not change the result."""

_QUERIES = 64
"""The attention operator takes queries in blocks of this many, or of a multiple."""


def chunk_end(start: int, stop: int, size: int) -> int:
    """Where the chunk from ``start`` ends: after at most ``size`` tokens, or three.

    Other kernels compute a single token, alone in its chunk or left over by the blocks of 64, and the result would
    depend on the chunking. So two are left for the next chunk instead, unless there is only one.
    """
    left = stop - start
    length = min(left, size)
    if left - length == 1:
        length -= 1
    if length % _QUERIES == 1:
        length -= 2
    return start + (length if length > 1 else min(left, 3))
