"""CacheSlots: maps running sequences to slots of the KV cache, and keeps finished ones there for prefix caching.

Running sequences are packed into the first slots, so a decode step reads one contiguous view. After them, the KV cache
of finished sequences stays in its slot until the slot is needed: a conversation that continues reuses it, and nothing
is copied. When the slot is needed, its content moves to the :class:`PrefixCache`.
"""

from typing import Literal

import numpy as np

from edgegen.engine.prefix_cache import CachedPrefix, PrefixCache, is_continued
from edgegen.engine.sequence import Sequence
from edgegen.model.cache import Cache
from edgegen.model.interfaces import ChunkInvariance
from edgegen.model.kv_snapshot import KVSnapshot
from edgegen.speculation.proposer import CacheReader

_LEAST = 8
"""Fewer shared ids are not worth reusing."""

Reuse = Literal["all", "bit_exact"]
"""Which part of a cached sequence others reuse: all, or what they would compute themselves, bit for bit."""


class CacheSlots:
    """The slots of running sequences, and those of finished ones after them.

    Attributes:
        sequences: the running sequences, by slot.
    """

    def __init__(
        self,
        cache: Cache,
        prefixes: PrefixCache | None,
        chunk_invariance: ChunkInvariance,
        reuse: Reuse,
        budget: int | None,
    ) -> None:
        """``prefixes``: receives finished sequences whose slot is needed; None: nothing finished is kept at all.

        ``budget``: bytes of KV cache.
        """
        self.sequences: list[Sequence] = []
        self._cache = cache
        self._prefixes = prefixes
        self._chunk_invariance = chunk_invariance
        self._reuse = reuse
        self._budget = budget
        self._finished: dict[int, CachedPrefix] = {}  # by slot, after those of ``sequences``

    def allocate(self, sequence: Sequence, count: int, length: int) -> None:
        """Give ``sequence`` the next slot, filled with the longest cached prefix of its prompt.

        ``count``, ``length``: how many sequences there will be, of how many positions; room is made for them.
        """
        self._reserve(count, length)
        slot = len(self.sequences)
        filled = self._fill(slot, sequence) if sequence.params.on_hidden is None else self._empty(slot)
        sequence.kv.cached = sequence.kv.reused = filled
        self._seat(sequence)

    def allocate_empty(self, sequence: Sequence, count: int, length: int) -> None:
        """Give ``sequence`` the next slot, empty."""
        self._reserve(count, length)
        self._empty(len(self.sequences))
        self._seat(sequence)

    def fork(self, source: Sequence, target: Sequence) -> None:
        """Copy the KV cache of ``source`` to ``target``, which has a slot."""
        self._cache.fork(source.kv.slot, target.kv.slot)
        target.kv.cached = source.kv.cached

    def free(self, sequence: Sequence) -> None:
        """Free the slot of a sequence that has ended; the last sequence moves there, so that they stay packed."""
        slot, last = sequence.kv.slot, len(self.sequences) - 1
        length = self._cache.truncatable_length(slot, sequence.kv.cached)
        reusable = sequence.error is None and sequence.params.on_hidden is None and length >= _LEAST
        if self._prefixes is not None and reusable:
            self._cache.truncate(slot, length)
            if slot != last:
                self._cache.swap(slot, last)
            self._finished[last] = self._reusable(sequence, length)
        else:
            self._cache.compact(slot, last + 1)
        moved = self.sequences.pop()
        if moved is not sequence:
            self.sequences[slot], moved.kv.slot = moved, slot

    def pack(self, sequences: tuple[Sequence, ...]) -> None:
        """Move ``sequences`` to the first slots."""
        outside = [one for one in sequences if one.kv.slot >= len(sequences)]
        if outside:
            inside = [one for one in self.sequences[: len(sequences)] if one not in sequences]
            for one, other in zip(outside, inside, strict=True):
                self._cache.swap(one.kv.slot, other.kv.slot)
                one.kv.slot, other.kv.slot = other.kv.slot, one.kv.slot
                self.sequences[one.kv.slot], self.sequences[other.kv.slot] = one, other

    def _seat(self, sequence: Sequence) -> None:
        sequence.kv.slot = len(self.sequences)
        self.sequences.append(sequence)
        for proposer in sequence.proposers:
            if isinstance(proposer, CacheReader):
                proposer.read_from(self._cache, lambda: sequence.kv.slot)

    def _fill(self, slot: int, sequence: Sequence) -> int:
        """Fill ``slot`` with the longest cached prefix of the prompt; returns its length."""
        prefix = sequence.params.prefix
        if prefix is not None and (kept := self._cache.restorable_length(*prefix)):
            self._evict(slot)
            self._cache.restore(slot, prefix.snapshot, kept)
            return kept
        length, source = self._longest(sequence)
        if source is None:
            return self._empty(slot)
        if self._prefixes is not None and isinstance(source, KVSnapshot):
            self._prefixes.use(source, length)
            self._evict(slot)
            self._cache.restore(slot, source, length)
            return length
        assert isinstance(source, int)
        if source in self._finished and is_continued(length, self._finished[source]):
            del self._finished[source]
            if source != slot:
                self._cache.swap(source, slot)
                if slot in self._finished:
                    self._finished[source] = self._finished.pop(slot)
        else:
            self._evict(slot)
            if source != slot:
                self._cache.fork(source, slot)
        self._cache.truncate(slot, length)
        return length

    def _longest(self, sequence: Sequence) -> tuple[int, int | KVSnapshot | None]:
        """The length of the longest cached prefix of the prompt, and the slot or the snapshot that has it."""
        # At least two ids are left to run: a single one would be computed by other kernels than several.
        ids = np.array(sequence.ids[: sequence.params.prompt_length - 2], np.int64)
        if self._prefixes is None or len(ids) < _LEAST:
            return 0, None
        cached = self._finished | {other.kv.slot: self._reusable(other, other.kv.cached) for other in self.sequences}
        shared = {slot: prefix.shared_with(ids) for slot, prefix in cached.items()}
        in_slots = [(self._cache.truncatable_length(slot, most), slot) for slot, most in shared.items()]
        length, slot = max(in_slots, default=(0, 0))
        saved, snapshot = self._prefixes.find(ids, self._cache.restorable_length)
        sequence.kv.diverges_at = max([self._prefixes.longest(ids), *shared.values()])
        if max(length, saved) < _LEAST:
            return 0, None
        return (length, slot) if length >= saved else (saved, snapshot)

    def _reusable(self, sequence: Sequence, cached: int) -> CachedPrefix:
        """The first ``cached`` ids of ``sequence``, which are in its slot."""
        prompt = min(cached, sequence.params.prompt_length)
        bit_exact = {"any": cached, "chunks": prompt, "none": 0}[self._chunk_invariance]
        return CachedPrefix.of(sequence.ids[:cached], cached if self._reuse == "all" else bit_exact)

    def _reserve(self, count: int, length: int) -> None:
        # The scheduler admits by what running sequences need alone: finished ones give way, or growth would be beyond
        # the budget. They are moved to the prefix cache, if there is one.
        if self._budget is not None and self._finished:
            longest = max(length, *(len(prefix.ids) for prefix in self._finished.values()))
            if self._cache.bytes_for(max(count, 1 + max(self._finished)), longest) > self._budget:
                for slot in tuple(self._finished):
                    self._empty(slot)
        self._cache.reserve(max(count, len(self.sequences) + 1), length)

    def _empty(self, slot: int) -> int:
        """Evict and clear ``slot``; returns its length, 0."""
        self._evict(slot)
        self._cache.truncate(slot, 0)
        return 0

    def _evict(self, slot: int) -> None:
        """Move the finished sequence in ``slot``, if any, to the prefix cache."""
        prefix = self._finished.pop(slot, None)
        if prefix is not None and self._prefixes is not None and self._prefixes.budget:
            self._prefixes.add(prefix, self._cache.save(slot))
