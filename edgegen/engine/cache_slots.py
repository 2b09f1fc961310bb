"""Slots: who sits where in the cache.

Rows at work lie packed in the first slots, so that a step over them is one view. Behind them texts that have ended keep
their place until somebody needs it: a conversation that goes on finds its keys and values where it left them, and
nothing is copied. Who needs the place has its text moved to the :class:`PrefixCache`.
"""

from typing import Literal

import numpy as np

from edgegen.engine.prefix_cache import CachedText, PrefixCache, is_continued
from edgegen.engine.sequence import Sequence
from edgegen.model.interfaces import Cache, Cuts
from edgegen.model.kv_snapshot import KVSnapshot

_LEAST = 8
"""Ids that two texts must share for it to be worth the while."""

Reuse = Literal["all", "sure"]
"""Which of a text's keys and values others take over: all, or those that they would compute themselves, bit for bit."""


class Slots:
    """The rows at work and the texts behind them.

    Attributes:
        rows: those at work, by their slot.
    """

    def __init__(
        self, cache: Cache, prefixes: PrefixCache | None, cuts: Cuts, reuse: Reuse, budget: int | None
    ) -> None:
        """``prefixes``: where texts go that must leave; None keeps none. ``budget``: bytes that the cache keeps to."""
        self.rows: list[Sequence] = []
        self._cache = cache
        self._prefixes = prefixes
        self._cuts = cuts
        self._reuse = reuse
        self._budget = budget
        self._left: dict[int, CachedText] = {}  # by the slot, behind those of the rows

    def enter(self, row: Sequence, rows: int, length: int) -> None:
        """Give ``row`` the next slot, with what is known of its prompt.

        ``rows``, ``length``: how many will be at work, and of how many positions; room is made for them.
        """
        self._reserve(rows, length)
        slot = len(self.rows)
        row.cached = row.reused = self._begin(slot, row) if row.use_cache else self._empty(slot)
        self._seat(row)

    def enter_as(self, row: Sequence, source: Sequence, rows: int, length: int) -> None:
        """Give ``row`` the next slot, and all that ``source`` has."""
        self._reserve(rows, length)
        self._empty(len(self.rows))
        self._seat(row)
        self.fork(source, row)

    def fork(self, source: Sequence, target: Sequence) -> None:
        """Give ``target``, which has a slot, the keys and values of ``source``."""
        self._cache.fork(source.slot, target.slot)
        target.cached = source.cached
        target.proposed = dict(source.proposed)

    def leave(self, row: Sequence) -> None:
        """Free the slot of a row that has ended; the last row takes it, so that rows stay packed."""
        slot, last = row.slot, len(self.rows) - 1
        if self._prefixes is not None and row.error is None and row.cached >= _LEAST:
            self._cache.truncate(slot, row.cached)
            if slot != last:
                self._cache.swap(slot, last)
            self._left[last] = self._text(row)
        else:
            self._cache.compact(slot, last + 1)
        moved = self.rows.pop()
        if moved is not row:
            self.rows[slot], moved.slot = moved, slot

    def pack(self, rows: tuple[Sequence, ...]) -> None:
        """Bring ``rows`` to the first slots."""
        outside = [row for row in rows if row.slot >= len(rows)]
        if outside:
            inside = [row for row in self.rows[: len(rows)] if row not in rows]
            for one, other in zip(outside, inside, strict=True):
                self._cache.swap(one.slot, other.slot)
                one.slot, other.slot = other.slot, one.slot
                self.rows[one.slot], self.rows[other.slot] = one, other

    def _seat(self, row: Sequence) -> None:
        row.slot = len(self.rows)
        self.rows.append(row)

    def _begin(self, slot: int, row: Sequence) -> int:
        """Fill ``slot`` with as much of the prompt's beginning as is at hand; returns its length."""
        if row.beginning is not None and self._cache.can_restore(*row.beginning):
            self._save(slot)
            self._cache.restore(slot, *row.beginning)
            return row.beginning.length
        length, source = self._longest(row)
        if source is None:
            return self._empty(slot)
        if self._prefixes is not None and isinstance(source, KVSnapshot):
            self._prefixes.use(source, length)
            self._save(slot)
            self._cache.restore(slot, source, length)
            return length
        assert isinstance(source, int)
        if source in self._left and is_continued(length, self._left[source]):
            del self._left[source]
            if source != slot:
                self._cache.swap(source, slot)
                if slot in self._left:
                    self._left[source] = self._left.pop(slot)
        else:
            self._save(slot)
            if source != slot:
                self._cache.fork(source, slot)
        self._cache.truncate(slot, length)
        return length

    def _longest(self, row: Sequence) -> tuple[int, int | KVSnapshot | None]:
        """The longest beginning of the row's prompt that is at hand, and the slot or the snapshot that has it."""
        # Two ids at least are left to run: one alone would be computed in another way than it would be with others.
        ids = np.array(row.ids[: row.prompt_length - 2], np.int64)
        if self._prefixes is None or len(ids) < _LEAST:
            return 0, None
        texts = self._left | {other.slot: self._text(other) for other in self.rows}
        lengths = {slot: text.shared_with(ids) for slot, text in texts.items()}
        at_hand = [(length, slot) for slot, length in lengths.items() if self._cache.can_truncate(slot, length)]
        length, slot = max(at_hand, default=(0, 0))
        saved, snapshot = self._prefixes.find(ids, self._cache.can_restore)
        if max(length, saved) < _LEAST:
            return 0, None
        return (length, slot) if length >= saved else (saved, snapshot)

    def _text(self, row: Sequence) -> CachedText:
        sure = {"any": row.cached, "chunks": min(row.cached, row.prompt_length), "none": 0}[self._cuts]
        return CachedText.of(row.ids[: row.cached], row.cached if self._reuse == "all" else sure)

    def _reserve(self, rows: int, length: int) -> None:
        if self._budget is not None and self._left:
            longest = max(length, *(len(text.ids) for text in self._left.values()))
            if self._cache.bytes_for(max(rows, 1 + max(self._left)), longest) > self._budget:
                for slot in tuple(self._left):
                    self._empty(slot)
        self._cache.reserve(max(rows, len(self.rows) + 1), length)

    def _empty(self, slot: int) -> int:
        """Have nothing in ``slot``; returns the length of that."""
        self._save(slot)
        self._cache.truncate(slot, 0)
        return 0

    def _save(self, slot: int) -> None:
        """Keep the text that ``slot`` holds, if any, elsewhere."""
        text = self._left.pop(slot, None)
        if text is not None and self._prefixes is not None and self._prefixes.budget:
            self._prefixes.add(text, self._cache.save(slot))
