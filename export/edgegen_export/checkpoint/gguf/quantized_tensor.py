"""QuantizedTensor: rows of quantized blocks in a mapped file, dequantized where and when they are read."""

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from edgegen_export.checkpoint.gguf.formats import Format
from edgegen_export.checkpoint.stored_rows import TWICE
from edgegen_export.tensors.mapped_file import MappedFile
from edgegen_export.tensors.quantized_groups import Grouping, Groups
from edgegen_export.tensors.unpacked_matrix import UnpackedMatrix

_MIDDLE = np.uint8(128)


class QuantizedTensor(UnpackedMatrix):
    """A matrix whose rows are blocks of their own; a part of it touches only the blocks it lies in."""

    __slots__ = ("_blocks", "_file", "_format")

    def __init__(
        self,
        blocks: NDArray[np.uint8],
        *,
        name: str,
        format: Format,  # noqa: A002 (what GGUF calls it)
        file: MappedFile,
    ) -> None:
        """``blocks`` [rows, bytes]: the raw rows."""
        super().__init__((blocks.shape[0], blocks.shape[1] // format.nbytes * format.block), format.name, name)
        self._blocks = blocks
        self._format = format
        self._file = file

    def _stored(self, start: int, stop: int) -> tuple[NDArray[np.uint8], int]:
        """The blocks that this part's columns lie in, of rows of the whole matrix, and how far in the first begins."""
        (first, last), block, nbytes = self._columns, self._format.block, self._format.nbytes
        begin = first // block
        end = max(begin, -(-last // block))
        return self._blocks[start:stop, begin * nbytes : end * nbytes], first - begin * block

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        if not out.size:
            return
        kind = GGMLQuantizationType[self._format.name]
        first = self._rows[0] + start
        for at, end in self._steps(first, self._rows[0] + stop):
            stored, left = self._stored(at, end)
            with np.errstate(over="ignore", invalid="ignore"):  # values are judged later, by name
                values = dequantize(np.ascontiguousarray(stored), kind)
            out[at - first : end - first] = values[:, left : left + out.shape[1]]
            self._file.release(stored)

    def _release(self, start: int, stop: int) -> None:
        self._file.release(self._stored(self._rows[0] + start, self._rows[0] + stop)[0])


class Mxfp4Rows(QuantizedTensor):
    """Rows in MXFP4: a byte for the exponent of 32 values, then their codes, those of the first half in the low bits.

    Twice a value is a whole number, so that 8-bit codes with half the scale say exactly the same.
    """

    __slots__ = ()

    @property
    def grouping(self) -> Grouping | None:
        block = self._format.block
        whole = not any(column % block for column in self._columns)
        return Grouping(bits=8, size=block, in_order=True, symmetric=True) if whole else None

    def groups(self) -> Groups:
        stored = self._stored(*self._rows)[0].reshape(self.shape[0], -1, self._format.nbytes)
        low, high = stored[..., 1:] & np.uint8(15), stored[..., 1:] >> np.uint8(4)
        codes = (TWICE[np.concatenate([low, high], axis=-1)] + np.int16(_MIDDLE)).astype(np.uint8)
        scales = np.ldexp(np.float32(1), stored[..., 0].astype(np.int32) - 128).astype(ml_dtypes.bfloat16)
        self.release()
        return Groups(codes.reshape(self.shape), scales, np.full(scales.shape, _MIDDLE))
