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
    """Sizes the chunks of prompts so that a step is over in time, by how long the last chunk took for each token.

    A short chunk takes longer for each token than a long one, which reads the weights no more often. So an estimate by
    a longer one is too low, and the next is right: sizes settle within two steps.
    """

    def __init__(self, most: int) -> None:
        """``most``: tokens of a chunk at most."""
        self._most = most
        self._seconds_per_token: float | None = None

    def size(self, seconds: float | None) -> int:
        """Tokens of a chunk that takes at most ``seconds``, in steps of 16; None: nobody waits."""
        if seconds is None or self._most <= _LEAST:
            return self._most
        if self._seconds_per_token is None:  # of a model that has run nothing yet
            return min(2 * _LEAST, self._most)
        fitting = max(seconds, 0.0) / self._seconds_per_token
        return self._most if fitting >= self._most else max(_LEAST, int(fitting) // _LEAST * _LEAST)

    def ran(self, tokens: int, seconds: float) -> None:
        """A chunk of ``tokens`` took ``seconds``."""
        if tokens >= _LEAST // 2:  # what is left over at a prompt's end says little of others
            self._seconds_per_token = max(seconds, 1e-9) / tokens
