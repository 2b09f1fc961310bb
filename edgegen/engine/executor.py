"""BatchExecutor: runs a step's work on the model. Owns the runner, the KV cache and the cache slots."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from threading import RLock
from time import perf_counter
from typing import Any

import numpy as np

from edgegen.engine.cache_slots import CacheSlots
from edgegen.engine.chunked_prefill import chunk_end
from edgegen.engine.finish import CANCELLED
from edgegen.engine.prefix_cache import PrefixCache
from edgegen.engine.replay import Replay
from edgegen.engine.scheduler import Decode, Prefill, Verify, Work
from edgegen.engine.sequence import Logits, Sequence
from edgegen.model.interfaces import Cache, Runner

Demand = Callable[[], tuple[int, int]]
"""How many sequences are running, and the most positions one of them may have in the KV cache."""

_EXPECTED_NEW_TOKENS = 256
"""Room made in the cache at first for the answer, where no budget says how much there is; longer ones make it grow."""

_CHECKPOINT_EVERY = 256
"""Tokens of an answer after which there is a checkpoint, so that a failed run does not cost all of them."""

_MOST_CARRIED = 8
"""Tokens that are run again together with the next ones; more are a run of their own, and a checkpoint."""


class BatchExecutor:
    """Runs prefill chunks, decode batches and proposals. Sequences that have ended leave at :meth:`retire`."""

    def __init__(
        self,
        runner: Runner[Any],
        prefill_chunk: int,
        *,
        kv_budget: int | None = None,
        prefix_budget: int | None = 0,
        bit_exact: bool = False,
    ) -> None:
        """The arguments are those of :class:`Engine`."""
        self._runner = runner
        self._prefill_chunk = prefill_chunk
        self._kv_budget = kv_budget
        self._cache: Cache = runner.new_cache(kv_budget)
        prefixes = None if prefix_budget == 0 else PrefixCache(prefix_budget or 0)
        reuse = "bit_exact" if bit_exact else "all"
        self._slots = CacheSlots(self._cache, prefixes, runner.chunk_invariance, reuse, kv_budget)
        self._replay = Replay()
        self._running: Work | None = None
        # Reentrant: a finalizer may cancel at any moment in any thread, in this one too.
        self._guard = RLock()

    def bytes_for(self, rows: int, length: int) -> int:
        """Bytes of KV cache of ``rows`` sequences of ``length`` positions."""
        return self._cache.bytes_for(rows, length)

    def fits(self, rows: int, length: int) -> bool:
        """Whether ``rows`` sequences of ``length`` positions are within the budget."""
        return self._kv_budget is None or self._cache.bytes_for(rows, length) <= self._kv_budget

    def run(self, work: Work, demand: Demand) -> Mapping[Sequence, Logits]:
        """Run ``work``; the logits of each of its sequences, valid until the next run.

        Decode: [vocab]. Verify: [tokens, vocab]. Prefill: [vocab], once the prompt is complete, for the sequence and
        for those that share its prompt; before that there are none.
        """
        with self._guard:
            self._running = work
            self.interrupt_abandoned()
        try:
            if isinstance(work, Decode):
                return self._decode(work)
            return self._verify(work) if isinstance(work, Verify) else self._prefill(work, demand)
        finally:
            with self._guard:
                self._running = None
                self._runner.switch.resume()

    def interrupt_abandoned(self) -> None:
        """Interrupt the current run, if all its sequences have been cancelled."""
        with self._guard:
            if self._running is not None and all(row.finish is not None for row in self._running.rows):
                self._runner.switch.interrupt()

    def accept(self, work: Verify, taken: int) -> None:
        """Of the tokens of ``work``, keep the first ``taken`` in the KV cache."""
        if not work.row.params.use_cache:
            self._replay.note(work.row, work.proposal, taken)
        work.row.kv.cached += taken

    def fork(self, source: Sequence, target: Sequence) -> None:
        """Copy the KV cache of ``source`` to ``target``, which has a slot."""
        self._slots.fork(source, target)
        if not target.params.use_cache:
            self._replay.fork(source, target)

    def save(self, row: Sequence) -> None:
        """Save the KV cache of a sequence that has ended, unless it was cancelled or never ran."""
        if row.finish not in (None, CANCELLED) and row.kv.slot >= 0:
            self._settle(row)
            row.kv.kept = self._cache.save(row.kv.slot)

    def retire(self) -> None:
        """Free the slots of sequences that have ended."""
        for row in [row for row in self._slots.rows if row.finish is not None]:
            self._slots.free(row)
            self._replay.forget(row)

    def prefill(self, row: Sequence) -> Logits:
        """The next chunk of a prompt; logits [vocab]."""
        self._settle(row)
        parts = row.kv.parts_at if row.kv.parts_at > row.kv.cached + 1 else 0
        stop = chunk_end(row.kv.cached, parts or row.params.prompt_length, self._prefill_chunk)
        single = row.kv.cached == stop - 1 > 0  # an answer that is continued: a decode step like any other
        if single and row.params.on_hidden is None:
            return self.decode([row])[0]
        ids = row.ids[row.kv.cached : stop]
        self._cache.checkpoint(row.kv.slot)  # the end of the text before
        logits = self._runner.prefill(self._cache, row.kv.slot, ids, row.params.on_hidden)
        row.kv.cached = stop
        self._cache.checkpoint(row.kv.slot, sought=stop == parts or row.prefilled)
        return logits

    def decode(self, rows: Ids[Sequence]) -> Logits:
        """One token of each of ``rows``, which are in consecutive slots; logits [rows, vocab]."""
        next_ids = [row.ids[row.kv.cached] for row in rows]
        if len(rows) == 1:
            logits = self.feed(rows[0], next_ids, checkpoint=False)
        else:
            for row in rows:
                self._settle(row)
            logits = self._runner.decode(self._cache, np.array(next_ids, np.int64)[:, None], rows[0].kv.slot)[:, -1]
        for row in rows:
            row.kv.cached += 1
            if row.kv.cached % _CHECKPOINT_EVERY == 0:
                self._cache.checkpoint(row.kv.slot)
        return logits

    def feed(self, row: Sequence, ids: Ids[int], *, checkpoint: bool = True) -> Logits:
        """Several tokens of ``row``; logits [tokens, vocab]. How many of them stay, :meth:`accept` says.

        ``checkpoint``: the row will have to come back if some do not stay.
        """
        again = tuple(self._go_back(row))
        if len(again) > _MOST_CARRIED:
            self._runner.prefill(self._cache, row.kv.slot, again)
            again = ()
        if checkpoint and not again:
            self._cache.checkpoint(row.kv.slot)
        return self._runner.decode(self._cache, np.array([[*again, *ids]], np.int64), row.kv.slot)[0, len(again) :]

    def _settle(self, row: Sequence) -> None:
        """Let the slot of ``row`` hold what is cached of it and no more."""
        if again := self._go_back(row):
            self._runner.prefill(self._cache, row.kv.slot, again)

    def _go_back(self, row: Sequence) -> Ids[int]:
        """Forget what the slot of ``row`` holds beyond what is cached of it: rejected proposals, and what a run that
        failed or was interrupted has left.

        Where the cache cannot go back to just there, it goes back farther. The ids between are run again but for the
        last ones, which are returned.
        """
        slot, cached = row.kv.slot, row.kv.cached
        start = self._cache.reach(slot, cached)
        self._cache.truncate(slot, start)
        while cached - start > self._prefill_chunk:
            self._runner.prefill(self._cache, slot, row.ids[start : start + self._prefill_chunk])
            start += self._prefill_chunk
            self._cache.checkpoint(slot)
        return row.ids[start:cached]

    def _prefill(self, work: Prefill, demand: Demand) -> Mapping[Sequence, Logits]:
        row = work.row
        if row.kv.slot < 0:
            self._slots.allocate(row, *self._room(row, demand))
            row.times.started = perf_counter()
        logits = self.prefill(row)
        if not row.prefilled:
            return {}
        sharing = [one for one in work.group if one.prefill_source is row and one.finish is None and not one.prefilled]
        for one in sharing:
            self._slots.allocate_empty(one, *self._room(one, demand))
            self.fork(row, one)
            one.times.started, one.kv.reused = row.times.started, row.kv.reused
        return dict.fromkeys((row, *sharing), logits)

    def _decode(self, work: Decode) -> Mapping[Sequence, Logits]:
        self._slots.pack(work.rows)
        for row in work.rows:
            if not row.params.use_cache:
                self._replay.rebuild(row, self)
        rows = sorted(work.rows, key=lambda row: row.kv.slot)
        return dict(zip(rows, self.decode(rows), strict=True))

    def _verify(self, work: Verify) -> Mapping[Sequence, Logits]:
        row = work.row
        if not row.params.use_cache:
            self._replay.rebuild(row, self)
        return {row: self.feed(row, (row.ids[row.kv.cached], *work.proposal))}

    def _room(self, row: Sequence, demand: Demand) -> tuple[int, int]:
        """How many sequences to make room for, and of how many positions."""
        rows, longest = demand()
        if self._kv_budget is None:
            longest = row.params.prompt_length + min(row.params.max_new_tokens, _EXPECTED_NEW_TOKENS) - 1
        return rows, longest
