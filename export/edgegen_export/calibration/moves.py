"""Moves: what calibration did to matrices before they were quantized, so that the same can be done to an adapter's.

Smoothing multiplies rows and columns, key rotation turns rows. A bundle keeps the factors and angles in a file of its
own, which only an export reads.
"""

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.calibration.key_rotation import Angles, turned_rows
from edgegen_export.tensors.lazy import LazyTensor

Floats = NDArray[np.float32]

MOVES = "moves.safetensors"
"""The file of them in a bundle."""


class Moves:
    """By module, factors of ``rows`` and ``columns``, and ``angles`` by which pairs of rows were turned after that."""

    def __init__(self, arrays: Mapping[str, Floats] | None = None) -> None:
        self.arrays: dict[str, Floats] = dict(arrays or {})
        """``layers.0.attn.q.columns`` and so on, as they are stored."""

    def multiply_rows(self, module: str, factors: Floats) -> None:
        self._multiply(f"{module}.rows", factors)

    def multiply_columns(self, module: str, factors: Floats) -> None:
        self._multiply(f"{module}.columns", factors)

    def turn(self, module: str, angles: Angles) -> None:
        """The pairs of rows of queries or keys; ``angles`` [heads, dim / 2]."""
        self.arrays[f"{module}.angles"] = angles.astype(np.float32)

    def applied(self, config: DecoderConfig, module: str, matrix: LazyTensor) -> LazyTensor:
        """``matrix`` [rows, columns] as the module's own became."""
        rows, columns, angles = (self.arrays.get(f"{module}.{kind}") for kind in ("rows", "columns", "angles"))
        if rows is not None:
            matrix = matrix.scaled(rows)
        if columns is not None:
            matrix = matrix.scaled(columns, axis=1)
        if angles is None:
            return matrix
        own = config.attentions[int(re.findall(r"\d+", module)[0])]
        assert own.rope is not None
        return turned_rows(matrix, angles.astype(np.float64), own.rope, own.head_dim)

    def _multiply(self, name: str, factors: Floats) -> None:
        before = self.arrays.get(name)
        self.arrays[name] = factors if before is None else before * factors
