"""Engine: sequences in, token ids out, one step at a time."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from threading import RLock
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from edgegen.runners import Cache, Runner
from edgegen.scheduler import Decode, Prefill, Scheduler, chunk_end
from edgegen.sequence import Logits, Sequence, SequenceGroup, Update

W = TypeVar("W", Prefill, Decode)
R = TypeVar("R")

_EXPECTED_NEW_TOKENS = 256
"""Room made in the cache at first for the answer; longer ones make it grow."""

_MOST_LOGITS = 1 << 23
"""Proposals are so short that the logits of all their positions are not more than so many numbers: 32 MiB."""


class Engine:
    """Drives a runner of any kind. One caller at a time may step; anyone may add, and cancel, at any moment."""

    def __init__(self, runner: Runner[Any], prefill_chunk: int) -> None:
        self._runner = runner
        self._prefill_chunk = prefill_chunk
        self._scheduler = Scheduler(prefill_chunk, min(prefill_chunk, max(16, _MOST_LOGITS // runner.vocab_size)))
        self._cache: Cache = runner.new_cache()
        self._rows: list[Sequence] = []  # by cache slot
        self._running: Prefill | Decode | None = None
        # Reentrant, for a finalizer may cancel at any moment of any thread, this one's too.
        self._guard = RLock()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self._scheduler.idle

    def add(self, group: SequenceGroup) -> None:
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
            _emit(group, [Update(sequence, ()) for sequence in going])

    def fail_all(self, error: BaseException) -> None:
        """End every group with ``error``."""
        for group in self._scheduler.groups:
            _emit(group, group.fail(error))

    def step(self) -> list[Update]:
        """Schedule, run, process, sample, watch, emit. No update: a prompt is not through yet, or nothing is left.

        What fails, fails the group it was done for (``Sequence.error``) and nobody else.
        """
        self._retire()
        updates = list[Update]()
        for group, late in self._scheduler.expire(perf_counter()):
            updates += _emit(group, late)
        try:
            work = self._scheduler.schedule()
        except BaseException as error:  # a proposer's
            group = self._scheduler.groups[0]
            return updates + _emit(group, group.fail(error))
        if work is None:
            return updates
        try:
            news = self._verify(work) if isinstance(work, Decode) and work.proposal else self._advance(work)
        except BaseException as error:  # the panic of a library is no Exception
            news = work.group.fail(error)
        return updates + _emit(work.group, news)

    def _advance(self, work: Prefill | Decode) -> list[Update]:
        """Run the graphs, and let the group make use of the logits, if that gives any."""
        if isinstance(work, Prefill):
            logits = self._guarded(work, self._prefill_row)
        else:
            logits = self._guarded(work, self._decode_rows)
        return work.group.advance(logits, self._fork) if logits else []

    def _verify(self, work: Decode) -> list[Update]:
        """Run a row with what is proposed behind it, and sample at each position for as long as that comes true."""
        (row,) = work.rows
        start = row.cached
        logits = self._guarded(work, self._decode_proposal)
        new_ids, taken = list[int](), 0
        for position, proposed in zip(logits, (*work.proposal, None), strict=True):
            taken += 1
            for update in work.group.advance({row: position}, self._fork):
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
            self._admit(row, work.group)
        logits = self._prefill(row, work.stop)
        if not row.prefilled:
            return {}
        sharing = [one for one in work.group if one.shares is row and one.finish is None and not one.prefilled]
        for one in sharing:
            self._admit(one, work.group)
            self._fork(row, one)
            one.started = row.started
        return dict.fromkeys((row, *sharing), logits)

    def _decode_rows(self, work: Decode) -> Mapping[Sequence, Logits]:
        """Run one token of each row."""
        for row in work.rows:
            if not row.use_cache:
                self._rebuild(row)
        rows = sorted(work.rows, key=lambda row: row.slot)
        return dict(zip(rows, self._decode(rows), strict=True))

    def _decode_proposal(self, work: Decode) -> Logits:
        """Run the last token of a row and what is proposed behind it; logits [tokens, vocab]."""
        (row,) = work.rows
        if not row.use_cache:
            self._rebuild(row)
        return self._feed(row, (row.ids[row.cached], *work.proposal))

    def _admit(self, row: Sequence, group: SequenceGroup) -> None:
        """Give ``row`` the next slot, with room for its group's prompt and the first part of the answers."""
        expected = row.prompt_length + min(row.max_new_tokens, _EXPECTED_NEW_TOKENS) - 1
        slots = len(self._rows) + sum(one.slot < 0 and one.finish is None for one in group)
        self._cache.reserve(max(slots, len(self._rows) + 1), expected)
        row.slot = len(self._rows)
        self._cache.truncate(row.slot, 0)
        self._rows.append(row)
        row.started = perf_counter()

    def _retire(self) -> None:
        """Free the slots of sequences that have ended; the last row moves into each gap, so that rows stay packed."""
        for row in [row for row in self._rows if row.finish is not None]:
            slot = row.slot
            self._cache.compact(slot, len(self._rows))
            moved = self._rows.pop()
            if moved is not row:
                self._rows[slot], moved.slot = moved, slot

    def _fork(self, source: Sequence, target: Sequence) -> None:
        """Give ``target``, which has a slot, the keys and values of ``source``."""
        self._cache.fork(source.slot, target.slot)
        target.cached = source.cached
        target.proposed = dict(source.proposed)

    def _prefill(self, row: Sequence, stop: int) -> Logits:
        # What a run that failed or was interrupted has appended is not noted, and done again.
        self._cache.truncate(row.slot, row.cached)
        logits = self._runner.prefill(self._cache, row.slot, row.ids[row.cached : stop])
        row.cached = stop
        return logits

    def _decode(self, rows: Ids[Sequence]) -> Logits:
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
            self._prefill(row, chunk_end(row.cached, row.prompt_length, self._prefill_chunk))
        while row.cached < cached:
            if row.cached in row.proposed:
                proposal, taken = row.proposed[row.cached]
                self._feed(row, (row.ids[row.cached], *proposal))
                row.cached += taken
            else:
                self._decode([row])


def _emit(group: SequenceGroup, updates: list[Update]) -> list[Update]:
    for update in updates:
        group.emit(update)
    return updates
