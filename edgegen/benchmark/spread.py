"""Spread: the middle of what repeated measurements gave, and how far they lie apart."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Self


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest: of a handful of repeats nothing finer can be said."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Of one value or more."""
        every = tuple(values)
        return cls(median(every), min(every), max(every))

    @classmethod
    def of_known(cls, values: Iterable[float | None]) -> Self | None:
        """None where a value is not known."""
        every = tuple(values)
        known = tuple(value for value in every if value is not None)
        return cls.of(known) if len(known) == len(every) else None
