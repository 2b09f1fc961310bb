"""Estimate: a mean over items with its standard error."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

FEWEST = 30
"""Items from which on a mean is normally distributed, nearly; of fewer, nothing is said to be more than noise."""

BEYOND = 2.0
"""Standard errors that chance exceeds in one of twenty cases."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """
    Attributes:
        mean: over the items; NaN without one.
        error: its standard error, as it would be with other items like these; NaN with less than two.
        count: how many items there are.
    """

    mean: float
    error: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float], weights: Sequence[float] | None = None) -> Self:
        """Of one value for each item, which counts as much as its weight, or as much as any other.

        With weights, the error is that of a ratio of two sums (Cochran, Sampling Techniques, section 6.3).
        """
        count = len(values)
        weights = [1.0] * count if weights is None else weights
        total = math.fsum(weights)
        if not total:
            return cls(math.nan, math.nan, count)
        mean = math.fsum(weight * value for weight, value in zip(weights, values, strict=True)) / total
        if count < 2 or not math.isfinite(mean):
            return cls(mean, math.nan, count)
        squares = math.fsum((weight * (value - mean)) ** 2 for weight, value in zip(weights, values, strict=True))
        return cls(mean, math.sqrt(squares * count / (count - 1)) / total, count)

    @property
    def beyond_noise(self) -> bool:
        """Whether the mean is further from zero than chance would explain."""
        return self.count >= FEWEST and abs(self.mean) > BEYOND * self.error
