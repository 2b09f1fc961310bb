"""Scheduler of continuous batching: which sequences run in the next step.

A step decodes one token of every running sequence that is past its prompt, and beside that runs several tokens of at
most one sequence: a chunk of its prompt (chunked prefill), or a proposal to verify (speculative decoding). So a stream
waits for one chunk and one token of the batch at most, whichever request joins. Where a few sequences are the whole
batch, and the runner can, the decode verifies proposals of all of them. The rules:

- Which requests begin is up to :class:`Admission`. Running requests are never preempted.
- Which prompt or proposal has the run of several tokens is up to :class:`Turns`.
- A sequence with a proposal waits for that run, so that its chunking does not depend on other requests.
- Proposals of a batch have one length, for the sequences are rows of one array: that which promises most tokens for the
  time of the step. Shorter ones are filled up, and what is filled in is never accepted.
"""

from collections.abc import Iterator
from threading import Lock

from edgegen.engine.admission import Admission, Fits
from edgegen.engine.sequence import Sequence, SequenceGroup, Update
from edgegen.engine.turns import Turns
from edgegen.engine.work import Decode, Failure, Prefill, Step, Verify
from edgegen.speculation.expected_length import LIKELY_COST

MOST_SPECULATING = 4
"""Sequences of a batch that proposals are made for: more keep the machine busy."""


class Scheduler:
    """Keeps the queue. Any thread may add at any moment; one at a time may schedule."""

    def __init__(
        self,
        longest_proposal: int,
        most_sequences: int,
        fits: Fits = lambda _count, _length: True,
        *,
        longest_in_batch: int = 0,
        prefill_chunk: int = 1,
        shares_prefixes: bool = False,
    ) -> None:
        """``most_sequences``, ``fits``: of :class:`Admission`; ``prefill_chunk``, ``shares_prefixes``: of
        :class:`Turns`.

        ``longest_in_batch``: most tokens of the proposals of a batch, all of them together at most
        ``longest_proposal``.
        """
        self._longest_proposal = longest_proposal
        self._longest_in_batch = longest_in_batch
        self._waiting = Admission(most_sequences, fits)
        self._turns = Turns(prefill_chunk, shares_prefixes=shares_prefixes)
        self._lock = Lock()  # of those with a deadline
        self._running: list[SequenceGroup] = []  # in order of admission
        self._timed: list[SequenceGroup] = []  # those with a deadline, running or waiting
        self._steady = Step()  # the last step, reused while the batch stays the same

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not (self._waiting or self._running)

    @property
    def groups(self) -> tuple[SequenceGroup, ...]:
        """Every request that runs or waits."""
        return (*self._waiting.groups, *self._running)  # one that begins meanwhile is among both, not among neither

    @property
    def demand(self) -> tuple[int, int]:
        """How many sequences are running, and the most positions one of them may have in the KV cache."""
        return sum(len(group.active) for group in self._running), max(group.longest for group in self._running)

    def add(self, group: SequenceGroup) -> None:
        if any(sequence.params.deadline is not None for sequence in group):
            with self._lock:
                self._timed.append(group)
        self._waiting.add(group)

    def expire(self) -> Iterator[tuple[SequenceGroup, list[Update]]]:
        """The requests, running or waiting, whose deadline has passed, and their updates."""
        if not self._timed:
            return
        for group in tuple(self._timed):
            if group.is_late and (updates := group.expire()):
                yield group, updates
        with self._lock:
            self._timed = [group for group in self._timed if not group.finished]

    def schedule(self) -> Step:
        """The work of the next step; none when no request runs."""
        if self._steady.decode is not None and self._is_unchanged(self._steady.decode):
            return self._steady
        self._admit()
        prompts, ready = list[Prefill](), list[tuple[SequenceGroup, Sequence]]()
        for group in self._running:
            if own := group.prompts:
                prompts.append(Prefill(group, own[0]))
            else:  # the sequences of a group decode together
                ready += [(group, one) for one in group.active]
        alone = len(ready) == 1 and not prompts
        verifies, groups, sequences = list[Verify](), dict[SequenceGroup, None](), list[Sequence]()
        for group, sequence in ready:
            try:
                proposal = sequence.propose(self._longest_proposal, alone=alone)
            except BaseException as error:  # a library's panic is no Exception
                return Step(failure=Failure(group, error))
            if proposal:
                verifies.append(Verify(group, sequence, proposal))
            else:
                groups[group] = None
                sequences.append(sequence)
        decode = Decode(tuple(groups), tuple(sequences)) if sequences else None
        if decode and not (prompts or verifies):
            try:
                decode = decode._replace(proposals=self._proposals(decode.sequences))
            except BaseException as error:
                return Step(failure=Failure(decode.groups[0], error))
        chosen = self._turns.next(prompts, verifies)
        step = Step(decode, chosen, is_awaited=isinstance(chosen, Prefill) and bool(ready))
        self._steady = Step() if step.multi_token or any(one.proposers for one in sequences) else step
        return step

    def _proposals(self, sequences: tuple[Sequence, ...]) -> tuple[tuple[int, ...], ...]:
        """Proposals of a whole batch; nothing, where it is no batch that speculates, or they would not pay."""
        count = len(sequences)
        longest = min(self._longest_in_batch, self._longest_proposal // count)
        if not (2 <= count <= MOST_SPECULATING and longest and all(one.proposers for one in sequences)):
            return ()
        found = [one.propose_in_batch(longest, count) for one in sequences]
        length = _best_length([len(one) for one in found])
        return tuple(one[:length] for one in found) if length else ()

    def _is_unchanged(self, work: Decode) -> bool:
        """Whether no sequence has joined or ended since ``work``, which was the whole step."""
        return not self._waiting and all(one.finish is None for one in work.sequences)

    def _admit(self) -> None:
        """Let go of what has ended, and begin what may begin."""
        self._running = [group for group in self._running if not group.finished]
        while (group := self._waiting.admit(self._running)) is not None:
            self._turns.join(group, self._running[:-1])


def _best_length(lengths: list[int]) -> int:
    """To what length proposals of these lengths are cut, or filled up: where a step yields most tokens for its time."""

    def worth(length: int) -> float:
        rows = len(lengths) * (1 + length)
        return (len(lengths) + sum(min(one, length) for one in lengths)) / (1 + LIKELY_COST * (rows - 1))

    return max({0, *lengths}, key=worth)
