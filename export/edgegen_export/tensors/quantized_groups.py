"""Groups: the codes, scales and zeros of a prequantized matrix, whose rows are quantized in groups of columns."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Grouping:
    """``size``: how many columns of a row share a scale and a zero; ``in_order``: they are consecutive ones.

    ``symmetric``: every zero is the middle of the codes, ``2 ** (bits - 1)``.
    """

    bits: int
    size: int
    in_order: bool
    symmetric: bool


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """A weight is ``(code - zero) * scale``, with the scale and the zero of its group.

    ``codes`` uint8 [n, k]; ``scales`` [n, groups], in the dtype in which they are stored; ``zeros`` uint8 [n, groups].
    """

    codes: NDArray[np.uint8]
    scales: NDArray[Any]
    zeros: NDArray[np.uint8]
