"""Spread: median, minimum and maximum of repeated measurements."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Self


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum: a handful of repeats supports no finer statistics."""

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
