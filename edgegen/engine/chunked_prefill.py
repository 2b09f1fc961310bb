"""Chunked prefill: where each chunk of a prompt ends, and how long it is while others wait for their next token."""

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


_LEAST = 16
"""Tokens of a chunk at least, however little time there is: the prompt comes to an end too."""


class PrefillPace:
    """Sizes the chunks of prompts so that a step is over in time, by how long chunks took before.

    A run has a part that every chunk costs, so that each size is measured apart, and the line through the two nearest
    tells of another.
    """

    def __init__(self, most: int) -> None:
        """``most``: tokens of a chunk at most."""
        self._most = most
        self._seconds = dict[int, float]()  # by tokens, in steps of 16

    def copy(self) -> "PrefillPace":
        """One that knows the same, and learns by itself."""
        pace = PrefillPace(self._most)
        pace._seconds = dict(self._seconds)
        return pace

    def size(self, seconds: float | None) -> int:
        """Tokens of a chunk that takes at most ``seconds``, in steps of 16; None: no sequence waits."""
        if seconds is None or self._most <= _LEAST:
            return self._most
        sizes = [*range(_LEAST, self._most, _LEAST), self._most]
        if not self._seconds:  # of a model that has run nothing yet
            return sizes[1]
        if len(self._seconds) == 1:  # a line has two points: the size beside the only one is tried
            known = next(iter(self._seconds))
            return next((size for size in sizes if size > known), max(sizes[0], known // 2 // _LEAST * _LEAST))
        return max((size for size in sizes if self._estimate(size) <= seconds), default=sizes[0])

    def ran(self, tokens: int, seconds: float) -> None:
        """A chunk of ``tokens`` took ``seconds``: the times of all sizes change by the same factor."""
        size = min(self._most, round(tokens / _LEAST) * _LEAST)
        if not size:  # what is left over at a prompt's end says little of others
            return
        seconds = max(seconds, 1e-6)
        ratio = seconds / self._seconds.get(size, seconds)
        self._seconds = {other: ratio * taken for other, taken in self._seconds.items()} | {size: seconds}

    def _estimate(self, tokens: int) -> float:
        """Seconds of a chunk of ``tokens``."""
        known = sorted(self._seconds)
        at = max(1, min(sum(size < tokens for size in known), len(known) - 1))
        first, second = known[at - 1], known[at]
        slope = (self._seconds[second] - self._seconds[first]) / (second - first)
        return self._seconds[first] + slope * (tokens - first)
