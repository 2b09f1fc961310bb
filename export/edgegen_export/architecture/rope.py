"""Rotary position embeddings (RoPE, Su et al. 2021, arXiv:2104.09864) and their context extensions (RoPE scaling).

A rotation is given by its inverse frequencies: pair k of a head is rotated by ``position · inverse[k]``. They are
computed in float32, as in the models' own code. Some scalings depend on the sequence length; a model is exported for
one context length, and they are fixed for it.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Linear:
    """Positions divided by ``factor``."""

    factor: float


@dataclass(frozen=True, slots=True)
class DynamicNtk:
    """The base grows with the length beyond ``original`` positions."""

    factor: float
    original: int


@dataclass(frozen=True, slots=True)
class Yarn:
    """Frequencies above ``fast`` rotations in ``original`` positions stay, those below ``slow`` are divided by
    ``factor``, between is a ramp (Peng et al. 2023, arXiv:2309.00071)."""

    factor: float
    original: int
    fast: float
    slow: float
    truncate: bool
    attention_factor: float


@dataclass(frozen=True, slots=True)
class Llama3:
    """Wavelengths above ``original / low`` are stretched by ``factor``, those below ``original / high`` stay, between
    is a blend (Llama 3.1)."""

    factor: float
    original: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LongRope:
    """One factor per frequency: ``short`` up to ``original`` positions, ``long`` beyond (Ding et al. 2024,
    arXiv:2402.13753)."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int
    attention_factor: float


@dataclass(frozen=True, slots=True)
class Proportional:
    """Only the first ``pairs`` pairs turn, with the frequencies of a head whose pairs all do, divided by ``factor``."""

    pairs: int
    factor: float


Scaling = Linear | DynamicNtk | Yarn | Llama3 | LongRope | Proportional


@dataclass(frozen=True, slots=True)
class Rope:
    """The first ``dim`` values of a head are rotated in pairs: (k, k + dim/2), or (2k, 2k + 1) if ``interleaved``."""

    theta: float
    dim: int
    interleaved: bool = False
    scaling: Scaling | None = None

    @property
    def attention_factor(self) -> float:
        """The factor of cosines and sines."""
        return self.scaling.attention_factor if isinstance(self.scaling, Yarn | LongRope) else 1.0

    def inverse_frequencies(self, context: int) -> Floats:
        """float32 [dim / 2], for sequences of up to ``context`` tokens."""
        match self.scaling:
            case None:
                return _plain(self.theta, self.dim)
            case Linear(factor):
                return _plain(self.theta, self.dim) / np.float32(factor)
            case DynamicNtk(factor, original):
                stretch = factor * max(context, original) / original - (factor - 1)
                return _plain(self.theta * stretch ** (self.dim / (self.dim - 2)), self.dim)
            case Yarn():
                return _yarn(self.theta, self.dim, self.scaling)
            case Llama3():
                return _llama3(_plain(self.theta, self.dim), self.scaling)
            case Proportional(pairs, factor):
                turning = np.arange(self.dim // 2) < pairs
                return np.where(turning, _plain(self.theta, self.dim) / np.float32(factor), np.float32(0))
            case LongRope(short, long, original):
                factors = np.array(long if context > original else short, np.float32)
                return np.float32(1) / (factors * _powers(self.theta, self.dim))


def _powers(theta: float, dim: int) -> Floats:
    exponents: Floats = np.arange(0, dim, 2).astype(np.float32) / np.float32(dim)
    return np.power(np.float32(theta), exponents)


def _plain(theta: float, dim: int) -> Floats:
    return np.float32(1) / _powers(theta, dim)


def _yarn(theta: float, dim: int, scaling: Yarn) -> Floats:
    def at(rotations: float) -> float:
        """The (fractional) pair that turns so often in the original context."""
        return dim * math.log(scaling.original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = at(scaling.fast), at(scaling.slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp: Floats = np.clip((np.arange(dim // 2, dtype=np.float32) - low) / (high - low), 0, 1).astype(np.float32)
    plain = _plain(theta, dim)
    return (plain / np.float32(scaling.factor) * ramp + plain * (1 - ramp)).astype(np.float32)


def _llama3(plain: Floats, scaling: Llama3) -> Floats:
    wavelengths: Floats = np.float32(2 * math.pi) / plain
    stretched: Floats = plain / np.float32(scaling.factor)
    blend = (scaling.original / wavelengths - scaling.low) / (scaling.high - scaling.low)
    blended = (1 - blend) * stretched + blend * plain
    kept = np.where(wavelengths < scaling.original / scaling.high, plain, blended)
    return np.where(wavelengths > scaling.original / scaling.low, stretched, kept).astype(np.float32)
