"""What every logits processor looks like."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling.candidates import Candidates


@dataclass(frozen=True, slots=True)
class LogitsContext:
    """What a processor may know of the sequence it works for. Cheap to make: nothing is copied.

    Attributes:
        token_ids: prompt and generated tokens so far; the candidates are for the place behind them.
        prompt_length: how many of them are the prompt.
        unconditional: the logits ``[vocab]`` of the group's other row, for classifier-free guidance.
    """

    token_ids: Sequence[int]
    prompt_length: int = 0
    unconditional: NDArray[np.float32] | None = None

    @property
    def step(self) -> int:
        """How many tokens have been generated: 0 for the first."""
        return len(self.token_ids) - self.prompt_length


class LogitsProcessor(Protocol):
    """Changes the logits of the next token, or narrows the choice.

    One that keeps something from step to step must notice when the ids are no continuation of those it saw
    (:class:`~edgegen.sampling.history.History`), or say ``stateful = True``: it then serves one sequence only.
    """

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        """New candidates; those given, and their arrays, stay as they are."""
        ...
