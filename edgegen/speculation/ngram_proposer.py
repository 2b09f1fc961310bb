"""NGramProposer: prompt lookup, which proposes what followed an earlier occurrence of the last tokens.

Saxena, "Prompt Lookup Decoding", 2023. It helps where an answer repeats its prompt or itself: editing, extraction,
summaries with quotations, code.
"""

from collections.abc import Sequence

from edgegen.speculation.adaptive_length import AdaptiveLength

LEAST_NGRAM_SIZE = 2
"""Fewer tokens occur again too often for what follows to mean anything."""

_TAIL = 16
"""Tokens that are compared to see whether a sequence has only grown."""


class NGramProposer:
    """Looks for the longest n-gram at the end of one sequence that occurred before, at its first place.

    Where a text is copied with changes, the latest place would be in the copy, and soon at a change; elsewhere both
    work as well.
    """

    always_accepted = False

    def __init__(self, longest: int, max_ngram_size: int, *, runs_again: bool = False) -> None:
        """``longest``: most tokens of a proposal; ``max_ngram_size``: most tokens to look for; ``runs_again``: as in
        :class:`AdaptiveLength`."""
        self._pace = AdaptiveLength(longest, runs_again=runs_again)
        self.verified = self._pace.settle
        self._index = NGramIndex(range(max_ngram_size, LEAST_NGRAM_SIZE - 1, -1))

    def propose(self, token_ids: Sequence[int]) -> list[int]:
        """Propose the tokens that followed earlier; at the end of the sequence, they are repeated."""
        return self.propose_in_batch(token_ids, 1)

    def propose_in_batch(self, token_ids: Sequence[int], sequences: int) -> list[int]:
        """As :meth:`propose`."""
        self._follow(token_ids)
        length = self._pace.affordable(len(token_ids), sequences)
        place = self._index.place_before()
        if not length or place is None:
            return []
        known = self._index.ids[place : place + length]
        return (known * (length // len(known) + 1))[:length]

    def _follow(self, token_ids: Sequence[int]) -> None:
        """Index the new ids. Removed ids are noticed by the length or the last ids; comparing all would take long."""
        known = self._index.ids
        length = len(known)
        if known[-_TAIL:] != list(token_ids[max(0, length - _TAIL) : length]):
            pairs = enumerate(zip(known, token_ids, strict=False))
            self._index.truncate(next((n for n, (a, b) in pairs if a != b), min(length, len(token_ids))))
        for token_id in token_ids[len(known) :]:
            self._index.append(token_id)


class NGramIndex:
    """The first place of every n-gram of a sequence. Adding a token takes constant time.

    A place is the number of tokens up to the end of the n-gram.

    Attributes:
        ids: the sequence.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        """``sizes``: lengths of the n-grams to look for, the preferred first."""
        self.ids: list[int] = []
        self._sizes = tuple(sizes)
        self._first: dict[tuple[int, ...], int] = {}

    def append(self, token_id: int) -> None:
        """Add a token."""
        self.ids.append(token_id)
        length = len(self.ids)
        for size in self._sizes:
            if size <= length:
                self._first.setdefault(tuple(self.ids[-size:]), length)

    def truncate(self, length: int) -> None:
        """Forget the tokens from ``length`` on."""
        while len(self.ids) > length:
            for size in self._sizes:
                ngram = tuple(self.ids[-size:])
                if self._first.get(ngram) == len(self.ids):
                    del self._first[ngram]
            self.ids.pop()

    def place_before(self) -> int | None:
        """The earlier place of the last tokens, by the first size that has one: ``ids`` from there on followed them."""
        length = len(self.ids)
        for size in self._sizes:
            place = self._first.get(tuple(self.ids[-size:]), length)
            if place < length:
                return place
        return None
