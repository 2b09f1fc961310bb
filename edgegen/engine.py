"""Engine: sequences in, token ids out, one step at a time."""

from collections.abc import Sequence as Ids
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from edgegen.logits import Candidates, LogitsContext
from edgegen.runner import Logits, ModelRunner
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
    """Drives a :class:`ModelRunner`. Not thread-safe: one caller at a time."""

    def __init__(self, runner: ModelRunner, prefill_chunk: int) -> None:
        self._runner = runner
        self._prefill_chunk = prefill_chunk
        self._scheduler = Scheduler(prefill_chunk)
        self._cache = runner.new_cache()

    def add(self, group: SequenceGroup) -> None:
        self._scheduler.add(group)

    def step(self) -> list[Update]:
        """Schedule, run, process, sample, watch, emit. No update: a prompt is not through yet, or nothing is left.

        What fails, fails the sequences it was done for (``Sequence.error``) and nobody else.
        """
        work = self._scheduler.schedule()
        if work is None:
            return []
        updates: list[Update] = []
        try:
            for sequence, logits in self._run(work):
                candidates = sequence.pipeline(Candidates(logits), LogitsContext(sequence.ids))
                token_id = sequence.sampler.sample(candidates, len(sequence.ids))
                sequence.append(token_id)
                updates.append(Update(sequence, (token_id,)))
        except Exception as error:
            for sequence in work.sequences:
                sequence.fail(error)
            updates = [Update(sequence, ()) for sequence in work.sequences]
        return updates

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
        return list(zip(work.decode, self._decode(work.decode), strict=True))

    def _admit(self, sequence: Sequence) -> None:
        """Give ``sequence`` the slot and room for its prompt and the first part of its answer."""
        expected = sequence.prompt_length + min(sequence.max_new_tokens, _EXPECTED_NEW_TOKENS) - 1
        sequence.slot = 0
        self._cache.reserve(1, expected)
        self._cache.truncate(sequence.slot, 0)
        sequence.started = sequence.started or perf_counter()

    def _prefill(self, sequence: Sequence, stop: int) -> Logits:
        # An interrupt can fall between a run and the note of it: what is not noted is done again.
        self._cache.truncate(sequence.slot, sequence.cached)
        logits = self._runner.prefill(self._cache, sequence.slot, sequence.ids[sequence.cached : stop])
        sequence.cached = stop
        return logits

    def _decode(self, sequences: Ids[Sequence]) -> Logits:
        """One token of each row; logits [rows, vocab]."""
        next_ids = np.array([[sequence.ids[sequence.cached]] for sequence in sequences], np.int64)
        for sequence in sequences:
            self._cache.truncate(sequence.slot, sequence.cached)
        logits = self._runner.decode(self._cache, next_ids)[:, -1]
        for sequence in sequences:
            sequence.cached += 1
        return logits

    def _rebuild(self, sequence: Sequence) -> None:
        """``use_cache=False``: compute all keys and values anew, in the very pieces they were first computed in.

        Other pieces would be as right, but not bit for bit the same, and a debugging mode must not differ by itself.
        """
        self._cache.truncate(sequence.slot, 0)
        cached, sequence.cached = sequence.cached, 0
        while not sequence.prefilled:
            self._prefill(sequence, chunk_end(sequence.cached, sequence.prompt_length, self._prefill_chunk))
        while sequence.cached < cached:
            self._decode([sequence])
