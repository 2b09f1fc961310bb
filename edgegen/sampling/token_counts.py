"""TokenCounts: how often each token occurs in a sequence."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling.history import History


class TokenCounts:
    """Counts the ids of a sequence from ``begin`` on, at the cost of the ids that are new or drop out.

    Attributes:
        ids: ``[M]`` int64, each id that was counted once, in no order.
        counts: ``[M]`` float32; 0 for an id that has dropped out.
    """

    def __init__(self) -> None:
        self._history = History()
        self._begin = self._end = 0
        self._place: dict[int, int] = {}
        self._ids = np.empty(0, np.int64)
        self._counts = np.empty(0, np.float32)

    @property
    def ids(self) -> NDArray[np.int64]:
        return self._ids[: len(self._place)]

    @property
    def counts(self) -> NDArray[np.float32]:
        return self._counts[: len(self._place)]

    def update(self, token_ids: Sequence[int], begin: int) -> None:
        """Count ``token_ids[begin:]``."""
        grown = self._history.follow(token_ids) >= self._end and begin >= self._begin
        if grown and len(token_ids) - self._end <= len(self._place):
            for token_id in token_ids[self._end :]:
                self._add(token_id)
            for token_id in token_ids[self._begin : begin]:
                self._counts[self._place[token_id]] -= 1
        else:
            self._count_anew(token_ids[begin:])
        self._begin, self._end = begin, len(token_ids)

    def _add(self, token_id: int) -> None:
        place = self._place.get(token_id)
        if place is None:
            place = self._place[token_id] = len(self._place)
            if place == self._ids.size:
                self._ids = np.concatenate([self._ids, np.empty_like(self._ids, shape=place + 64)])
                self._counts = np.concatenate([self._counts, np.empty_like(self._counts, shape=place + 64)])
            self._ids[place], self._counts[place] = token_id, 0
        self._counts[place] += 1

    def _count_anew(self, token_ids: Sequence[int]) -> None:
        counter = Counter(token_ids)
        self._place = {token_id: place for place, token_id in enumerate(counter)}
        self._ids = np.fromiter(counter.keys(), np.int64, len(counter))
        self._counts = np.fromiter(counter.values(), np.float32, len(counter))
