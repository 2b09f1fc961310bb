"""Scheduler: who runs in this step. First in, first out: one group at a time, in the order of arrival."""

from collections import deque
from dataclasses import dataclass

from edgegen.sequence import Sequence, SequenceGroup


@dataclass(frozen=True, slots=True)
class Work:
    """One step: a chunk ``ids[start:stop]`` of one row's prompt, or one token for each of some rows."""

    prefill: Sequence | None = None
    stop: int = 0
    decode: tuple[Sequence, ...] = ()

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        return self.decode if self.prefill is None else (self.prefill, *self.decode)


class Scheduler:
    """Keeps the queue. A group runs when it is the first; its prompts are prefilled chunk by chunk, then it decodes."""

    def __init__(self, prefill_chunk: int) -> None:
        self._prefill_chunk = prefill_chunk
        self._queue: deque[SequenceGroup] = deque()

    def add(self, group: SequenceGroup) -> None:
        self._queue.append(group)

    def schedule(self) -> Work | None:
        """The work of the next step; None when there is none."""
        while self._queue and self._queue[0].finished:
            self._queue.popleft()
        if not self._queue:
            return None
        running = [sequence for sequence in self._queue[0] if sequence.finish is None]
        for sequence in running:
            if not sequence.prefilled:
                return Work(
                    prefill=sequence, stop=chunk_end(sequence.cached, sequence.prompt_length, self._prefill_chunk)
                )
        return Work(decode=tuple(running))


def chunk_end(start: int, stop: int, size: int) -> int:
    """Where the chunk from ``start`` ends.

    The last chunk may be one longer: a leftover of a single token would be computed by other kernels, and the
    result would then depend on how a prompt is cut.
    """
    return stop if stop - start <= size + 1 else start + size
