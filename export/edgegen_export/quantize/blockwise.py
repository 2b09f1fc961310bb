"""Symmetric block-wise rounding of weight matrices, in the layout of ONNX Runtime's ``MatMulNBits``."""

import numpy as np
from numpy.typing import NDArray


def block_size_for(columns: int, wanted: int) -> int:
    """The largest block ≤ ``wanted`` that divides ``columns``; 16, the operator's smallest, where none does."""
    for block in (wanted, 32, 16):
        if block <= wanted and columns % block == 0:
            return block
    return 16


def quantize_rows(rows: NDArray[np.float32], block_size: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Round ``rows`` [n, k] to 8 bits with one scale per block of ``block_size`` consecutive columns.

    Returns codes uint8 [n, blocks, block_size] and scales float32 [n, blocks]; a weight is
    ``(code - 128) * scale``, the zero point being 128. Columns beyond k are padded with the zero point.
    """
    n, k = rows.shape
    blocks = -(-k // block_size)
    if blocks * block_size != k:
        rows = np.pad(rows, ((0, 0), (0, blocks * block_size - k)))
    grouped: NDArray[np.float32] = rows.reshape(n, blocks, block_size)
    largest: NDArray[np.float32] = np.maximum(grouped.max(axis=2), -grouped.min(axis=2))
    # Denormal scales would divide to infinity; such a block is zero for every practical purpose.
    scales = np.where(largest < np.finfo(np.float32).tiny * 127, np.float32(1), largest / np.float32(127))
    codes: NDArray[np.float32] = np.divide(grouped, scales[:, :, None])
    np.rint(codes, out=codes)
    codes += np.float32(128)
    return codes.astype(np.uint8), scales.astype(np.float32, copy=False)
