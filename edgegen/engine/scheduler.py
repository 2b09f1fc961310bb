"""Scheduler of continuous batching: which sequences run in the next step.

A step decodes one token of every running sequence that is past its prompt, and beside that runs several tokens of at
most one sequence: a chunk of its prompt (chunked prefill), or a proposal to verify (speculative decoding). So a stream
waits for one chunk and one token of the batch at most, whichever request joins. Where a few sequences are the whole
batch, and the runner can, the decode verifies proposals of all of them. The rules:

- Admission is by priority, then first come, first served. If the next request does not fit in memory, it waits and
  blocks those behind it. Running requests are never preempted.
- The run of several tokens goes to the best priority, and among equals to the sequence that had it longest ago. Of the
  prompts of one priority, the first is finished before the second starts.
- A sequence with a proposal waits for that run, so that its chunking does not depend on other requests.
- Proposals of a batch have one length, for the sequences are rows of one array: that which promises most tokens for the
  time of the step. Shorter ones are filled up, and what is filled in is never accepted.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from threading import Lock
from typing import NamedTuple

from edgegen.engine.sequence import Sequence, SequenceGroup, Update
from edgegen.speculation.expected_length import LIKELY_COST

MOST_SPECULATING = 4
"""Sequences of a batch that proposals are made for: more keep the machine busy."""


@dataclass(frozen=True, slots=True)
class MultiToken:
    """Several tokens of one sequence."""

    group: SequenceGroup
    sequence: Sequence

    @property
    def groups(self) -> tuple[SequenceGroup, ...]:
        return (self.group,)

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        return (self.sequence,)


@dataclass(frozen=True, slots=True)
class Prefill(MultiToken):
    """A chunk of a sequence's prompt."""


@dataclass(frozen=True, slots=True)
class Verify(MultiToken):
    """A sequence's last token and the proposal after it, to be accepted or rejected."""

    proposal: tuple[int, ...]


class Decode(NamedTuple):
    """One token of each sequence; ``groups`` are the requests they belong to.

    ``proposals``: of each sequence, to be verified in the same run; none at all as a rule.
    """

    groups: tuple[SequenceGroup, ...]
    sequences: tuple[Sequence, ...]
    proposals: tuple[tuple[int, ...], ...] = ()

    def of(self, group: SequenceGroup) -> "Decode":
        """That of one request alone."""
        places = [place for place, one in enumerate(self.sequences) if one in group]
        proposals = tuple(self.proposals[place] for place in places) if self.proposals else ()
        return Decode((group,), tuple(self.sequences[place] for place in places), proposals)


Work = Prefill | Verify | Decode


class Failure(NamedTuple):
    """A request that ends because a proposer raised ``error``."""

    group: SequenceGroup
    error: BaseException


class Step(NamedTuple):
    """What to run next: one token of many sequences, then several tokens of one.

    ``is_awaited``: whether sequences past their prompts wait for the end of a chunk of another's.
    """

    decode: Decode | None = None
    multi_token: Prefill | Verify | None = None
    failure: Failure | None = None
    is_awaited: bool = False

    @property
    def works(self) -> list[Work | Failure]:
        return [work for work in (self.decode, self.multi_token, self.failure) if work is not None]


Fits = Callable[[int, int], bool]
"""``fits(count, length)``: whether there is memory for ``count`` sequences of ``length`` positions."""


class Scheduler:
    """Keeps the queue. Any thread may add at any moment; one at a time may schedule."""

    def __init__(
        self,
        longest_proposal: int,
        most_sequences: int,
        fits: Fits = lambda _count, _length: True,
        *,
        longest_in_batch: int = 0,
    ) -> None:
        """``most_sequences``: most sequences at once; a request of more runs by itself; ``longest_in_batch``: most
        tokens of the proposals of a batch, all of them together at most ``longest_proposal``."""
        self._longest_proposal = longest_proposal
        self._longest_in_batch = longest_in_batch
        self._most_sequences = most_sequences
        self._fits = fits
        self._lock = Lock()
        self._arrivals = count()
        self._steps = count()
        self._waiting: list[tuple[int, int, SequenceGroup]] = []  # a heap
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
        with self._lock:
            return (*self._running, *(group for _, _, group in self._waiting))

    @property
    def demand(self) -> tuple[int, int]:
        """How many sequences are running, and the most positions one of them may have in the KV cache."""
        return sum(len(group.active) for group in self._running), max(group.longest for group in self._running)

    def add(self, group: SequenceGroup) -> None:
        with self._lock:
            heappush(self._waiting, (group.priority, next(self._arrivals), group))
            if any(sequence.params.deadline is not None for sequence in group):
                self._timed.append(group)

    def expire(self) -> Iterator[tuple[SequenceGroup, list[Update]]]:
        """The requests, running or waiting, whose deadline has passed, and their updates."""
        if not self._timed:
            return
        for group in tuple(self._timed):
            if updates := group.expire():
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
            active = group.active
            # Sequences with the same prompt wait for the first of them.
            sequence = next((one for one in active if not one.prefilled and not one.waits_for_prefill), None)
            if sequence is not None:
                prompts.append(Prefill(group, sequence))
            else:  # the sequences of a group decode together
                ready += [(group, one) for one in active]
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
        chosen = self._next_of(prompts, verifies)
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
        """Admit waiting requests, in order, while the next one fits."""
        with self._lock:
            self._running = [group for group in self._running if not group.finished]
            while self._waiting:
                group = self._waiting[0][2]
                if not group.finished:  # cancelled while it waited
                    if not self._has_room(group):
                        break
                    self._running.append(group)
                heappop(self._waiting)

    def _has_room(self, group: SequenceGroup) -> bool:
        if not self._running:
            return True
        running, longest = self.demand
        together = running + len(group.sequences)
        return together <= self._most_sequences and self._fits(together, max(longest, group.longest))

    def _next_of(self, prompts: list[Prefill], verifies: list[Verify]) -> Prefill | Verify | None:
        if not (prompts or verifies):
            return None
        by_priority = sorted(prompts, key=lambda work: work.group.priority)  # stable: the first admitted stays first
        works = [*by_priority[:1], *verifies]
        chosen = min(works, key=lambda work: (work.group.priority, work.sequence.last_served))
        chosen.sequence.last_served = next(self._steps)
        return chosen


def _best_length(lengths: list[int]) -> int:
    """To what length proposals of these lengths are cut, or filled up: where a step gives most tokens for its time."""

    def worth(length: int) -> float:
        rows = len(lengths) * (1 + length)
        return (len(lengths) + sum(min(one, length) for one in lengths)) / (1 + LIKELY_COST * (rows - 1))

    return max({0, *lengths}, key=worth)
