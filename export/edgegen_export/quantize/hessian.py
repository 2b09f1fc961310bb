"""Hessian: sums of products of what a matrix takes, ``x.T @ x``, and the triangular factors of it that GPTQ works with.

Columns of wide matrices are parted into groups, and what lies between two groups is taken as zero. The products of all
columns grow with the square of their number and the factor with its cube; a group has few enough that some thousand
inputs tell how its columns depend on each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen_export.files.scratch import Scratch
from edgegen_export.files.threads import in_threads
from edgegen_export.quantize.blockwise import Floats

DAMPING = 0.01
"""Share of the mean of the diagonal that is added to it."""

_ENOUGH, _SHRINKS = 8, 4
"""Inputs for each column from which the products of two columns are taken as they are; with fewer, n for k columns,
they are multiplied by ``_SHRINKS * n / (_SHRINKS * n + k)``: what is between columns is known less well than what they
are themselves, and GPTQ would fit it (Ledoit and Wolf, 2004, shrink covariances likewise)."""

MOST_IN_GROUP = 2560
"""Columns of a group at most."""

_MULTIPLE = 64
"""Columns of a group are a multiple of this: of every block that formats have."""

_STRIP = 384
"""Rows of a square that are computed at once; what is below its diagonal is not."""

_PANEL = 128
"""Columns of a factor that are made together."""

TOGETHER = 128
"""Columns whose own corner of a factor is inverted."""


def column_groups(columns: int) -> list[slice]:
    """The groups of so many columns, of equal size but for the last."""
    count = -(-columns // MOST_IN_GROUP)
    step = -(-columns // (count * _MULTIPLE)) * _MULTIPLE if count > 1 else columns
    return [slice(first, min(first + step, columns)) for first in range(0, columns, step or 1)]


class Hessian:
    """``squares``: for each group of columns the upper triangle of ``x.T @ x``; below it is nothing of use. ``inputs``:
    how many rows x has; None where that does not matter."""

    def __init__(self, squares: Sequence[Floats], inputs: int | None = None) -> None:
        self.squares, self.inputs = squares, inputs

    @classmethod
    def zeros(cls, columns: int, scratch: Scratch) -> "Hessian":
        """That of no inputs yet, in ``scratch``."""
        sizes = (group.stop - group.start for group in column_groups(columns))
        return cls([scratch.empty((size, size)) for size in sizes], 0)

    @classmethod
    def unit(cls, columns: int) -> "Hessian":
        """That of inputs of which one column is as large as another, and none depends on others."""
        return cls([np.eye(group.stop - group.start, dtype=np.float32) for group in column_groups(columns)])

    def add(self, x: Floats) -> None:
        """Add inputs x [n, columns]."""

        def add(strip: tuple[Floats, Floats, int]) -> None:
            square, of_group, first = strip
            last = first + _STRIP
            square[first:last, first:] += of_group[:, first:last].T @ of_group[:, first:]

        parts = ((square, x[:, group]) for square, group in self._groups())
        strips = ((square, part, first) for square, part in parts for first in range(0, len(square), _STRIP))
        for _ in in_threads(add, strips):
            pass
        self.inputs = (self.inputs or 0) + len(x)

    def divide(self, factors: Floats) -> None:
        """Divide the columns of the inputs by ``factors`` [columns]."""
        for square, group in self._groups():
            square /= factors[group]
            square /= factors[group, None]

    def added_to_diagonal(self, share: float) -> "Hessian":
        """With this share of the mean of the diagonal on it."""
        mean = float(np.concatenate([np.diagonal(square) for square in self.squares]).mean())
        result = Hessian([square.copy() for square in self.squares], self.inputs)
        for square in result.squares:
            np.einsum("ii->i", square)[:] += np.float32(share * mean)
        return result

    def kept(self, columns: int) -> float:
        """Return the factor of products of two different columns, of a group with that number of ``columns``."""
        if self.inputs is None or self.inputs >= _ENOUGH * columns:
            return 1.0
        return _SHRINKS * self.inputs / (_SHRINKS * self.inputs + columns)

    def _groups(self) -> Iterator[tuple[Floats, slice]]:
        first = 0
        for square in self.squares:
            yield square, slice(first, first + len(square))
            first += len(square)


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """Of the damped Hessian of a group of columns, padded to whole blocks: ``upper`` [k, k], upper triangular, with
    ``upper @ upper.T`` the Hessian; ``corners``: the inverses of its own corners of ``TOGETHER`` columns, the last of
    which may be smaller."""

    upper: Floats
    corners: Sequence[Floats]


def factors_of(hessian: Hessian, block_size: int) -> list[Factor]:
    """The factor of each group of columns, float32."""

    def factor(square: Floats) -> Factor:
        return _factor(square, block_size, hessian.kept(len(square)))

    return [*in_threads(factor, hessian.squares)]


def lost_by(errors: Floats, factors: Sequence[Factor]) -> float:
    """Return the square of what ``errors`` [n, k] of a matrix change of its products with the inputs of the Hessian."""
    lost, first = 0.0, 0
    for factor in factors:
        part = errors[:, first : first + len(factor.upper)]
        lost += float(np.square(part @ factor.upper[: part.shape[1]]).sum(dtype=np.float64))
        first += len(factor.upper)
    return lost


def _factor(square: Floats, block_size: int, kept: float) -> Factor:
    try:
        upper = _upper(square, block_size, kept, np.dtype(np.float32))
    except np.linalg.LinAlgError:  # some inputs are too large beside others, damping or not
        upper = _upper(square, block_size, kept, np.dtype(np.float64))
    corners = (upper[first : first + TOGETHER, first : first + TOGETHER] for first in range(0, len(upper), TOGETHER))
    return Factor(upper, [np.triu(np.linalg.inv(corner.astype(np.float64))).astype(np.float32) for corner in corners])


def _upper(square: Floats, block_size: int, kept: float, dtype: np.dtype[Any]) -> Floats:
    k = len(square)
    columns = -(-k // block_size) * block_size
    # Seen from the other end it is lower triangular: Cholesky's factor.
    damped: NDArray[Any] = np.eye(columns, dtype=dtype)
    damped[columns - k :, columns - k :] = square[::-1, ::-1]
    diagonal = np.einsum("ii->i", damped)
    if kept < 1:
        full = diagonal.copy()
        damped *= dtype.type(kept)
        diagonal[:] = full
    diagonal[diagonal == 0] = 1  # a column that is always multiplied with zero
    diagonal += DAMPING * float(diagonal[columns - k :].mean(dtype=np.float64))
    _cholesky(damped)
    return np.ascontiguousarray(damped[::-1, ::-1], np.float32)


def _cholesky(matrix: NDArray[Any]) -> None:
    """The lower Cholesky factor of ``matrix`` in its place, panel by panel; what is above its diagonal is not read."""
    size = len(matrix)
    for start in range(0, size, _PANEL):
        stop = min(start + _PANEL, size)
        panel, above = matrix[:, start:stop], matrix[start:stop, :start]
        panel[start:stop] -= above @ above.T
        corner = np.linalg.cholesky(panel[start:stop].astype(np.float64))
        solved = np.linalg.inv(corner).T.astype(matrix.dtype)

        def below(first: int, panel: NDArray[Any] = panel, start: int = start, solved: NDArray[Any] = solved) -> None:
            rows = slice(first, first + 4 * _PANEL)
            left = panel[rows] - matrix[rows, :start] @ matrix[start : start + panel.shape[1], :start].T
            panel[rows] = left @ solved

        for _ in in_threads(below, range(stop, size, 4 * _PANEL)):
            pass
        panel[start:stop] = corner
        matrix[start:stop, stop:] = 0
