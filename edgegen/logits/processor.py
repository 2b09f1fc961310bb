"""What every logits processor looks like."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edgegen.logits.candidates import Candidates


@dataclass(frozen=True, slots=True)
class LogitsContext:
    """What a processor may know of the sequence it works for.

    Attributes:
        token_ids: prompt and generated tokens so far; the candidates are for the place behind them.
    """

    token_ids: Sequence[int]


class LogitsProcessor(Protocol):
    """Changes the logits of the next token, or narrows the choice."""

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        """New candidates; those given, and their arrays, stay as they are."""
        ...
