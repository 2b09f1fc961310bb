"""Engine: sequences in, token ids out, one step at a time."""

from collections.abc import Sequence as Ids
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from edgegen.errors import LogitsError
from edgegen.logits import Candidates, LogitsContext
from edgegen.runner import Logits
from edgegen.runners import Cache, Runner
from edgegen.scheduler import Scheduler, Work, chunk_end
from edgegen.sequence import Sequence, SequenceGroup

_EXPECTED_NEW_TOKENS = 256
"""Room made in the cache at first for the answer; longer ones make it grow."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a step did to one sequence: the ids it appended."""

    sequence: Sequence
    new_ids: tuple[int, ...]


class Engine:
    """Drives a runner of any kind. Not thread-safe: one caller at a time."""

    def __init__(self, runner: Runner[Any], prefill_chunk: int) -> None:
        self._runner = runner
        self._prefill_chunk = prefill_chunk
        self._scheduler = Scheduler(prefill_chunk)
        self._cache: Cache = runner.new_cache()
        self._rows: list[Sequence] = []  # by cache slot

    def add(self, group: SequenceGroup) -> None:
        self._scheduler.add(group)

    def step(self) -> list[Update]:
        """Schedule, run, process, sample, watch, emit. No update: a prompt is not through yet, or nothing is left.

        What fails, fails the sequences it was done for (``Sequence.error``) and nobody else.
        """
        self._retire()
        work = self._scheduler.schedule()
        if work is None:
            return []
        before = [(sequence, sequence.cached, len(sequence.ids)) for sequence in work.sequences]
        try:
            return [self._extend(sequence, logits) for sequence, logits in self._run(work)]
        except Exception as error:
            for sequence in work.sequences:
                sequence.fail(error)
            return [Update(sequence, ()) for sequence in work.sequences]
        except BaseException:
            # An interrupt: whoever got no token in this step gets it in the next, from the same computation.
            for sequence, cached, length in before:
                if len(sequence.ids) == length:
                    sequence.cached = cached
            raise

    def _extend(self, sequence: Sequence, logits: Logits) -> Update:
        """Process, sample, watch: one more id for ``sequence`` from its logits [vocab]."""
        try:
            candidates = sequence.pipeline(Candidates(logits), LogitsContext(sequence.ids, sequence.prompt_length))
            token_id = sequence.sampler.sample(candidates, len(sequence.ids))
            sequence.append(token_id)
        except Exception as error:
            where = f"at token {len(sequence.ids) - sequence.prompt_length + 1} of the answer"
            sequence.fail(LogitsError(f"{where}, {error}") if isinstance(error, LogitsError) else error)
            return Update(sequence, ())
        return Update(sequence, (token_id,))

    def _run(self, work: Work) -> list[tuple[Sequence, Logits]]:
        """Run the graphs; the sequences that get a token in this step, each with its logits [vocab]."""
        if work.prefill is not None:
            sequence = work.prefill
            if sequence.slot < 0:
                self._admit(sequence)
            logits = self._prefill(sequence, work.stop)
            return [(sequence, logits)] if sequence.prefilled else []
        for sequence in work.decode:
            if not sequence.use_cache:
                self._rebuild(sequence)
        rows = sorted(work.decode, key=lambda sequence: sequence.slot)
        return list(zip(rows, self._decode(rows), strict=True))

    def _admit(self, sequence: Sequence) -> None:
        """Give ``sequence`` the next slot, with room for its prompt and the first part of its answer."""
        expected = sequence.prompt_length + min(sequence.max_new_tokens, _EXPECTED_NEW_TOKENS) - 1
        self._cache.reserve(len(self._rows) + 1, expected)
        sequence.slot = len(self._rows)
        self._cache.truncate(sequence.slot, 0)
        self._rows.append(sequence)
        sequence.started = perf_counter()

    def _retire(self) -> None:
        """Free the slots of sequences that have ended; the last row moves into each gap, so that rows stay packed."""
        for sequence in [row for row in self._rows if row.finish is not None]:
            slot = sequence.slot
            self._cache.compact(slot, len(self._rows))
            moved = self._rows.pop()
            if moved is not sequence:
                self._rows[slot], moved.slot = moved, slot

    def _prefill(self, sequence: Sequence, stop: int) -> Logits:
        # An interrupt can fall between a run and the note of it: what is not noted is done again.
        self._cache.truncate(sequence.slot, sequence.cached)
        logits = self._runner.prefill(self._cache, sequence.slot, sequence.ids[sequence.cached : stop])
        sequence.cached = stop
        return logits

    def _decode(self, rows: Ids[Sequence]) -> Logits:
        """One token for each of ``rows``, which lie in consecutive slots; logits [rows, vocab]."""
        next_ids = np.array([[sequence.ids[sequence.cached]] for sequence in rows], np.int64)
        for sequence in rows:
            self._cache.truncate(sequence.slot, sequence.cached)
        logits = self._runner.decode(self._cache, next_ids, rows[0].slot)[:, -1]
        for sequence in rows:
            sequence.cached += 1
        return logits

    def _rebuild(self, sequence: Sequence) -> None:
        """``use_cache=False``: compute all keys and values anew, in the very pieces they were first computed in.

        Other pieces would be as right, but not bit for bit the same, and a debugging mode must not differ by itself.
        """
        cached, sequence.cached = sequence.cached, 0
        while not sequence.prefilled:
            self._prefill(sequence, chunk_end(sequence.cached, sequence.prompt_length, self._prefill_chunk))
        while sequence.cached < cached:
            self._decode([sequence])
