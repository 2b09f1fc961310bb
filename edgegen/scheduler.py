"""Scheduler: who runs in this step. First in, first out: one group at a time, in the order of arrival."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from edgegen.sequence import Sequence, SequenceGroup, Update


@dataclass(frozen=True, slots=True)
class Prefill:
    """One step: a chunk of one row's prompt, up to ``stop``."""

    group: SequenceGroup
    row: Sequence
    stop: int

    @property
    def rows(self) -> tuple[Sequence, ...]:
        return (self.row,)


@dataclass(frozen=True, slots=True)
class Decode:
    """One step: a token for each of ``rows``; for a single one, what is proposed behind it as well."""

    group: SequenceGroup
    rows: tuple[Sequence, ...]
    proposal: tuple[int, ...] = ()


class Scheduler:
    """Keeps the queue. A group runs when it is the first; its prompts are prefilled chunk by chunk, then it decodes.

    Rows with the same prompt wait for the first of them to be through.
    """

    def __init__(self, prefill_chunk: int, longest_proposal: int) -> None:
        self._prefill_chunk = prefill_chunk
        self._longest_proposal = longest_proposal
        self._queue: deque[SequenceGroup] = deque()

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be scheduled."""
        return not self._queue

    @property
    def groups(self) -> tuple[SequenceGroup, ...]:
        """All that run or wait; a copy, for others may add meanwhile."""
        return tuple(self._queue)

    def add(self, group: SequenceGroup) -> None:
        self._queue.append(group)

    def expire(self, now: float) -> Iterable[tuple[SequenceGroup, list[Update]]]:
        """Those of the queue, running or waiting, whose time is up."""
        return [(group, updates) for group in self.groups if (updates := group.expire(now))]

    def schedule(self) -> Prefill | Decode | None:
        """The work of the next step; None when there is none."""
        while self._queue and self._queue[0].finished:
            self._queue.popleft()
        if not self._queue:
            return None
        group = self._queue[0]
        running = [sequence for sequence in group if sequence.finish is None]
        for sequence in running:
            if not sequence.prefilled and not sequence.waits:
                stop = chunk_end(sequence.cached, sequence.prompt_length, self._prefill_chunk)
                return Prefill(group, sequence, stop)
        for sequence in running:
            if proposal := sequence.propose(self._longest_proposal, alone=len(running) == 1):
                return Decode(group, (sequence,), proposal)
        return Decode(group, tuple(running))


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
