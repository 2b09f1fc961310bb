"""LogitsProcessor: the interface of logits processors."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling.candidates import Candidates


class LogitsContext(NamedTuple):
    """View that a processor has of its sequence. Cheap to make: nothing is copied.

    Attributes:
        token_ids: prompt and generated tokens so far; the candidates are for the position after them.
        prompt_length: how many of them are the prompt.
        unconditional: the logits ``[vocab]`` after the negative prompt, for classifier-free guidance.
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

    One that keeps state between steps must notice when the ids do not continue those it saw
    (:class:`~edgegen.sampling.history.History`), or say ``stateful = True``: it then serves one sequence only.
    """

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        """New candidates; the given ones and their arrays are not changed."""
        ...
