"""Codes for weights that are normally distributed: trellis codes, values at equal distances, and the best there can be.

The sequences of a trellis are LENGTH numbers at most, tail-biting: a state's value is that of its bits, and the next
state has lost the oldest of them and got new ones (Tseng, Sun, Hou and De Sa, "QTIP", 2024, arXiv:2406.11235).
Viterbi's algorithm, in trellis.c, finds the best sequence.
"""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
LENGTH = 256
WIDTHS = range(1, 9)
"""Bits of a number."""
STEPS = (1.596, 0.9957, 0.586, 0.3352, 0.1881, 0.1041, 0.0569, 0.0308)
"""By bits, the best distance of values for a normal distribution (Max, 1960)."""


@dataclass(frozen=True)
class Code:
    """How normal numbers are rounded to so many bits, and the mean square that takes, by bits."""

    rounded: Callable[[Floats, int], Floats]
    lost: dict[int, float]

    @classmethod
    def of(cls, rounded: Callable[[Floats, int], Floats], count: int = 8192) -> "Code":
        """Tried on ``count`` numbers."""
        x = np.random.default_rng(1).standard_normal(count).astype(np.float32)
        return cls(rounded, {bits: float(np.square(rounded(x, bits) - x).mean()) for bits in WIDTHS})


def trellis(states: int) -> Code:
    """The values of 2^``states`` states are the quantiles of the normal distribution, shuffled."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "trellis.so"
        flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
        subprocess.run(["cc", *flags, Path(__file__).with_name("trellis.c"), "-o", built], check=True)
        round_column: Any = ctypes.CDLL(str(built)).round_column
    size = 1 << states
    quantiles = np.array([NormalDist().inv_cdf((i + 0.5) / size) for i in range(size)], np.float32)
    code = np.random.default_rng(0).permutation(quantiles / quantiles.std())
    room = [np.empty(size, np.float32), np.empty(size, np.float32), np.empty((LENGTH + 1) * size // 2, np.uint8)]

    def rounded(x: Floats, bits: int) -> Floats:
        shrunk = np.float32((1 - 4.0**-bits) ** 0.5)
        x, out, length = np.ascontiguousarray(x / shrunk), np.empty(len(x), np.float32), -(-len(x) // LENGTH)
        arrays = (code, x, *room, np.empty(LENGTH, np.int32), out)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        round_column(states, bits, *pointers[:2], len(x), -(-len(x) // length), *pointers[2:])
        return out * shrunk

    return Code.of(rounded, 1024 if states > 12 else 8192)


def uniform() -> Code:
    """Values at equal distances."""

    def rounded(x: Floats, bits: int) -> Floats:
        half, step = 2 ** (bits - 1), np.float32(STEPS[bits - 1])
        values: Floats = (np.clip(np.floor(x / step), -half, half - 1) + np.float32(0.5)) * step
        return values

    return Code.of(rounded)


def ideal() -> Code:
    """Errors of the least size there is, as random numbers."""
    random = np.random.default_rng(5)

    def rounded(x: Floats, bits: int) -> Floats:
        lost, noise = 4.0**-bits, random.standard_normal(len(x)).astype(np.float32)
        return ((1 - lost) * x + (lost * (1 - lost)) ** 0.5 * noise).astype(np.float32)

    return Code(rounded, {bits: 4.0**-bits for bits in WIDTHS})


def rotation(size: int, seed: int) -> Doubles:
    """Random signs, then a Hadamard matrix of the power of two in ``size`` and a cosine transform of what is left."""
    two = size & -size
    odd, hadamard, i = size // two, np.ones((1, 1)), np.arange(size // two)
    while len(hadamard) < two:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    cosine: Doubles = np.cos(np.pi * (i + 0.5) * i[:, None] / odd) * np.sqrt(np.where(i[:, None], 2, 1) / odd)
    turn: Doubles = np.einsum("ab,cd->acbd", cosine, hadamard / two**0.5).reshape(size, size)
    return turn * np.random.default_rng(seed).choice([-1.0, 1.0], size)
