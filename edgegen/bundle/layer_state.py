"""LayerState: what one layer keeps of a sequence, as data: keys and values, nothing of its own, or one tensor."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

StateKind = Literal["growing", "windowed", "fixed", "shared"]
"""``growing``: keys and values of all positions; ``windowed``: of the last ones; ``fixed``: a tensor of one size, which
every run overwrites; ``shared``: the keys and values of another layer, nothing of its own."""


@dataclass(frozen=True, slots=True)
class FixedState:
    """A float32 tensor [rows, *shape] that layer ``layer`` reads as ``past`` and overwrites as ``present``.

    It has no positions: it is what all tokens so far have made of it, and zero before the first. A layer may keep
    several.
    """

    layer: int
    past: str
    present: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return 4 * math.prod(self.shape)


class LayerState(NamedTuple):
    """One state of layer ``layer``.

    ``bytes_per_token``: what a token adds, 0 if it is fixed; ``bytes_per_row``: what a sequence of any length takes,
    0 unless it is fixed; ``window``: the positions that a windowed one attends to, or a shared one; ``source``: the
    layer whose keys and values a shared one reads.
    """

    layer: int
    kind: StateKind
    bytes_per_token: int
    bytes_per_row: int
    window: int | None = None
    source: int | None = None
