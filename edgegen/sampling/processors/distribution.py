"""The whole distribution changed: temperature, guidance, normalization, invalid values, the caller's functions."""

import math

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import OptionError, UsageError
from edgegen.options.sampling import LogitsFunction
from edgegen.sampling.candidates import Candidates
from edgegen.sampling.id_array import IdArray
from edgegen.sampling.processor import LogitsContext

_LOWEST = 1e-30
_LIMITS = np.finfo(np.float32)


class Temperature:
    """Divides the logits by ``temperature``: below 1 likely tokens become likelier, above 1 less so.

    Ackley, Hinton and Sejnowski, "A learning algorithm for Boltzmann machines", 1985.
    """

    def __init__(self, temperature: float) -> None:
        """Divide logits by ``temperature``.

        Raises:
            OptionError: the temperature is not a positive number.
        """
        if not _LOWEST <= temperature < math.inf:
            raise OptionError(
                f"temperature must be a positive number, not {temperature}: "
                "for the likeliest token every time, leave sampling off"
            )
        self.temperature = temperature
        self._divisor = np.float32(temperature)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        with np.errstate(over="ignore"):  # a masked logit near the lowest float may become minus infinity
            logits = candidates.logits / self._divisor
            if self.temperature < 1.0 and logits.max() == np.inf:
                # Only differences matter, and those to the highest cannot rise beyond 0.
                logits = (candidates.logits - candidates.logits.max()) / self._divisor
        return candidates.with_logits(logits)


class Guidance:
    """Moves the distribution away from the one after a negative prompt (``scale`` above 1), or towards it.

    ``context.unconditional`` are the logits of that other row.

    Sanchez et al., "Stay on topic with Classifier-Free Guidance", 2023 (arXiv:2306.17806).
    """

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        assert context.unconditional is not None, "guidance needs the group's unconditional row"
        return candidates.with_logits(guide(candidates.logits, context.unconditional, self.scale))


def guide(conditional: NDArray[np.float32], unconditional: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    """``u + scale (c - u)`` on the log-probabilities of two rows of logits, ``[vocab]`` each.

    A token that either row masks keeps the conditional one.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        guided, other = log_softmax(conditional), log_softmax(unconditional)
        moved = guided - other
        moved *= np.float32(scale)
        moved += other
    if min(guided.min(), other.min()) == -np.inf:
        return np.where(np.isneginf(guided) | np.isneginf(other), guided, moved)
    return moved


class Renormalization:
    """Makes the logits of what is left log-probabilities, for scores that add up (``renormalize_logits``)."""

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        candidates.best()
        return candidates.with_logits(log_softmax(candidates.logits))


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """``[N]`` float32, a new array; NaN throughout where a logit is no number."""
    with np.errstate(invalid="ignore"):  # infinity less itself
        shifted = logits - logits.max()
    return shifted - np.float32(math.log(np.exp(shifted).sum()))


class RemoveInvalidValues:
    """NaN becomes 0, and the infinities the highest and lowest number there is, instead of an error.

    transformers' ``remove_invalid_values``.
    """

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        if candidates.logits.min() > -np.inf and candidates.logits.max() < np.inf:
            return candidates
        logits = np.nan_to_num(candidates.logits, nan=0.0, posinf=float(_LIMITS.max), neginf=float(_LIMITS.min))
        return candidates.with_logits(logits)


class CustomProcessor:
    """Lets a plain function on arrays be a processor. It sees the whole vocabulary, before anything is cut off."""

    def __init__(self, function: LogitsFunction) -> None:
        self.function = function
        self._ids = IdArray()

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        """Pass all logits through the caller's function.

        Raises:
            UsageError: the function returned no logits: another shape, no numbers, NaN or plus infinity.
        """
        returned = self.function(self._ids.view(context.token_ids), candidates.logits.copy())
        if returned is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise UsageError(f"{self._name} returned nothing: return the logits, changed or not")
        try:
            logits = np.asarray(returned, np.float32)
        except (TypeError, ValueError):
            raise UsageError(f"{self._name} returned {type(returned).__name__}, not an array of logits") from None
        if logits.shape != candidates.logits.shape:
            raise UsageError(f"{self._name} returned shape {logits.shape}, not {candidates.logits.shape}")
        if not logits.max() < np.inf:
            raise UsageError(f"{self._name} returned NaN or plus infinity; to forbid a token, set minus infinity")
        return candidates.with_logits(logits)

    @property
    def _name(self) -> str:
        return f"the logits processor {getattr(self.function, '__name__', type(self.function).__name__)!r}"
