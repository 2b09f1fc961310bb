"""Validation of option values: each check returns its problems as sentences, so that all are told at once."""

import math
from collections.abc import Iterable
from reprlib import repr as shortened
from typing import cast

LARGEST = 3.4e38
"""About the largest float32, in which all arithmetic on logits is done."""


def number(
    name: str,
    value: object,
    kind: type[int] | type[float],
    low: float = -math.inf,
    high: float = math.inf,
    *,
    above: bool = False,
    below: bool = False,
) -> list[str]:
    """Nothing for a finite number from ``low`` to ``high``, with ``above`` and ``below`` the bound itself left out."""
    accepted = (int,) if kind is int else (int, float)
    if not isinstance(value, accepted) or isinstance(value, bool):
        return [f"{name}: {kind.__name__} expected, found {shortened(value)}"]
    finite = kind is int or abs(value) <= LARGEST
    if finite and low <= value <= high and not (above and value == low) and not (below and value == high):
        return []
    bounds = [f"{'above' if above else 'at least'} {low:g}"] if low > -math.inf else []
    bounds += [f"{'below' if below else 'at most'} {high:g}"] if high < math.inf else []
    limits = " and ".join(bounds if finite else ["finite", *bounds]) or "finite"
    if len(bounds) == 2 and not above and not below:
        limits = f"between {low:g} and {high:g}"
    return [f"{name}: must be {limits}, found {shortened(value)}"]


def boolean(name: str, value: object) -> list[str]:
    """Nothing for True and False."""
    return [] if isinstance(value, bool) else [f"{name}: True or False expected, found {shortened(value)}"]


def token_ids(name: str, value: object, *, least: int = 0) -> list[str]:
    """Nothing for a tuple of ``least`` token ids or more."""
    if not isinstance(value, tuple):
        return [f"{name}: a list of token ids expected, found {shortened(value)}"]
    ids = tuple(cast(Iterable[object], value))
    for token_id in ids:
        if not isinstance(token_id, int) or isinstance(token_id, bool) or not 0 <= token_id < 2**31:
            return [f"{name}: a token id is a whole number from 0 to 2147483647, found {shortened(token_id)}"]
    return [f"{name}: at least {least} token id expected, found none"] if len(ids) < least else []


def functions(name: str, value: object) -> list[str]:
    """Nothing for a tuple of functions."""
    if not isinstance(value, tuple):
        return [f"{name}: a list of functions expected, found {shortened(value)}"]
    others = [v for v in cast(tuple[object, ...], value) if not callable(v)]
    return [f"{name}: a function expected, found {shortened(other)}" for other in others]
