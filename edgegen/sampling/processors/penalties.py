"""Penalties: tokens that have occurred become less likely, and the end likelier the longer the answer is."""

import math
from collections.abc import Collection, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import OptionError
from edgegen.sampling.candidates import Candidates
from edgegen.sampling.id_array import IdArray
from edgegen.sampling.processor import LogitsContext
from edgegen.sampling.token_counts import TokenCounts

_HIGHEST_EXPONENT = math.log(float(np.finfo(np.float32).max))
_CERTAIN = float(np.finfo(np.float32).max)


class RepetitionPenalty:
    """Makes every token of the prompt or the answer so far less likely (``penalty`` above 1), or more so.

    A positive logit is divided by the penalty, a negative one multiplied, once per token however often it stood there.
    With ``last_n``, llama.cpp's window, only the last n tokens count.

    Keskar et al., "CTRL: A Conditional Transformer Language Model for Controllable Generation", 2019
    (arXiv:1909.05858).
    """

    def __init__(self, penalty: float, last_n: int | None = None) -> None:
        """Penalize the tokens of the last ``last_n`` positions, or of all.

        Raises:
            OptionError: the penalty is not a positive number.
        """
        if not 0 < penalty < math.inf:
            raise OptionError(f"repetition_penalty must be a positive number, not {penalty}; 1 is none")
        self.penalty = np.float32(penalty)
        self.last_n = last_n
        self._seen = TokenCounts()

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        ids = context.token_ids
        self._seen.update(ids, 0 if self.last_n is None else max(0, len(ids) - self.last_n))
        at, _ = candidates.locate(self._seen.ids[self._seen.counts > 0])
        seen = candidates.logits[at]
        return candidates.replace(at, np.where(seen < 0, seen * self.penalty, seen / self.penalty))


class FrequencyPenalty:
    """Lowers a token's logit by ``frequency`` for each time it was generated, and by ``presence`` if it was at all.

    Negative penalties raise it. The prompt does not count, as OpenAI defines it; with ``last_n``, llama.cpp's
    window, the last n tokens do, whichever they are.

    OpenAI, API reference, ``frequency_penalty`` and ``presence_penalty``.
    """

    def __init__(self, frequency: float, presence: float, last_n: int | None = None) -> None:
        self.frequency = np.float32(frequency)
        self.presence = np.float32(presence)
        self.last_n = last_n
        self._seen = TokenCounts()

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        ids = context.token_ids
        self._seen.update(ids, context.prompt_length if self.last_n is None else max(0, len(ids) - self.last_n))
        at, present = candidates.locate(self._seen.ids)
        counts = self._seen.counts[present]
        logits = candidates.logits[at]
        logits -= counts * self.frequency
        logits[counts > 0] -= self.presence
        return candidates.replace(at, logits)


class Dry:
    """Lowers the logit of each token that would continue a repetition, by ``multiplier * base ** (length - allowed)``.

    ``length`` is how many of the last tokens stand earlier, too, with that token after them; below
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


class NoRepeatNGram:
    """Masks each token that would complete ``size`` tokens that stand in the prompt or the text already.

    Paulus, Xiong and Socher, "A Deep Reinforced Model for Abstractive Summarization", 2017 (arXiv:1705.04304),
    section 2.5.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._ids = IdArray()

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        completing = self._completing(self._ids.view(context.token_ids))
        return candidates.mask(completing) if completing.size else candidates

    def _completing(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens that followed an earlier occurrence of the last tokens."""
        before = self.size - 1
        if ids.size < self.size:
            return ids[:0]
        if before == 0:
            return ids
        # Ends of earlier occurrences, narrowed token by token from the last one back.
        ends = before - 1 + np.flatnonzero(ids[before - 1 : -1] == ids[-1])
        for back in range(1, before):
            ends = ends[ids[ends - back] == ids[-1 - back]]
        return ids[ends + 1]


class ExponentialDecayLengthPenalty:
    """After ``start`` generated tokens, makes the end likelier by ``factor`` to the power of the excess.

    What is added is the end's own logit without its sign, times that power less one. A masked end stays masked.

    transformers' ``exponential_decay_length_penalty``.
    """

    def __init__(self, start: int, factor: float, eos_token_ids: Collection[int]) -> None:
        self.start = start
        self.factor = factor
        self._eos = np.array(sorted(eos_token_ids), np.int64)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        excess = context.step - self.start
        if excess <= 0:
            return candidates
        at, _ = candidates.locate(self._eos)
        logits = candidates.logits[at]
        power = min(float(np.float64(self.factor) ** excess), _CERTAIN)
        raised = np.minimum(logits + np.abs(logits) * np.float32(power - 1), np.float32(_CERTAIN))
        return candidates.replace(at, np.where(logits <= -_CERTAIN, logits, raised))
