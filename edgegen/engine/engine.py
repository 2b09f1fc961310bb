"""Engine: sequences in, token ids out, one step at a time."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from threading import RLock
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from edgegen.engine.cache_slots import Slots
from edgegen.engine.prefix_cache import PrefixCache
from edgegen.engine.scheduler import Decode, Prefill, ProposalError, Scheduler, Verify, chunk_end
from edgegen.engine.sequence import CANCELLED, Logits, Sequence, SequenceGroup, Update
from edgegen.errors import MemoryBudgetError
from edgegen.model.interfaces import Cache, Runner

W = TypeVar("W", Prefill, Verify, Decode)
R = TypeVar("R")

_EXPECTED_NEW_TOKENS = 256
"""Room made in the cache at first for the answer, where no budget says how much there is; longer ones make it grow."""

_MOST_LOGITS = 1 << 23
"""Proposals are so short that the logits of all their positions are not more than so many numbers: 32 MiB."""


class Engine:
    """Drives a runner of any kind. One caller at a time may step; anyone may add, and cancel, at any moment."""

    def __init__(
        self,
        runner: Runner[Any],
        prefill_chunk: int,
        *,
        max_batch_size: int = 8,
        kv_budget: int | None = None,
        prefix_budget: int | None = 0,
        deterministic: bool = False,
    ) -> None:
        """
        Args:
            prefill_chunk: most tokens of a prompt in one step.
            max_batch_size: most rows at work at once; a request of more runs by itself.
            kv_budget: bytes of keys and values of all rows together.
            prefix_budget: bytes of keys and values of texts that have ended and whose place is needed; 0 keeps none,
                and None those that can stay.
            deterministic: take no short cut that changes a bit.
        """
        self._runner = runner
        self._prefill_chunk = prefill_chunk
        self._kv_budget = kv_budget
        self._proposes = not deterministic or runner.cuts == "any"
        longest_proposal = min(prefill_chunk, max(16, _MOST_LOGITS // runner.vocab_size))
        self._scheduler = Scheduler(longest_proposal, max_batch_size, self._fits)
        self._cache: Cache = runner.new_cache(kv_budget)
        reuse = "sure" if deterministic else "all"
        prefixes = None if prefix_budget == 0 else PrefixCache(prefix_budget or 0)
        self._slots = Slots(self._cache, prefixes, runner.cuts, reuse, kv_budget)
        self._running: Prefill | Verify | Decode | None = None
        # Reentrant, for a finalizer may cancel at any moment of any thread, this one's too.
        self._guard = RLock()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self._scheduler.idle

    def add(self, group: SequenceGroup) -> None:
        """
        Raises:
            MemoryBudgetError: its keys and values can never fit.
        """
        rows, length = len(group.sequences), group.longest
        if not self._fits(rows, length):
            needed, budget = self._cache.bytes_for(rows, length), self._kv_budget or 0
            raise MemoryBudgetError(
                f"the request may need {needed / 1e6:,.1f} MB of keys and values ({_count(rows, 'row')} of up to "
                f"{_count(length, 'position')}), and kv_budget allows {budget / 1e6:,.1f} MB: ask for fewer new tokens "
                "or answers, shorten the prompt, or raise kv_budget."
            )
        if not self._proposes:
            for sequence in group:
                sequence.proposers = ()
        self._scheduler.add(group)

    def cancel(self, group: SequenceGroup) -> None:
        """End ``group``; a run that is under way for nobody else is broken off."""
        group.cancel()
        with self._guard:
            self._break_off()

    def cancel_all(self) -> None:
        """End every group, and say so: no step will."""
        for group in self._scheduler.groups:
            going = [sequence for sequence in group.choices if sequence.finish is None]
            self.cancel(group)
            self._emit(group, [Update(sequence, ()) for sequence in going])

    def fail_all(self, error: BaseException) -> None:
        """End every group with ``error``."""
        for group in self._scheduler.groups:
            self._emit(group, group.fail(error))

    def step(self) -> list[Update]:
        """Schedule, run, process, sample, watch, emit. No update: a prompt is not through yet, or nothing is left.

        What fails, fails the group it was done for (``Sequence.error``) and nobody else.
        """
        self._retire()
        updates: list[Update] = []
        for group, late in self._scheduler.expire(perf_counter()):
            updates += self._emit(group, late)
        try:
            step = self._scheduler.schedule()
        except ProposalError as error:
            return updates + self._emit(error.group, error.group.fail(error.__cause__ or error))
        if step.decode is not None:
            updates += self._decode(step.decode)
        if step.several is not None:
            updates += self._several(step.several)
        return updates

    def _decode(self, work: Decode) -> list[Update]:
        """One token of many rows, for each group to make use of. If the run fails, each group is run by itself."""
        try:
            logits = self._guarded(work, self._decode_rows)
        except BaseException as error:  # the panic of a library is no Exception
            if len(work.groups) == 1:
                return self._emit(work.groups[0], work.groups[0].fail(error))
            alone = [Decode((group,), tuple(row for row in work.rows if row in group)) for group in work.groups]
            return [update for part in alone for update in self._decode(part)]
        return [update for group in work.groups for update in self._advance(group, logits)]

    def _several(self, work: Prefill | Verify) -> list[Update]:
        """Several tokens of one row."""
        try:
            if isinstance(work, Verify):
                return self._emit(work.group, self._verify(work))
            logits = self._guarded(work, self._prefill_row)
        except BaseException as error:
            return self._emit(work.group, work.group.fail(error))
        return self._advance(work.group, logits)

    def _advance(self, group: SequenceGroup, logits: Mapping[Sequence, Logits]) -> list[Update]:
        """Let ``group`` make use of the logits of its rows, if there are any."""
        own = {row: logits[row] for row in group if row in logits}
        try:
            return self._emit(group, group.advance(own, self._slots.fork) if own else [])
        except BaseException as error:
            return self._emit(group, group.fail(error))

    def _verify(self, work: Verify) -> list[Update]:
        """Run a row with what is proposed behind it, and sample at each position for as long as that comes true."""
        row, start = work.row, work.row.cached
        logits = self._guarded(work, self._feed_proposal)
        new_ids, taken = list[int](), 0
        for position, proposed in zip(logits, (*work.proposal, None), strict=True):
            taken += 1
            for update in work.group.advance({row: position}, self._slots.fork):
                new_ids += update.new_ids
            if row.finish is not None or row.ids[-1] != proposed:
                break
        row.proposed[start] = (work.proposal, taken)
        row.cached = start + taken
        row.verified(work.proposal, new_ids)
        return [Update(row, tuple(new_ids))]

    def _guarded(self, work: W, run: Callable[[W], R]) -> R:
        """``run(work)``: whoever cancels meanwhile may interrupt it, and no other run."""
        with self._guard:
            self._running = work
            self._break_off()
        try:
            return run(work)
        finally:
            with self._guard:
                self._running = None
                self._runner.switch.resume()

    def _break_off(self) -> None:
        """Interrupt the run if nobody waits for it any more."""
        if self._running is not None and all(row.finish is not None for row in self._running.rows):
            self._runner.switch.interrupt()

    def _prefill_row(self, work: Prefill) -> Mapping[Sequence, Logits]:
        """Run a chunk; the logits for the row, and for those that share its prompt, when that is through."""
        row = work.row
        if row.slot < 0:
            self._slots.enter(row, *self._room(row))
            row.started = perf_counter()
        logits = self._prefill(row)
        if not row.prefilled:
            return {}
        sharing = [one for one in work.group if one.shares is row and one.finish is None and not one.prefilled]
        for one in sharing:
            self._slots.enter_as(one, row, *self._room(one))
            one.started, one.reused = row.started, row.reused
        return dict.fromkeys((row, *sharing), logits)

    def _decode_rows(self, work: Decode) -> Mapping[Sequence, Logits]:
        """Run one token of each row."""
        self._slots.pack(work.rows)
        for row in work.rows:
            if not row.use_cache:
                self._rebuild(row)
        rows = sorted(work.rows, key=lambda row: row.slot)
        return dict(zip(rows, self._next(rows), strict=True))

    def _feed_proposal(self, work: Verify) -> Logits:
        """Run the last token of a row and what is proposed behind it; logits [tokens, vocab]."""
        row = work.row
        if not row.use_cache:
            self._rebuild(row)
        return self._feed(row, (row.ids[row.cached], *work.proposal))

    def _emit(self, group: SequenceGroup, updates: list[Update]) -> list[Update]:
        """Tell the group; of rows that have ended, what is to be kept is kept before anybody hears of it."""
        for update in updates:
            row = update.sequence
            if row.keep and row.finish not in (None, CANCELLED) and row.slot >= 0:
                self._cache.truncate(row.slot, row.cached)
                row.kept = self._cache.save(row.slot)
            group.emit(update)
        return updates

    def _fits(self, rows: int, length: int) -> bool:
        return self._kv_budget is None or self._cache.bytes_for(rows, length) <= self._kv_budget

    def _room(self, row: Sequence) -> tuple[int, int]:
        """How many rows there will be, and of how many positions."""
        rows, longest = self._scheduler.demand
        if self._kv_budget is None:
            longest = row.prompt_length + min(row.max_new_tokens, _EXPECTED_NEW_TOKENS) - 1
        return rows, longest

    def _retire(self) -> None:
        """Free the slots of sequences that have ended."""
        for row in [row for row in self._slots.rows if row.finish is not None]:
            self._slots.leave(row)

    def _prefill(self, row: Sequence) -> Logits:
        # What a run that failed or was interrupted has appended is not noted, and done again.
        self._cache.truncate(row.slot, row.cached)
        stop = chunk_end(row.cached, row.prompt_length, self._prefill_chunk)
        if row.cached == stop - 1 > 0:  # an answer that goes on: a step as any other
            return self._next([row])[0]
        logits = self._runner.prefill(self._cache, row.slot, row.ids[row.cached : stop])
        row.cached = stop
        return logits

    def _next(self, rows: Ids[Sequence]) -> Logits:
        """One token for each of ``rows``, which lie in consecutive slots; logits [rows, vocab]."""
        next_ids = np.array([[row.ids[row.cached]] for row in rows], np.int64)
        for row in rows:
            self._cache.truncate(row.slot, row.cached)
        logits = self._runner.decode(self._cache, next_ids, rows[0].slot)[:, -1]
        for row in rows:
            row.cached += 1
        return logits

    def _feed(self, row: Sequence, ids: Ids[int]) -> Logits:
        """Several tokens for ``row``; logits [tokens, vocab]. How many of them count is for the caller to note."""
        self._cache.truncate(row.slot, row.cached)
        return self._runner.decode(self._cache, np.array([ids], np.int64), row.slot)[0]

    def _rebuild(self, row: Sequence) -> None:
        """``use_cache=False``: compute all keys and values anew, in the very pieces they were first computed in.

        Other pieces would be as right, but not bit for bit the same, and a debugging mode must not differ by itself.
        """
        cached, row.cached = row.cached, 0
        while not row.prefilled:
            self._prefill(row)
        while row.cached < cached:
            if row.cached in row.proposed:
                proposal, taken = row.proposed[row.cached]
                self._feed(row, (row.ids[row.cached], *proposal))
                row.cached += taken
            else:
                self._next([row])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
