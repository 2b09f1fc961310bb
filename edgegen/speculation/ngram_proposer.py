"""NGramProposer: guesses that the text goes on as it did when its last tokens came before.

Saxena, "Prompt Lookup Decoding", 2023. It pays where an answer repeats its prompt, or itself: editing, extracting,
summaries with quotations, code.
"""

from collections.abc import Sequence

from edgegen.speculation.adaptive_length import AdaptiveLength
from edgegen.speculation.ngram_index import NGramIndex

LEAST_NGRAM_SIZE = 2
"""Fewer tokens occur again too often for what follows to mean anything."""

_TAIL = 16
"""Tokens that tell whether a text has only grown."""


class NGramProposer:
    """Looks for the last tokens of one text earlier in it: for as many as can be found, at their first place.

    Where a text is copied with changes, the latest place would be in the copy, and soon at a change; elsewhere both do
    as well.
    """

    always_accepted = False

    def __init__(self, longest: int, max_ngram_size: int) -> None:
        """``longest``: most tokens of a guess; ``max_ngram_size``: most tokens to look for."""
        self._pace = AdaptiveLength(longest)
        self._index = NGramIndex(range(max_ngram_size, LEAST_NGRAM_SIZE - 1, -1))

    def propose(self, token_ids: Sequence[int]) -> list[int]:
        """What followed earlier; if that is the end of the text itself, it is taken to go round."""
        self._follow(token_ids)
        length = self._pace.affordable(len(token_ids))
        place = self._index.place_before()
        if not length or place is None:
            return []
        known = self._index.ids[place : place + length]
        return (known * (length // len(known) + 1))[:length]

    def verified(self, proposed: int, accepted: int) -> None:
        """What became of the last proposal."""
        self._pace.settle(proposed, accepted)

    def _follow(self, token_ids: Sequence[int]) -> None:
        """Index what is new. That ids were taken back is seen by the length or the last ones: all would take long."""
        known = self._index.ids
        length = len(known)
        if known[-_TAIL:] != list(token_ids[max(0, length - _TAIL) : length]):
            pairs = enumerate(zip(known, token_ids, strict=False))
            self._index.truncate(next((n for n, (a, b) in pairs if a != b), min(length, len(token_ids))))
        for token_id in token_ids[len(known) :]:
            self._index.append(token_id)
