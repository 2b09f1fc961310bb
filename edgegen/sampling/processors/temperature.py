"""Temperature: makes the distribution sharper or flatter."""

import math

import numpy as np

from edgegen.errors import OptionError
from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext

_LOWEST = 1e-30


class Temperature:
    """Divides the logits by ``temperature``: below 1 likely tokens become likelier, above 1 less so.

    Ackley, Hinton and Sejnowski, "A learning algorithm for Boltzmann machines", 1985.
    """

    def __init__(self, temperature: float) -> None:
        """
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
