"""Engine: continuous batching. Admits requests, schedules and runs each step, samples, and emits the new token ids."""

from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Any

from edgegen.engine.executor import BatchExecutor, Clock
from edgegen.engine.scheduler import Scheduler
from edgegen.engine.sequence import Logits, Sequence, SequenceGroup, Update
from edgegen.engine.work import Decode, Failure, Verify, Work
from edgegen.errors import MemoryBudgetError
from edgegen.model.interfaces import Runner

Output = Mapping[Sequence, Logits] | BaseException
"""The logits of the sequences that ran, or what made the run fail."""

_MOST_LOGITS = 1 << 23
"""Proposals are so short that the logits of all their positions are at most this many numbers: 32 MiB."""


class Engine:
    """Continuous batching over one model runner. One thread at a time may step; any thread may add and cancel."""

    def __init__(
        self,
        runner: Runner[Any],
        prefill_chunk: int,
        *,
        max_batch_size: int = 8,
        kv_budget: int | None = None,
        prefix_budget: int | None = 0,
        deterministic: bool = False,
        max_pause: float | None = None,
        clock: Clock = perf_counter,
    ) -> None:
        """
        Args:
            prefill_chunk: most tokens of a prompt in one step.
            max_batch_size: most clients at once, and most sequences beside which one of them begins another request.
            kv_budget: bytes of KV cache of all sequences together.
            prefix_budget: bytes of KV cache kept of finished sequences whose slot is needed; 0 turns prefix caching
                off, and None keeps only what can stay in its slot.
            deterministic: bit-reproducible output, whatever else is in the batch.
            max_pause: most seconds of a step in which other sequences wait for their next token: chunks of prompts are
                shorter accordingly, where the runner computes the same bits in any chunks; None: they are not.
            clock: of ``max_pause``.
        """
        self._kv_budget = kv_budget
        self._max_pause = None if runner.chunk_invariance == "none" else max_pause
        self._clock = clock
        self._speculates = not deterministic or runner.chunk_invariance == "any"
        self._executor = BatchExecutor(
            runner,
            prefill_chunk,
            kv_budget=kv_budget,
            prefix_budget=prefix_budget,
            bit_exact=deterministic,
            clock=clock,
        )
        longest_proposal = min(prefill_chunk, max(16, _MOST_LOGITS // runner.vocab_size))
        limit = longest_proposal if runner.rollback_limit is None else runner.rollback_limit
        self._scheduler = Scheduler(
            longest_proposal,
            max_batch_size,
            self._executor.fits,
            longest_in_batch=limit if runner.verifies_batches else 0,
            prefill_chunk=prefill_chunk,
            shares_prefixes=prefix_budget != 0 and not (deterministic and runner.chunk_invariance == "none"),
        )

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self._scheduler.idle

    def step(self) -> list[Update]:
        """One step of all running requests. No update: a prompt is not complete yet, or nothing is left to do.

        An error ends the request that it belongs to (``Sequence.error``), and no other.
        """
        begin = self._clock()
        self._executor.retire()
        updates = [one for group, late in self._scheduler.expire() for one in self._emit(group, late)]
        step = self._scheduler.schedule()
        until = begin + self._max_pause if step.is_awaited and self._max_pause is not None else None
        for work in step.works:
            for group, output in self._run(work, until):
                updates += self._emit(group, self._advance(group, work, output))
        return updates

    def add(self, group: SequenceGroup) -> None:
        """Queue the sequences of a group.

        Raises:
            MemoryBudgetError: its KV cache can never fit.
        """
        count, length = len(group.sequences), group.longest
        if not self._executor.fits(count, length):
            needed, budget = self._executor.bytes_for(count, length), self._kv_budget or 0
            raise MemoryBudgetError(
                f"the request may need {needed / 1e6:,.1f} MB of KV cache ({_counted(count, 'sequence')} of up to "
                f"{_counted(length, 'position')}), and kv_budget allows {budget / 1e6:,.1f} MB: ask for fewer new "
                "tokens or answers, shorten the prompt, or raise kv_budget."
            )
        if not self._speculates:
            for sequence in group:
                sequence.proposers = ()
        self._scheduler.add(group)

    def cancel(self, group: SequenceGroup) -> None:
        """End ``group``, and interrupt a run that serves no other request."""
        group.cancel()
        self._executor.interrupt_abandoned()

    def cancel_all(self) -> None:
        """End every request, and emit its end: no step will."""
        for group in self._scheduler.groups:
            active = [sequence for sequence in group.choices if sequence.finish is None]
            self.cancel(group)
            self._emit(group, [Update(sequence, ()) for sequence in active])

    def fail_all(self, error: BaseException) -> None:
        """End every request with ``error``."""
        for group in self._scheduler.groups:
            self._emit(group, group.fail(error))

    def _run(self, work: Work | Failure, until: float | None) -> Iterator[tuple[SequenceGroup, Output]]:
        """Run ``work``, if possible until then; its output for each request.

        If a decode of several requests fails, each runs by itself.
        """
        if isinstance(work, Failure):
            yield work.group, work.error
            return
        output = self._output(work, until)
        if isinstance(work, Decode) and isinstance(output, BaseException) and len(work.groups) > 1:
            for group in work.groups:
                yield from self._run(work.of(group), until)
        else:
            for group in work.groups:
                yield group, output

    def _output(self, work: Work, until: float | None) -> Output:
        try:
            return self._executor.run(work, lambda: self._scheduler.demand, until)
        except BaseException as error:  # a native library's panic is no Exception
            return error

    def _advance(self, group: SequenceGroup, work: Work | Failure, output: Output) -> list[Update]:
        """Sample from the logits of ``group``, and watch for its end."""
        if isinstance(output, BaseException):
            return group.fail(output)
        try:
            if isinstance(work, Verify):
                return [self._accept(group, work.sequence, work.proposal, output[work.sequence])]
            if isinstance(work, Decode) and work.proposals:
                pairs = zip(work.sequences, work.proposals, strict=True)
                return [self._accept(group, one, proposal, output[one]) for one, proposal in pairs if one in group]
            own = {one: output[one] for one in group if one in output}
            return group.advance(own, self._executor.fork) if own else []
        except BaseException as error:
            return group.fail(error)

    def _accept(self, group: SequenceGroup, sequence: Sequence, proposal: tuple[int, ...], logits: Logits) -> Update:
        """Speculative decoding: sample at each position [vocab] of ``logits``, until a sample differs from the
        proposal. The ids are the model's own, whatever was proposed."""
        new_ids, taken = list[int](), 0
        for position, proposed in zip(logits, (*proposal, None), strict=True):
            taken += 1
            for update in group.advance({sequence: position}, self._executor.fork):
                new_ids += update.new_ids
            if sequence.finish is not None or sequence.ids[-1] != proposed:
                break
        self._executor.accept(sequence, taken)
        if proposal:
            sequence.verified(proposal, new_ids)
        return Update(sequence, tuple(new_ids))

    def _emit(self, group: SequenceGroup, updates: list[Update]) -> list[Update]:
        """Report the updates; the KV cache of a sequence that has ended is saved before its end is reported."""
        try:
            for update in updates:
                if update.sequence.params.keep:
                    self._executor.save(update.sequence)
                group.emit(update)
        except BaseException as error:
            updates = group.fail(error)
            for update in updates:
                group.emit(update)
        return updates


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
