"""Sequence and SequenceGroup: what the engine works on. Token ids only; text lives above."""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from time import perf_counter

from edgegen.logits import LogitsPipeline
from edgegen.sampler import Sampler
from edgegen.stopping import StopMatch

Watch = Callable[[Ids[int]], StopMatch | None]
"""Sees each new token id of a sequence, and says when it has ended."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One row in the making: a prompt, the ids generated so far, and how to choose and judge the next.

    Attributes:
        ids: the prompt's ids and, after them, the generated ones.
        cached: how many of ``ids`` have their keys and values in the cache.
        slot: the row of the cache, while running.
        finish: why it ended; None while it goes on.
        error: what made it fail, if something did; only this request is to hear of it.
    """

    ids: list[int]
    prompt_length: int
    max_new_tokens: int
    pipeline: LogitsPipeline
    sampler: Sampler
    watch: Watch
    use_cache: bool = True
    cached: int = 0
    slot: int = -1
    finish: StopMatch | None = None
    error: Exception | None = None
    started: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0

    @property
    def generated(self) -> list[int]:
        return self.ids[self.prompt_length :]

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt is in the cache: what follows is decoding."""
        return self.cached >= self.prompt_length

    def append(self, token_id: int) -> None:
        """Take the next id, have it watched, and note the end if it came."""
        self.ids.append(token_id)
        self.last_token = perf_counter()
        if len(self.ids) == self.prompt_length + 1:
            self.first_token = self.last_token
        match = self.watch((token_id,))
        if match is None and len(self.ids) - self.prompt_length >= self.max_new_tokens:
            match = StopMatch("length", None)
        self.finish = self.finish or match  # another thread may have cancelled meanwhile

    def cancel(self) -> None:
        """End here; the scheduler drops it at its next turn."""
        self.finish = self.finish or StopMatch("cancelled", None)

    def fail(self, error: Exception) -> None:
        self.error = error
        self.cancel()


@dataclass(slots=True, eq=False)
class SequenceGroup:
    """The sequences of one request; they are admitted together and leave together."""

    sequences: list[Sequence] = field(default_factory=list[Sequence])

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self.sequences)

    @property
    def finished(self) -> bool:
        """Whether every sequence has ended."""
        return all(sequence.finish is not None for sequence in self.sequences)

    def cancel(self) -> None:
        for sequence in self.sequences:
            sequence.cancel()
