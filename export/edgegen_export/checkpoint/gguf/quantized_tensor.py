"""QuantizedTensor: rows of quantized blocks in a mapped file, dequantized where and when they are read."""

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from edgegen_export.checkpoint.gguf.formats import Format
from edgegen_export.checkpoint.mxfp4 import MIDDLE, TWICE
from edgegen_export.tensors.lazy import LazyTensor, Transposed, check_take
from edgegen_export.tensors.mapped_file import MappedFile
from edgegen_export.tensors.quantized_groups import Grouping, Groups

_STEP = 1 << 20  # values dequantized at a time


class QuantizedTensor(LazyTensor):
    """A matrix [rows, columns] whose rows are blocks of their own; a part of it touches only the blocks it lies in."""

    __slots__ = ("_blocks", "_file", "_first", "_format", "_name")

    def __init__(
        self,
        blocks: NDArray[np.uint8],
        *,
        name: str,
        format: Format,  # noqa: A002 (what GGUF calls it)
        file: MappedFile,
        columns: tuple[int, int] | None = None,
    ) -> None:
        """``blocks`` [rows, bytes]: the raw rows; ``columns``: which of their values count, all by default."""
        first, last = columns or (0, blocks.shape[1] // format.nbytes * format.block)
        super().__init__((blocks.shape[0], last - first), format.name)
        self._blocks = blocks
        self._first = first
        self._name = name
        self._format = format
        self._file = file

    @property
    def names(self) -> tuple[str, ...]:
        return (self._name,)

    def transposed(self) -> LazyTensor:
        return Transposed(self)

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        check_take(self, start, stop, axis)
        if axis == 0:
            return self._over(self._blocks[start:stop], self._first, self.shape[1])
        block, nbytes = self._format.block, self._format.nbytes
        begin = (self._first + start) // block
        end = max(begin, -(-(self._first + stop) // block))
        part = self._blocks[:, begin * nbytes : end * nbytes]
        return self._over(part, self._first + start - begin * block, stop - start)

    def _over(self, blocks: NDArray[np.uint8], first: int, count: int) -> LazyTensor:
        columns = (first, first + count)
        return type(self)(blocks, name=self._name, format=self._format, file=self._file, columns=columns)

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        if not out.size:
            return
        kind = GGMLQuantizationType[self._format.name]
        width = self._blocks.shape[1] // self._format.nbytes * self._format.block
        step = max(1, _STEP // width)
        for at in range(start, stop, step):
            stored = self._blocks[at : min(at + step, stop)]
            with np.errstate(over="ignore", invalid="ignore"):  # values are judged later, by name
                values = dequantize(np.ascontiguousarray(stored), kind)
            out[at - start : at - start + len(stored)] = values[:, self._first : self._first + out.shape[1]]
            self._file.release(stored)

    def _release(self, start: int, stop: int) -> None:
        self._file.release(self._blocks[start:stop])


class Mxfp4Rows(QuantizedTensor):
    """Rows in MXFP4: a byte for the exponent of 32 values, then their codes, those of the first half in the low bits.

    Twice a value is a whole number, so that 8-bit codes with half the scale say exactly the same.
    """

    __slots__ = ()

    @property
    def grouping(self) -> Grouping | None:
        whole = self.shape[1] == self._blocks.shape[1] // self._format.nbytes * self._format.block
        return Grouping(bits=8, size=self._format.block, in_order=True, symmetric=True) if whole else None

    def groups(self) -> Groups:
        stored = self._blocks.reshape(len(self._blocks), -1, self._format.nbytes)
        low, high = stored[..., 1:] & np.uint8(15), stored[..., 1:] >> np.uint8(4)
        codes = (TWICE[np.concatenate([low, high], axis=-1)] + np.int16(MIDDLE)).astype(np.uint8)
        scales = np.ldexp(np.float32(1), stored[..., 0].astype(np.int32) - 128).astype(ml_dtypes.bfloat16)
        self.release()
        return Groups(codes.reshape(self.shape), scales, np.full(scales.shape, MIDDLE))
