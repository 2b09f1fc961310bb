"""Kept: what the layers of a case keep, and how exact its graphs are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["growing", "windowed", "shared", "fixed"]

CHOICE = frozenset((b"Exp", b"Neg", b"TopK", b"GatherElements", b"ScatterElements", b"ReduceSum"))
"""Operators that choose experts by sigmoids and biases."""

SCAN = frozenset((b"Neg", b"Squeeze"))
"""Operators around a selective scan."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Expectations of the tests of models whose layers keep different things.

    Attributes:
        states: layer and kind of each state, in the order of the manifest.
        bytes_per_row: bytes of the fixed states of a sequence.
        operators: those that are neither edgegen's nor exact, but for matrices.
        rolled_back: whether the states can do without the last tokens of a run.
        config: what else changes with the vocabulary of the bundle.
    """

    states: tuple[tuple[int, State], ...]
    bytes_per_row: int = 0
    operators: frozenset[bytes] = frozenset()
    rolled_back: bool = False
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])


def fixed(*layers: int) -> tuple[tuple[int, State], ...]:
    """Return two fixed states for each of the layers: of a convolution and of what follows it."""
    return tuple((layer, "fixed") for layer in layers for _ in range(2))
