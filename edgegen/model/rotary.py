"""Rotary tables (RoPE): the cosines and sines that graphs read as inputs, computed at run time instead of stored.

A table for the longest context of a model would be a noticeable part of a small bundle; one for the positions in use
costs a fraction of a millisecond. Angles are float32 products, as in the models' own code.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import RotaryTable
from edgegen.model.ort_session import Buffer

Floats = NDArray[np.float32]


def rotary_table(table: RotaryTable, positions: int) -> tuple[Floats, Floats]:
    """Cosines and sines float32 [positions, frequencies]."""
    inverse = np.array(table.inverse_frequencies, np.float32)
    angles: Floats = np.arange(positions, dtype=np.float32)[:, None] * inverse
    scale = np.float32(table.scale)
    return np.cos(angles) * scale, np.sin(angles) * scale


class RotaryTables:
    """The tables of a variant, which grow as needed."""

    def __init__(self, tables: Sequence[RotaryTable]) -> None:
        self._tables = tables
        self._positions = 0
        self._buffers: dict[str, Buffer] = {}

    def buffers(self, positions: int) -> dict[str, Buffer]:
        """Bindable tables of at least ``positions`` positions, by input name; the same ones until more are needed."""
        if positions > self._positions:
            for table in self._tables:
                cos, sin = rotary_table(table, positions)
                self._buffers |= {table.cos: Buffer(cos), table.sin: Buffer(sin)}
            self._positions = positions
        return self._buffers
