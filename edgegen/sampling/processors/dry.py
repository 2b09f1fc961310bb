"""DRY (don't repeat yourself): a penalty on tokens that would continue a repetition."""

import math
from collections.abc import Collection, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.id_array import IdArray
from edgegen.sampling.processor import LogitsContext

_HIGHEST_EXPONENT = math.log(float(np.finfo(np.float32).max))


class Dry:
    """Lowers the logit of each token that would continue a repetition, by ``multiplier * base ** (length - allowed)``.

    ``length`` is how many of the last tokens stand earlier, too, with that token behind them; below
    ``allowed_length`` nothing happens. Prompt and text count, of them the last ``last_n`` tokens (all, if None).
    A repetition does not reach back over a sequence breaker, and breakers themselves are never made less likely.

    p-e-w, "DRY: A modern repetition penalty", 2024 (oobabooga/text-generation-webui, pull request 5677); here as in
    llama.cpp.
    """

    def __init__(
        self,
        multiplier: float,
        base: float = 1.75,
        allowed_length: int = 2,
        last_n: int | None = None,
        breakers: Collection[int] = (),
    ) -> None:
        self.multiplier = multiplier
        self.base = base
        self.allowed_length = allowed_length
        self.last_n = last_n
        self.breakers = frozenset(breakers)
        # Longer repetitions cost no more.
        self._longest = allowed_length + (int(_HIGHEST_EXPONENT / math.log(base)) if base > 1.000001 else 0)
        self._ids = IdArray()

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        ids = self._ids.view(context.token_ids)
        if self.last_n is not None:
            ids = ids[-self.last_n :]
        longest = self._since_breaker(context.token_ids, min(ids.size, self._longest))
        if ids.size <= self.allowed_length or longest < self.allowed_length:
            return candidates
        lengths = _repetitions(ids, self.allowed_length, longest)
        tokens = [token for token in lengths if token not in self.breakers]
        at, present = candidates.locate(np.array(tokens, np.int64))
        if not at.size:
            return candidates
        excess = np.array([lengths[token] - self.allowed_length for token in tokens])[present]
        penalties = (self.multiplier * self.base ** excess.astype(np.float64)).astype(np.float32)
        return candidates.replace(at, candidates.logits[at] - penalties)

    def _since_breaker(self, token_ids: Sequence[int], most: int) -> int:
        """How many of the last ``most`` tokens come after the last breaker among them."""
        last = islice(reversed(token_ids), most)
        return next((since for since, token in enumerate(last) if token in self.breakers), most)


def _repetitions(ids: NDArray[np.int64], shortest: int, longest: int) -> dict[int, int]:
    """For each token after an earlier occurrence of the last tokens, how many of these occur there.

    Only lengths from ``shortest`` on; longer ones than ``longest`` count as that.
    """
    lengths: dict[int, int] = {}
    ends = np.flatnonzero(ids[:-1] == ids[-1])
    for length in range(1, longest + 1):
        goes_on = (ends >= length) & (ids[ends - length] == ids[-1 - length]) & (length < longest)
        if length >= shortest:
            # In ascending order, so that a token keeps its longest.
            lengths |= dict.fromkeys(ids[ends[~goes_on] + 1].tolist(), length)
        ends = ends[goes_on]
        if not ends.size:
            break
    return lengths
