"""Log-probabilities of tokens, as the model gives them: before any processor."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling import log_softmax


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The natural logarithm of a token's probability at its position.

    Attributes:
        token: its text, by itself; part of a character is U+FFFD in it.
        is_best: whether no token is likelier.
        top_logprobs: the likeliest tokens at the position, the best first, if they were asked for.
        token_bytes: what it adds to a text, as UTF-8; it may be part of a character. None: what ``token`` says.
    """

    token_id: int
    token: str
    logprob: float
    is_best: bool
    top_logprobs: tuple["TokenLogprob", ...] = ()
    token_bytes: bytes | None = None

    @property
    def utf8(self) -> bytes:
        """The token's bytes."""
        return self.token.encode() if self.token_bytes is None else self.token_bytes


Spell = Callable[[int], tuple[str, bytes | None]]
"""The text of a token by itself, and its bytes where the text does not tell them."""


class LogprobRecorder:
    """Keeps the log-probabilities of one sequence's tokens, with ``top`` alternatives, until they are taken."""

    def __init__(self, spell: Spell, top: int = 0) -> None:
        self._spell = spell
        self._top = top
        self._untaken: list[TokenLogprob] = []

    def record(self, logits: NDArray[np.float32], token_id: int) -> None:
        """Add a token with the model's logits [vocab] for its position."""
        logprobs = log_softmax(logits)
        best = float(logprobs.max())

        def entry(token: int, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
            logprob = float(logprobs[token])
            text, spelled = self._spell(token)
            return TokenLogprob(token, text, logprob, logprob >= best, top, spelled)

        self._untaken.append(entry(token_id, tuple(entry(token) for token in _likeliest(logprobs, self._top))))

    def take(self) -> tuple[TokenLogprob, ...]:
        """The tokens recorded since the last call."""
        taken = tuple(self._untaken)
        self._untaken.clear()
        return taken


def _likeliest(logprobs: NDArray[np.float32], count: int) -> list[int]:
    """The ids of the ``count`` highest, the best first and of equals the lowest id."""
    if not count:
        return []
    least = np.partition(logprobs, -count)[-count] if count < logprobs.size else logprobs.min()
    kept = np.flatnonzero(logprobs >= least)
    order = np.lexsort((kept, -logprobs[kept]))[:count]
    return kept[order].tolist()
