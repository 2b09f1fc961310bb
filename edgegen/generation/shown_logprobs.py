"""ShownLogprobs: holds log-probabilities back as their text is held back, and drops those of text that is not shown."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from edgegen.sampling.logprobs import TokenLogprob


class _Placed(NamedTuple):
    entry: TokenLogprob
    begin: int
    end: int


class ShownLogprobs:
    """The entries of one answer that may end at a text; places are in characters of it.

    A token that adds no character by itself, such as the first part of one, goes with the token after it.
    """

    def __init__(self) -> None:
        self._held = deque[_Placed]()
        self._read = 0

    def begin(self, ends: Sequence[int]) -> None:
        """Begin after tokens that have no entries, which end at ``ends``."""
        self._read = ends[-1] if ends else 0

    def push(self, entries: Sequence[TokenLogprob], ends: Sequence[int], shown: int) -> tuple[TokenLogprob, ...]:
        """Return the entries whose text is ``shown``, after adding ``entries``, which end at ``ends``."""
        for entry, end in zip(entries, ends, strict=True):
            self._held.append(_Placed(entry, self._read, end))
            self._read = end
        last = max((n for n, one in enumerate(self._held) if one.begin < one.end <= shown), default=-1)
        return tuple(self._held.popleft().entry for _ in range(last + 1))

    def finish(self, shown: int, read: int) -> tuple[TokenLogprob, ...]:
        """The rest, of an answer that has ended; a token of which ``shown`` has only a part is cut to that.

        ``read``: characters of the text and of what is hidden after it; with nothing hidden, the rest is all of them.
        """
        rest = [one for one in self._held if one.begin < shown or shown == read]
        self._held.clear()
        whole = (one.entry if one.end <= shown else _cut(one.entry, one.end - shown) for one in rest)
        return tuple(entry for entry in whole if entry is not None)


def _cut(entry: TokenLogprob, hidden: int) -> TokenLogprob | None:
    """An entry without its last ``hidden`` characters; None if it has no others. Its own alternative is cut too."""
    spelled = entry.utf8
    lead = next((n for n, byte in enumerate(spelled) if byte & 0xC0 != 0x80), len(spelled))  # of an earlier character
    text = spelled[lead:].decode("utf-8", "ignore")
    kept = spelled[:lead] + text[: max(0, len(text) - hidden)].encode()
    if not kept:
        return None
    token = kept.decode("utf-8", "replace")
    own = replace(entry, token=token, token_bytes=kept if token.encode() != kept else None, top_logprobs=())
    others = tuple(own if other.token_id == entry.token_id else other for other in entry.top_logprobs)
    return replace(own, top_logprobs=others)
