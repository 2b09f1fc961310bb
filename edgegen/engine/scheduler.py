"""Scheduler: who runs in the next step.

A step is at most one run of several tokens, for a single row (a chunk of its prompt, or what is proposed behind it),
and one token of every other row that is past its prompt. So a stream waits for one chunk and one token of all, at
most, whoever joins. Three rules, and no others:

- Requests are admitted by priority and then in the order of arrival. The first one that does not fit waits for room,
  and nobody overtakes it. Who has been admitted stays until the end.
- The run of several tokens goes to the best priority; among equals, to whoever had it longest ago. Of the prompts of
  one priority, the first is finished before the second begins.
- A row with a proposal waits for that run, so that how it is cut depends on nobody else.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from threading import Lock

from edgegen.engine.sequence import Sequence, SequenceGroup, Update


@dataclass(frozen=True, slots=True)
class Prefill:
    """A chunk of one row's prompt."""

    group: SequenceGroup
    row: Sequence

    @property
    def rows(self) -> tuple[Sequence, ...]:
        return (self.row,)


@dataclass(frozen=True, slots=True)
class Verify:
    """A row's last token, and what is proposed behind it."""

    group: SequenceGroup
    row: Sequence
    proposal: tuple[int, ...]

    @property
    def rows(self) -> tuple[Sequence, ...]:
        return (self.row,)


@dataclass(frozen=True, slots=True)
class Decode:
    """One token of each row; ``groups`` are those that the rows belong to."""

    groups: tuple[SequenceGroup, ...]
    rows: tuple[Sequence, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What to run next, the tokens of many rows before those of one."""

    decode: Decode | None = None
    several: Prefill | Verify | None = None


class ProposalError(Exception):
    """A proposer of ``group`` broke down; the cause says how."""

    def __init__(self, group: SequenceGroup) -> None:
        super().__init__("a proposer broke down")
        self.group = group


Fits = Callable[[int, int], bool]
"""``fits(rows, length)``: whether there is memory for so many rows of so many positions."""


class Scheduler:
    """Keeps the queue. Anyone may add at any moment; one caller at a time may schedule."""

    def __init__(self, longest_proposal: int, most_rows: int, fits: Fits = lambda rows, length: True) -> None:
        """``most_rows``: of all groups together; a group of more runs by itself."""
        self._longest_proposal = longest_proposal
        self._most_rows = most_rows
        self._fits = fits
        self._lock = Lock()
        self._arrivals = count()
        self._steps = count()
        self._waiting: list[tuple[int, int, SequenceGroup]] = []  # a heap
        self._running: list[SequenceGroup] = []  # in the order of admission
        self._timed: list[SequenceGroup] = []  # that have a deadline, running or waiting
        self._steady = Step()  # the last step, for as long as every step is like it

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not (self._waiting or self._running)

    @property
    def groups(self) -> tuple[SequenceGroup, ...]:
        """All that run or wait."""
        with self._lock:
            return (*self._running, *(group for _, _, group in self._waiting))

    @property
    def demand(self) -> tuple[int, int]:
        """Rows of all that has been admitted, and the most positions one of them may come to."""
        return sum(len(group.going) for group in self._running), max(group.longest for group in self._running)

    def add(self, group: SequenceGroup) -> None:
        with self._lock:
            heappush(self._waiting, (group.priority, next(self._arrivals), group))
            if any(sequence.deadline is not None for sequence in group):
                self._timed.append(group)

    def expire(self, now: float) -> Iterator[tuple[SequenceGroup, list[Update]]]:
        """Those of the queue, running or waiting, whose time is up."""
        if not self._timed:
            return
        for group in tuple(self._timed):
            if updates := group.expire(now):
                yield group, updates
        with self._lock:
            self._timed = [group for group in self._timed if not group.finished]

    def schedule(self) -> Step:
        """The work of the next step; none when nobody has any.

        Raises:
            ProposalError: a proposer broke down.
        """
        if self._steady.decode is not None and self._goes_on(self._steady.decode):
            return self._steady
        self._admit()
        prompts, ready = list[Prefill](), list[tuple[SequenceGroup, Sequence]]()
        for group in self._running:
            going = group.going
            # Rows with the same prompt wait for the first of them.
            row = next((row for row in going if not row.prefilled and not row.waits), None)
            if row is not None:
                prompts.append(Prefill(group, row))
            else:  # the rows of a group go on together
                ready += [(group, row) for row in going]
        alone = len(ready) == 1 and not prompts
        verifies, groups, rows = list[Verify](), dict[SequenceGroup, None](), list[Sequence]()
        for group, row in ready:
            if proposal := self._propose(group, row, alone):
                verifies.append(Verify(group, row, proposal))
            else:
                groups[group] = None
                rows.append(row)
        step = Step(Decode(tuple(groups), tuple(rows)) if rows else None, self._next_of(prompts, verifies))
        self._steady = Step() if step.several or any(row.proposers for row in rows) else step
        return step

    def _goes_on(self, work: Decode) -> bool:
        """Whether nobody has come or gone since ``work``, which was all there was to do."""
        return not self._waiting and all(row.finish is None for row in work.rows)

    def _admit(self) -> None:
        """Let in who has room, one after the other."""
        with self._lock:
            self._running = [group for group in self._running if not group.finished]
            while self._waiting:
                group = self._waiting[0][2]
                if not group.finished:  # cancelled before it began
                    if not self._has_room(group):
                        break
                    self._running.append(group)
                heappop(self._waiting)

    def _has_room(self, group: SequenceGroup) -> bool:
        if not self._running:
            return True
        rows, longest = self.demand
        rows += len(group.sequences)
        return rows <= self._most_rows and self._fits(rows, max(longest, group.longest))

    def _propose(self, group: SequenceGroup, row: Sequence, alone: bool) -> tuple[int, ...]:
        try:
            return row.propose(self._longest_proposal, alone=alone)
        except BaseException as error:  # a library's panic is no Exception
            raise ProposalError(group) from error

    def _next_of(self, prompts: list[Prefill], verifies: list[Verify]) -> Prefill | Verify | None:
        if not (prompts or verifies):
            return None
        by_priority = sorted(prompts, key=lambda work: work.group.priority)  # stable: the first admitted stays first
        works = [*by_priority[:1], *verifies]
        chosen = min(works, key=lambda work: (work.group.priority, work.row.last_served))
        chosen.row.last_served = next(self._steps)
        return chosen


_QUERIES = 64
"""The attention operator takes queries in blocks of this many, or of a multiple."""


def chunk_end(start: int, stop: int, size: int) -> int:
    """Where the chunk from ``start`` ends: behind at most ``size`` tokens, or three.

    A single token, alone in its chunk or left over by the blocks of one, is computed by other kernels, and the result
    would depend on how a prompt is cut. So two are left for the next chunk instead, unless there is but one.
    """
    left = stop - start
    length = min(left, size)
    if left - length == 1:
        length -= 1
    if length % _QUERIES == 1:
        length -= 2
    return start + (length if length > 1 else min(left, 3))
