"""BatchExecutor: runs a step's work on the model. Owns the runner, the KV cache and the cache slots.

Tokens reach the model in five ways, each with its own rule of what it leaves in a slot:

- A chunk of a prompt: prefill, then a checkpoint at its end. The last token of a continued answer is not one: it is
  decoded, as it was the first time.
- One token of one sequence: decode, with rejected tokens of the run before in front of it.
- One token of each sequence of a batch: decode. Rejected tokens are runs before it, as every slot gets one.
- A proposal of one sequence: decode of several tokens, after a mark to which the slot returns if some are rejected.
- Proposals of a batch: decode of rows of one length, the shorter ones filled up; nothing is marked.

After the last two the slot holds more than counts: :meth:`BatchExecutor.accept` says how much does, and the next run of
the sequence drops the rest.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from functools import partial
from threading import RLock
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.engine.cache_slots import CacheSlots
from edgegen.engine.chunked_prefill import PrefillPace, chunk_end
from edgegen.engine.finish import CANCELLED
from edgegen.engine.prefix_cache import PrefixCache
from edgegen.engine.sequence import Logits, Sequence
from edgegen.engine.work import Decode, Prefill, Verify, Work
from edgegen.model.cache import Cache
from edgegen.model.interfaces import Runner
from edgegen.speculation.proposer import OnHiddenAt

Demand = Callable[[], tuple[int, int]]
"""How many sequences are running, and the most positions one of them may have in the KV cache."""

Clock = Callable[[], float]
"""A clock in seconds, which never goes back."""

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
        clock: Clock = perf_counter,
    ) -> None:
        """The arguments are those of :class:`Engine`."""
        self._runner = runner
        self._prefill_chunk = prefill_chunk
        self._pace = PrefillPace(prefill_chunk)
        self._clock = clock
        self._kv_budget = kv_budget
        self._cache: Cache = runner.new_cache(kv_budget)
        prefixes = None if prefix_budget == 0 else PrefixCache(prefix_budget or 0)
        reuse = "bit_exact" if bit_exact else "all"
        self._slots = CacheSlots(self._cache, prefixes, runner.chunk_invariance, reuse, kv_budget)
        self._running: Work | None = None
        # Reentrant: a finalizer may cancel at any moment in any thread, in this one too.
        self._guard = RLock()

    def bytes_for(self, count: int, length: int) -> int:
        """Bytes of KV cache of ``count`` sequences of ``length`` positions."""
        return self._cache.bytes_for(count, length)

    def fits(self, count: int, length: int) -> bool:
        """Whether ``count`` sequences of ``length`` positions are within the budget."""
        return self._kv_budget is None or self._cache.bytes_for(count, length) <= self._kv_budget

    def run(self, work: Work, demand: Demand, until: float | None = None) -> Mapping[Sequence, Logits]:
        """Run ``work``; the logits of each of its sequences, valid until the next run.

        ``until``: when a chunk of a prompt should be over, by the engine's clock; None: no sequence waits for it.

        Decode: [vocab]; Verify, and a decode with proposals: [tokens, vocab]. Prefill: [vocab], once the prompt is
        complete, for the sequence and for those that share its prompt; before that there are none.
        """
        with self._guard:
            self._running = work
            self.interrupt_abandoned()  # a caller that cancelled before this line found no run to interrupt
        try:
            if isinstance(work, Prefill):
                return self._run_prefill(work, demand, until)
            return self._run_decode(work) if isinstance(work, Decode) else self._run_verify(work)
        finally:
            with self._guard:  # or an interrupt that is meant for this run would hit the next one
                self._running = None
                self._runner.switch.resume()

    def interrupt_abandoned(self) -> None:
        """Interrupt the current run, if all its sequences have been cancelled."""
        with self._guard:
            if self._running is not None and all(one.finish is not None for one in self._running.sequences):
                self._runner.switch.interrupt()

    def accept(self, sequence: Sequence, taken: int) -> None:
        """Of a sequence's last token and the proposal after it, keep the first ``taken`` in the KV cache."""
        sequence.kv.cached += taken
        if sequence.kv.cached % _CHECKPOINT_EVERY < taken:
            self._cache.checkpoint(sequence.kv.slot)

    def fork(self, source: Sequence, target: Sequence) -> None:
        """Copy the KV cache of ``source`` to ``target``, which has a slot."""
        self._slots.fork(source, target)

    def save(self, sequence: Sequence) -> None:
        """Save the KV cache of a sequence that has ended, unless it was cancelled or never ran."""
        if sequence.finish not in (None, CANCELLED) and sequence.kv.slot >= 0:
            self._roll_back(sequence)
            sequence.kv.kept = self._cache.save(sequence.kv.slot)

    def retire(self) -> None:
        """Free the slots of sequences that have ended."""
        for sequence in [one for one in self._slots.sequences if one.finish is not None]:
            self._slots.free(sequence)

    def _run_prefill(self, work: Prefill, demand: Demand, until: float | None) -> Mapping[Sequence, Logits]:
        sequence = work.sequence
        if sequence.kv.slot < 0:
            self._slots.allocate(sequence, *self._room(sequence, demand))
            sequence.times.started = perf_counter()
        now, before = self._clock(), sequence.kv.cached
        # Each prompt has its own: how long a chunk takes depends on what is before it.
        self._pace = sequence.kv.pace = sequence.kv.pace or self._pace.copy()
        logits = self._prefill(sequence, self._pace.size(None if until is None else until - now))
        self._pace.ran(sequence.kv.cached - before, self._clock() - now)
        if logits is None or not sequence.prefilled:
            return {}
        sharing = [
            one for one in work.group if one.prefill_source is sequence and one.finish is None and not one.prefilled
        ]
        for one in sharing:
            self._slots.allocate_empty(one, *self._room(one, demand))
            self.fork(sequence, one)
            one.times.started, one.kv.reused = sequence.times.started, sequence.kv.reused
        return dict.fromkeys((sequence, *sharing), logits)

    def _run_decode(self, work: Decode) -> Mapping[Sequence, Logits]:
        self._slots.pack(work.sequences)
        sequences = sorted(work.sequences, key=lambda one: one.kv.slot)
        if work.proposals:
            return self._verify_batch(sequences, dict(zip(work.sequences, work.proposals, strict=True)))
        return dict(zip(sequences, self._decode(sequences), strict=True))

    def _verify_batch(
        self, sequences: Ids[Sequence], proposals: Mapping[Sequence, Ids[int]]
    ) -> Mapping[Sequence, Logits]:
        """The last token of each of ``sequences``, which are in consecutive slots, and its proposal; the logits
        [tokens, vocab] of these. Shorter ones are filled up: ids are [sequences, tokens]."""
        for one in sequences:
            self._roll_back(one)
        tokens = 1 + max(map(len, proposals.values()))
        ids = np.zeros((len(sequences), tokens), np.int64)
        for row, one in zip(ids, sequences, strict=True):
            known = (one.ids[one.kv.cached], *proposals[one])
            row[: len(known)], row[len(known) :] = known, known[-1]
        lengths = [1 + len(proposals[one]) for one in sequences]
        on_hidden = partial(_tell, sequences, lengths=lengths) if any(one.on_hidden for one in sequences) else None
        logits = self._runner.decode(self._cache, ids, sequences[0].kv.slot, on_hidden)
        return {one: of_one[:length] for one, of_one, length in zip(sequences, logits, lengths, strict=True)}

    def _run_verify(self, work: Verify) -> Mapping[Sequence, Logits]:
        sequence = work.sequence
        return {sequence: self._decode_many(sequence, (sequence.ids[sequence.kv.cached], *work.proposal))}

    def _prefill(self, sequence: Sequence, size: int) -> Logits | None:
        """The next chunk of a prompt, of ``size`` tokens at most; its logits [vocab], which the last chunk has.

        Leaves in the slot the prompt up to the end of the chunk, and a checkpoint there.
        """
        kv, prompt_length = sequence.kv, sequence.params.prompt_length
        # Where the prompt diverges from a cached text a chunk ends, so that the next prompt finds a checkpoint there.
        diverges_at = kv.diverges_at if kv.diverges_at > kv.cached + 1 else 0
        stop = chunk_end(kv.cached, diverges_at or prompt_length, size)
        if kv.cached == stop - 1 > 0 and sequence.params.on_hidden is None:
            # One token, of an answer that is continued: computed as it was when it was decoded.
            return self._decode([sequence])[0]
        self._roll_back(sequence)
        self._cache.checkpoint(kv.slot)  # the end of the text before: the next prompt may diverge within this chunk
        on_hidden, hear, first = sequence.params.on_hidden, sequence.on_hidden, kv.cached
        if on_hidden is None and hear is not None:
            on_hidden = partial(_tell_last, hear, stop)
        ids, logits = sequence.ids[first:stop], None
        if stop < prompt_length and on_hidden is None:
            self._runner.append(self._cache, kv.slot, ids)
        else:
            logits = self._runner.prefill(self._cache, kv.slot, ids, on_hidden)
        kv.cached = stop
        self._cache.checkpoint(kv.slot, shared_prefix=stop == diverges_at or sequence.prefilled)
        return logits

    def _decode(self, sequences: Ids[Sequence]) -> Logits:
        """One token of each of ``sequences``, which are in consecutive slots; logits [sequences, vocab].

        Leaves in each slot what is cached, that token included.
        """
        next_ids = [one.ids[one.kv.cached] for one in sequences]
        if len(sequences) == 1:
            logits = self._decode_many(sequences[0], next_ids, mark=False)
        else:
            for one in sequences:  # first all of them: a run in a batch appends one token to each slot
                self._roll_back(one)
            ids = np.array(next_ids, np.int64)[:, None]
            on_hidden = partial(_tell, sequences) if any(one.on_hidden for one in sequences) else None
            logits = self._runner.decode(self._cache, ids, sequences[0].kv.slot, on_hidden)[:, -1]
        for one in sequences:
            one.kv.cached += 1
            if one.kv.cached % _CHECKPOINT_EVERY == 0:
                self._cache.checkpoint(one.kv.slot)
        return logits

    def _decode_many(self, sequence: Sequence, ids: Ids[int], *, mark: bool = True) -> Logits:
        """Several tokens of one sequence; logits [tokens, vocab].

        Leaves all of them in the slot, after what is cached: how many of them count, :meth:`accept` says later.

        ``mark``: leave one before them, to which the slot is rolled back if some are rejected.
        """
        slot = sequence.kv.slot
        again = tuple(self._replay_rejected(sequence))
        if len(again) > _MOST_CARRIED:
            self._runner.append(self._cache, slot, again)
            again = ()
        if mark and not again:
            self._cache.mark(slot, len(ids))
        on_hidden = partial(_tell, (sequence,), skipped=len(again)) if sequence.on_hidden else None
        return self._runner.decode(self._cache, np.array([[*again, *ids]], np.int64), slot, on_hidden)[0, len(again) :]

    def _roll_back(self, sequence: Sequence) -> None:
        """Leaves in the slot what is cached of the sequence, and no more."""
        if again := self._replay_rejected(sequence):
            self._runner.append(self._cache, sequence.kv.slot, again)

    def _replay_rejected(self, sequence: Sequence) -> Ids[int]:
        """Drop what the slot holds beyond what is cached: rejected proposals, and what a run that failed or was
        interrupted has left.

        A slot with fixed states or windows may have to be truncated to less than that: to its last checkpoint. The ids
        between run again, whole chunks of them here; leaves the slot before the last ones, which are returned.
        """
        slot, cached = sequence.kv.slot, sequence.kv.cached
        start = self._cache.truncatable_length(slot, cached)
        self._cache.truncate(slot, start)
        while cached - start > self._prefill_chunk:
            self._runner.append(self._cache, slot, sequence.ids[start : start + self._prefill_chunk])
            start += self._prefill_chunk
            self._cache.checkpoint(slot)
        return sequence.ids[start:cached]

    def _room(self, sequence: Sequence, demand: Demand) -> tuple[int, int]:
        """How many sequences to make room for, and of how many positions."""
        count, longest = demand()
        if self._kv_budget is None:
            params = sequence.params
            longest = params.prompt_length + min(params.max_new_tokens, _EXPECTED_NEW_TOKENS) - 1
        return count, longest


def _tell_last(hear: OnHiddenAt, stop: int, hidden: NDArray[np.float32]) -> None:
    """Give ``hear`` the hidden states [tokens, size] of the positions before ``stop``."""
    hear(stop - len(hidden), hidden)


def _tell(
    sequences: Ids[Sequence], hidden: NDArray[np.float32], skipped: int = 0, lengths: Ids[int] | None = None
) -> None:
    """Give each sequence that hears them its hidden states, [rows, tokens, size], but for the tokens ``skipped``, and
    those beyond its ``lengths``."""
    ends = lengths or [hidden.shape[1]] * len(sequences)
    for one, states, end in zip(sequences, hidden, ends, strict=True):
        if one.on_hidden is not None:
            one.on_hidden(one.kv.cached, states[skipped:end])
