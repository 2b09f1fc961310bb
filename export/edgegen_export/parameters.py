"""Parameters: where the blocks get a model's weights from, by our names.

Two kinds behind one interface: :class:`StoredParameters` quantizes a weight and appends it to the bundle's weights
file the first time a graph asks for it, so that any number of graphs share one copy; :class:`FedParameters` makes
every weight a float32 graph input, which lets the unquantized model run layer by layer in little memory.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgegen_export.checkpoint import LazyTensor
from edgegen_export.graph import Tensor
from edgegen_export.quantize.blockwise import block_size_for, quantize_rows
from edgegen_export.quantize.recipe import Recipe


@dataclass(frozen=True, slots=True)
class FloatMatrix:
    """A matrix float32 [rows, columns]; a linear layer is ``x @ weight.T``."""

    weight: Tensor
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class BlockMatrix:
    """A matrix in blocks: codes uint8 [rows, blocks, bytes per block], scales float32 [rows, blocks].

    ``table`` is the same bytes seen as [rows, blocks · block_size], which the block-wise gather wants.
    """

    codes: Tensor
    table: Tensor
    scales: Tensor
    rows: int
    columns: int
    bits: int
    block_size: int
    accuracy_level: int


Matrix = FloatMatrix | BlockMatrix


class Parameters(Protocol):
    """Weights by module name; several modules ask for one fused weight, their rows one after the other."""

    def matrix(self, *modules: str) -> Matrix: ...

    def bias(self, *modules: str) -> Tensor | None:
        """The fused bias float32 [rows], or None where no module has one."""
        ...

    def vector(self, name: str) -> Tensor:
        """A float32 tensor stored as it is: a norm's weight, a position table."""
        ...


class WeightSink(Protocol):
    """What a weights file offers to :class:`StoredParameters`."""

    def begin(self, nbytes: int) -> int: ...

    def append(self, array: NDArray[np.generic]) -> None: ...


class StoredParameters:
    """Parameters written to a weights file, each once, in the order in which the first graph asks for them."""

    def __init__(
        self,
        tensors: Mapping[str, LazyTensor],
        recipe: Recipe,
        sink: WeightSink,
        on_tensor: Callable[[int], None],
    ) -> None:
        self._tensors = tensors
        self._recipe = recipe
        self._sink = sink
        self._on_tensor = on_tensor
        self._matrices: dict[str, Matrix] = {}
        self._vectors: dict[str, Tensor] = {}
        self.not_finite: list[str] = []
        """The checkpoint's names of weights with NaN or infinity; a bundle made of any must not be kept."""

    def matrix(self, *modules: str) -> Matrix:
        name = fused_name(modules) + ".weight"
        if name not in self._matrices:
            store = self._store_blocks if self._recipe.quantized else self._store_floats
            self._matrices[name] = store(name, fused_weight(self._tensors, modules))
        return self._matrices[name]

    def bias(self, *modules: str) -> Tensor | None:
        bias = fused_bias(self._tensors, modules)
        return None if bias is None else self._store(fused_name(modules) + ".bias", bias)

    def vector(self, name: str) -> Tensor:
        return self._store(name, self._tensors[name])

    def _store(self, name: str, source: LazyTensor) -> Tensor:
        if name not in self._vectors:
            offset = self._sink.begin(4 * math.prod(source.shape))
            for _, _, slab in source.slabs():
                self._check(source, slab)
                self._sink.append(slab)
            self._vectors[name] = _tensor(name, "float32", source.shape, offset)
            self._on_tensor(math.prod(source.shape))
        return self._vectors[name]

    def _store_floats(self, name: str, source: LazyTensor) -> FloatMatrix:
        rows, columns = source.shape
        return FloatMatrix(self._store(name, source), rows, columns)

    def _store_blocks(self, name: str, source: LazyTensor) -> BlockMatrix:
        rows, columns = source.shape
        block = block_size_for(columns, self._recipe.block_size)
        blocks = -(-columns // block)
        scales = np.empty((rows, blocks), np.float32)
        offset = self._sink.begin(rows * blocks * block)
        for start, stop, slab in source.slabs():
            self._check(source, slab)
            if self.not_finite:
                continue  # nothing will be kept; go on for the names of the others
            codes, scales[start:stop] = quantize_rows(slab, block)
            self._sink.append(codes)
        scales_offset = self._sink.begin(scales.nbytes)
        self._sink.append(scales)
        self._on_tensor(rows * columns)
        return BlockMatrix(
            codes=_tensor(name, "uint8", (rows, blocks, block), offset),
            table=_tensor(name + ".table", "uint8", (rows, blocks * block), offset),
            scales=_tensor(name + ".scales", "float32", (rows, blocks), scales_offset),
            rows=rows,
            columns=columns,
            bits=self._recipe.bits,
            block_size=block,
            accuracy_level=self._recipe.accuracy_level,
        )

    def _check(self, source: LazyTensor, slab: NDArray[np.float32]) -> None:
        # The sum is not finite if an element is not, or if it overflows: only then look closely.
        with np.errstate(all="ignore"):
            if np.isfinite(slab.sum()) or np.isfinite(slab).all():
                return
        name = ", ".join(source.names)
        if name not in self.not_finite:
            self.not_finite.append(name)


class FedParameters:
    """Parameters as graph inputs; ``feeds`` reads what the graph asked for."""

    def __init__(self, tensors: Mapping[str, LazyTensor]) -> None:
        self._tensors = tensors
        self._readers: dict[str, Callable[[], NDArray[np.float32]]] = {}

    def matrix(self, *modules: str) -> FloatMatrix:
        weight = fused_weight(self._tensors, modules)
        rows, columns = weight.shape
        return FloatMatrix(self._feed(fused_name(modules) + ".weight", weight.shape, weight.read), rows, columns)

    def bias(self, *modules: str) -> Tensor | None:
        bias = fused_bias(self._tensors, modules)
        return None if bias is None else self._feed(fused_name(modules) + ".bias", bias.shape, bias.read)

    def vector(self, name: str) -> Tensor:
        return self._feed(name, self._tensors[name].shape, self._tensors[name].read)

    def feeds(self) -> dict[str, NDArray[np.float32]]:
        """Every weight asked for so far, by graph input name."""
        return {name: read() for name, read in self._readers.items()}

    def _feed(self, name: str, shape: Sequence[int], read: Callable[[], NDArray[np.float32]]) -> Tensor:
        self._readers[name] = read
        return Tensor(name, "float32", tuple(shape))


def fused_name(modules: Sequence[str]) -> str:
    """``layers.0.attn.q``, ``layers.0.attn.k`` → ``layers.0.attn.q+k``."""
    parent = modules[0].rpartition(".")[0]
    return ".".join(filter(None, [parent, "+".join(m.rpartition(".")[2] for m in modules)]))


def fused_weight(tensors: Mapping[str, LazyTensor], modules: Sequence[str]) -> LazyTensor:
    """The modules' weights, their rows one after the other."""
    return LazyTensor.concat([tensors[f"{m}.weight"] for m in modules])


def fused_bias(tensors: Mapping[str, LazyTensor], modules: Sequence[str]) -> LazyTensor | None:
    """The modules' biases one after the other, zeros where one has none; None where none has."""
    found = [tensors.get(f"{m}.bias") for m in modules]
    if len(found) == 1 or all(bias is None for bias in found):
        return found[0]
    rows = [tensors[f"{m}.weight"].shape[0] for m in modules]
    return LazyTensor.concat(
        [bias or LazyTensor.from_array(np.zeros(n, np.float32)) for n, bias in zip(rows, found, strict=True)]
    )


def _tensor(name: str, dtype: str, shape: tuple[int, ...], offset: int) -> Tensor:
    return Tensor(name, dtype, shape, offset, math.prod(shape) * np.dtype(dtype).itemsize)
