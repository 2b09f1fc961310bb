"""Vectors of an int4 KV cache by their definition in kernels/attention/attention.h, in NumPy."""

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def mixed(x: Array) -> Array:
    """Vectors, the last axis, times a Hadamard matrix in blocks of the largest power of two that divides their size."""
    size = x.shape[-1]
    block = size & -size
    matrix = reduce(np.kron, [[[1, 1], [1, -1]]] * (block.bit_length() - 1), np.ones((1, 1))) / block**0.5
    return (x.reshape(*x.shape[:-1], -1, block) @ matrix).reshape(x.shape)


def upper_half(x: Array, added: int) -> Array:
    """Floats of which the upper 16 bits are kept, after ``added`` to the bits."""
    return ((x.astype(np.float32).view(np.uint32) + np.uint32(added)) & np.uint32(0xFFFF0000)).view(np.float32)


def packed(x: Array) -> Array:
    """The bytes of mixed vectors."""
    size = x.shape[-1]
    half, high, low = (size + 1) // 2, x.max(-1, initial=0, keepdims=True), x.min(-1, initial=0, keepdims=True)
    scale = upper_half((high - low) / 15, 0xFFFF)
    middle = upper_half(low + 8 * scale, 0x8000)
    codes = (np.rint((x - middle) / np.where(scale > 0, scale, 1)).clip(-8, 7) + 8).astype(np.uint8)
    codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], size % 2), np.uint8)], -1)
    levels = np.concatenate([scale, middle], -1).view(np.uint16)[..., 1::2]
    return np.concatenate([codes[..., :half] | codes[..., half:] << 4, np.ascontiguousarray(levels).view(np.uint8)], -1)


def codes_of(rows: Array, size: int) -> Array:
    """The codes of such bytes, -8 to 7."""
    half = (size + 1) // 2
    return np.concatenate([rows[..., :half] & 15, rows[..., : size - half] >> 4], -1).astype(np.int64) - 8


def levels_of(rows: Array) -> tuple[Array, Array]:
    """Scales and middles, with an axis of one after them."""
    halves = np.ascontiguousarray(rows[..., -4:]).view(np.uint16).astype(np.uint32) << 16
    return halves.view(np.float32)[..., :1], halves.view(np.float32)[..., 1:]


def numbers(rows: Array, size: int) -> Array:
    """The vectors that such bytes stand for, no longer mixed."""
    scale, middle = levels_of(rows)
    return mixed(codes_of(rows, size) * scale.astype(np.float64) + middle)
