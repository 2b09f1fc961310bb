"""The quantizer's inner loops in C, from the library of edgegen's kernels: the bits of the NumPy code, without the GIL.

The functions return None where NumPy is to do it: there is no library, or the block is larger than it takes.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.model.kernels import kernel_library

Floats = NDArray[np.float32]
ScalesAndZeros = tuple[Floats, Floats]

_MOST_COLUMNS, _LANES = 256, 16
_SIZES = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int)


def native_search(groups: Floats, importance: Floats, bits: int, *, symmetric: bool) -> ScalesAndZeros | None:
    """:func:`scale_search.search_scales` of ``groups`` [block, m]."""
    library, (columns, rows) = _library(), groups.shape
    if library is None or columns > _MOST_COLUMNS:
        return None
    x, weights = np.ascontiguousarray(groups, np.float32), np.ascontiguousarray(importance, np.float32)
    scales, zeros = np.empty(rows, np.float32), np.empty(rows, np.float32)
    arrays = (each.ctypes.data for each in (x, weights, scales, zeros))
    refused = library.edgegen_search_scales(columns, rows, bits, symmetric, *arrays)
    assert not refused
    return scales, zeros


def native_block(
    part: Floats, upper: Floats, bits: int, codes: NDArray[np.uint8], errors: Floats, *, symmetric: bool
) -> ScalesAndZeros | None:
    """Round a block by GPTQ: its columns ``part`` [block, n], which are written, as are their ``codes`` and ``errors``.

    ``upper`` [block, block]: the block's corner of the factor, whose rows may lie apart. All others are contiguous.
    """
    library, (columns, rows) = _library(), part.shape
    if library is None or columns > _MOST_COLUMNS:
        return None
    assert all(each.flags.c_contiguous for each in (part, codes, errors))
    assert codes.shape == errors.shape == part.shape
    assert upper.strides[1] == upper.itemsize
    stride = upper.strides[0] // upper.itemsize
    scales, zeros = np.empty(rows, np.float32), np.empty(rows, np.float32)
    inputs = (part.ctypes.data, upper.ctypes.data, stride)
    outputs = (each.ctypes.data for each in (scales, zeros, codes, errors))
    refused = library.edgegen_gptq_block(columns, rows, bits, symmetric, *inputs, *outputs)
    assert not refused
    return scales, zeros


def native_nearest(grouped: Floats, bits: int) -> tuple[NDArray[np.uint8], Floats] | None:
    """Return codes and scales of :func:`blockwise.round_rows` for ``grouped`` [n, blocks, block]."""
    library, size = _library(), grouped.shape[2]
    if library is None or not size or size % _LANES or size > _MOST_COLUMNS:
        return None
    x = np.ascontiguousarray(grouped, np.float32)
    codes, scales = np.empty(x.shape, np.uint8), np.empty(x.shape[:2], np.float32)
    refused = library.edgegen_round_nearest(scales.size, size, bits, *(y.ctypes.data for y in (x, scales, codes)))
    assert not refused
    return codes, scales


@cache
def _library() -> Any:
    path = kernel_library()
    if path is None:
        return None
    library, pointer = ctypes.CDLL(str(path)), ctypes.c_void_p
    try:
        library.edgegen_search_scales.argtypes = (*_SIZES, *[pointer] * 4)
        library.edgegen_gptq_block.argtypes = (*_SIZES, pointer, pointer, ctypes.c_size_t, *[pointer] * 4)
        library.edgegen_round_nearest.argtypes = (*_SIZES[:3], *[pointer] * 3)
    except AttributeError:  # a library from before there was this
        return None
    return library
