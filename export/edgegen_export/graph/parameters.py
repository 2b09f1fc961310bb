"""Parameters: the model weights that graph blocks use, by our names, stored in a bundle or fed as graph inputs.

:class:`StoredParameters` quantizes a weight and appends it to the bundle's weights file when a graph first asks for it;
all graphs share that copy. :class:`FedParameters` makes every weight a float32 graph input, so that the unquantized
model can run layer by layer in little memory.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen.errors import TensorError, one_or_list
from edgegen_export.files.threads import in_threads
from edgegen_export.graph.builder import Tensor
from edgegen_export.graph.fused import (
    expert_biases,
    expert_weights,
    experts_one_by_one,
    fused_bias,
    fused_name,
    fused_weight,
    taken_by,
)
from edgegen_export.quantize.blockwise import (
    SCALE,
    Blocks,
    block_size_for,
    packed,
    packed_zeros,
    round_rows,
    widened,
)
from edgegen_export.quantize.recipe import EIGHT_BITS, HALVES, heads_format
from edgegen_export.quantize.regrouped import regrouped
from edgegen_export.quantize.scale_search import searched_rows
from edgegen_export.quantize.ternary import IN_A_BYTE, ternary_rows
from edgegen_export.tensors.lazy import LazyTensor

FLOAT16_MAX = float(np.finfo(np.float16).max)
_FLOAT32 = np.dtype(np.float32)
_SLAB = 2 << 20
"""Bytes of a matrix that one thread rounds at a time."""


@dataclass(frozen=True, slots=True)
class FloatMatrix:
    """A matrix [rows, columns] of floats; a linear layer is ``x @ weight.T``.

    ``rounded_inputs``: x is rounded to 8 bits for each token first, as ternary models do.
    """

    weight: Tensor
    rows: int
    columns: int
    rounded_inputs: bool = False


@dataclass(frozen=True, slots=True)
class BlockMatrix:
    """A block-quantized matrix: codes uint8 [rows, blocks, bytes per block], scales [rows, blocks] in bfloat16 (or the
    dtype of a repacked matrix), zero points uint8 [rows, bytes] unless it is symmetric.

    ``table`` is the same codes as [rows, bytes], the shape that the block-wise gather takes.
    """

    codes: Tensor
    table: Tensor
    scales: Tensor
    zeros: Tensor | None
    rows: int
    columns: int
    bits: int
    block_size: int
    accuracy_level: int


@dataclass(frozen=True, slots=True)
class TernaryMatrix:
    """A matrix of -1, 0 and 1 with a scale for each row, whose inputs are rounded to 8 bits for each token.

    ``codes``: uint8 [rows, columns / 4], four in a byte, the value plus 2; ``scales`` float32 [rows].
    """

    codes: Tensor
    scales: Tensor
    rows: int


@dataclass(frozen=True, slots=True)
class FloatHeads:
    """A matrix of floats for each head, [heads, rows, columns]: x of a head, [tokens, columns], gives ``x @ weight.T``;
    or where they are stored ``transposed``, [heads, columns, rows], ``x @ weight``."""

    weight: Tensor
    transposed: bool


@dataclass(frozen=True, slots=True)
class BlockHeads:
    """A matrix [rows, columns] for each of ``heads``, quantized in blocks of 8 bits, symmetric: codes uint8 [heads ·
    rows, blocks, block size] and scales [heads · rows, blocks, 1] in bfloat16."""

    codes: Tensor
    scales: Tensor
    heads: int
    rows: int
    columns: int
    block_size: int


HeadMatrices = FloatHeads | BlockHeads
Matrix = FloatMatrix | BlockMatrix
LinearMatrix = Matrix | TernaryMatrix
"""Ways in which the weight of a linear layer may be stored."""


class Parameters(Protocol):
    """Weights by module name; several modules give one fused weight, their rows concatenated."""

    def matrix(self, *modules: str) -> LinearMatrix: ...

    def experts(self, module: str, count: int) -> tuple[Matrix, Matrix]:
        """The weights of ``count`` experts: gate and up with alternating rows, and down. The first axis is the expert;
        both have the same block size."""
        ...

    def single_experts(self, module: str, count: int) -> list[tuple[Matrix, Matrix]]:
        """The weights of each of ``count`` experts: gate and up one after the other, or up alone, and down."""
        ...

    def expert_biases(self, module: str, count: int) -> tuple[Tensor | None, Tensor | None]:
        """Their biases float32 [count, rows], those of gate and up alternating too; None where there is none."""
        ...

    def bias(self, *modules: str) -> Tensor | None:
        """The fused bias float32 [rows], or None if no module has one."""
        ...

    def vector(self, name: str) -> Tensor:
        """A float32 tensor that is not quantized, such as a norm's weight or a router."""
        ...

    def of_heads(self, module: str, count: int, *, transposed: bool) -> HeadMatrices:
        """The matrices of ``count`` heads, which x is multiplied with from the other side where they are
        ``transposed``."""
        ...


class WeightSink(Protocol):
    """The weights file that :class:`StoredParameters` appends to."""

    def begin(self, nbytes: int) -> int: ...

    def append(self, array: NDArray[np.generic]) -> None: ...


class StoredParameters:
    """Parameters written to a weights file once each, in the order in which graphs first ask for them."""

    def __init__(
        self,
        tensors: Mapping[str, LazyTensor],
        recipe: Quantization,
        sink: WeightSink,
        on_tensor: Callable[[int], None],
        prepared: Callable[[str, MatrixFormat], Blocks | None] = lambda module, form: None,
    ) -> None:
        """``prepared`` returns matrices that calibration already quantized, by (fused) module and format; the others
        are rounded to nearest."""
        self._tensors = tensors
        self._recipe = recipe
        self._sink = sink
        self._on_tensor = on_tensor
        self._prepared = prepared
        self._matrices: dict[str, Matrix] = {}
        self._ternary: dict[str, TernaryMatrix] = {}
        self._heads: dict[str, BlockHeads] = {}
        self._vectors: dict[str, Tensor] = {}
        self._not_finite: list[str] = []
        self._lock = Lock()
        self._too_large: list[tuple[str, ...]] = []
        self._matrix_weights = self._matrix_bytes = 0

    @property
    def bits_per_weight(self) -> float:
        """Average over the matrices written so far, scales and zero points included."""
        return 8 * self._matrix_bytes / max(1, self._matrix_weights)

    def refuse_not_finite(self) -> None:
        """Refuse a model whose weights cannot be stored.

        Raises:
            TensorError: weights written so far have NaN or infinity, or become infinite in 16 bits; the output must
                be discarded.
        """
        if self._not_finite:
            names = [f"{name}: has values that are NaN or infinite" for name in self._not_finite]
            raise TensorError(f"the checkpoint is broken: {one_or_list(names)}")
        if self._too_large:
            names = [f"{', '.join(names[:3])}: has values beyond {FLOAT16_MAX:g}" for names in self._too_large]
            raise TensorError(f"16-bit floats cannot hold this checkpoint, export it with --fp32: {one_or_list(names)}")

    def matrix(self, *modules: str) -> LinearMatrix:
        weight, name = fused_weight(self._tensors, modules), fused_name(modules)
        if not self._recipe.format_of(name).is_ternary:
            return self._matrix(name, weight, weight.shape[1])
        if name not in self._ternary:
            self._ternary[name] = self._store_ternary(f"{name}.weight", weight)
        return self._ternary[name]

    def experts(self, module: str, count: int) -> tuple[Matrix, Matrix]:
        gate_up, down = expert_weights(self._tensors, module)
        columns = math.gcd(gate_up.shape[1], down.shape[1])  # QMoE takes one block size for all matrices
        return (
            _per_expert(self._matrix(f"{module}.gate+up", gate_up, columns), count),
            _per_expert(self._matrix(f"{module}.down", down, columns), count),
        )

    def single_experts(self, module: str, count: int) -> list[tuple[Matrix, Matrix]]:
        taking, down = experts_one_by_one(self._tensors, module, count), self._tensors[f"{module}.down.weight"]
        name = fused_name(taken_by(self._tensors, module))
        both = [self._matrix(name, taking, taking.shape[1]), self._matrix(f"{module}.down", down, down.shape[1])]
        return [(_single(both[0], e, count), _single(both[1], e, count)) for e in range(count)]

    def expert_biases(self, module: str, count: int) -> tuple[Tensor | None, Tensor | None]:
        def stored(name: str, bias: LazyTensor | None) -> Tensor | None:
            if bias is None:
                return None
            tensor = self._store(f"{module}.{name}.bias", bias)
            return replace(tensor, shape=(count, tensor.shape[0] // count))

        gate_up, down = expert_biases(self._tensors, module)
        return stored("gate+up", gate_up), stored("down", down)

    def _matrix(self, module: str, source: LazyTensor, columns: int) -> Matrix:
        """``source`` in the recipe's format, with a block size that divides ``columns``."""
        if module not in self._matrices:
            wanted = self._recipe.format_of(module)
            name = f"{module}.weight"
            if not wanted.block_size:
                dtype = np.dtype(np.float16 if wanted.bits == HALVES.bits else np.float32)
                matrix = FloatMatrix(self._store(name, source, dtype), source.shape[0], source.shape[1])
            else:
                form = replace(wanted, block_size=block_size_for(columns, wanted.block_size))
                prepared = self._prepared(module, wanted)
                if self._recipe.method == "repacked":
                    prepared = regrouped(source, form)
                matrix = self._store_blocks(name, source, form, prepared)
            self._matrices[module] = matrix
            self._matrix_weights += math.prod(source.shape)
            self._matrix_bytes += _nbytes(matrix)
        return self._matrices[module]

    def bias(self, *modules: str) -> Tensor | None:
        bias = fused_bias(self._tensors, modules)
        return None if bias is None else self._store(fused_name(modules) + ".bias", bias)

    def vector(self, name: str) -> Tensor:
        return self._store(name, self._tensors[name])

    def of_heads(self, module: str, count: int, *, transposed: bool) -> HeadMatrices:
        name, weight = f"{module}.weight", self._tensors[f"{module}.weight"]
        rows, columns = weight.shape[0] // count, weight.shape[1]
        form = heads_format(self._recipe, (count * columns, rows) if transposed else weight.shape)
        if form is None:
            tensor = self.vector(name)
            return FloatHeads(replace(tensor, shape=(count, rows, columns)), transposed)
        if module not in self._heads:
            if transposed:
                heads = [weight.take(head * rows, (head + 1) * rows).transposed() for head in range(count)]
                weight, rows, columns = LazyTensor.concat(heads), columns, rows
            blocks = self._store_blocks(name, weight, form, None)
            scales = replace(blocks.scales, shape=(*blocks.scales.shape, 1))
            self._heads[module] = BlockHeads(blocks.codes, scales, count, rows, columns, form.block_size)
            self._matrix_weights += math.prod(weight.shape)
            self._matrix_bytes += _nbytes(blocks)
        return self._heads[module]

    def _store(self, name: str, source: LazyTensor, dtype: np.dtype[Any] = _FLOAT32) -> Tensor:
        if name not in self._vectors:
            offset = self._sink.begin(dtype.itemsize * math.prod(source.shape))
            for _, _, slab in source.slabs():
                self._check(source, slab)
                with np.errstate(over="ignore"):
                    stored = slab.astype(dtype, copy=False)
                if stored is not slab and not np.isfinite(stored).all() and source.names not in self._too_large:
                    self._too_large.append(source.names)
                self._sink.append(stored)
            self._vectors[name] = _tensor(name, dtype.name, source.shape, offset)
            self._on_tensor(math.prod(source.shape))
        return self._vectors[name]

    def _store_blocks(self, name: str, source: LazyTensor, form: MatrixFormat, prepared: Blocks | None) -> BlockMatrix:
        # What calibration leaves out, the experts, is rounded with scales that suit the weights alone.
        searched = self._recipe.method == "gptq" and form.bits < EIGHT_BITS.bits
        rounding = searched_rows if searched else round_rows
        rows, columns = source.shape
        blocks, size = -(-columns // form.block_size), form.block_size * form.bits // 8
        offset = self._sink.begin(rows * blocks * size)
        scales = np.ones((rows, blocks), np.float32)
        zeros = None if prepared is None or prepared.zeros is None else packed_zeros(prepared.zeros, form.bits)

        def rounded_slab(start: int, stop: int, slab: NDArray[np.float32]) -> NDArray[np.uint8]:
            if prepared is None:
                rounded = rounding(slab, form.bits, form.block_size)
                codes, scales[start:stop] = rounded.codes, rounded.scales
            else:
                codes, scales[start:stop] = prepared.codes[start:stop], prepared.scales[start:stop]
            return packed(codes, form.bits)

        self._append_slabs(source, rounded_slab)
        return BlockMatrix(
            codes=_tensor(name, "uint8", (rows, blocks, size), offset),
            table=_tensor(name + ".table", "uint8", (rows, blocks * size), offset),
            scales=self._append(name + ".scales", scales.astype(prepared.scale_dtype if prepared else SCALE)),
            zeros=None if zeros is None else self._append(name + ".zeros", zeros),
            rows=rows,
            columns=columns,
            bits=form.bits,
            block_size=form.block_size,
            accuracy_level=form.accuracy_level,
        )

    def _store_ternary(self, name: str, source: LazyTensor) -> TernaryMatrix:
        rows, columns = source.shape
        offset = self._sink.begin(rows * columns // IN_A_BYTE)
        scales = np.zeros(rows, np.float32)

        def rounded_slab(start: int, stop: int, slab: NDArray[np.float32]) -> NDArray[np.uint8]:
            found = ternary_rows(slab)
            if found is None:
                names = ", ".join(source.names[:3])
                raise TensorError(f"{names}: ternary by config.json, and a row has values of several sizes")
            codes, scales[start:stop] = found
            return codes

        self._append_slabs(source, rounded_slab)
        codes = _tensor(name, "uint8", (rows, columns // IN_A_BYTE), offset)
        of_rows = self._append(f"{name}.scales", scales)
        self._matrix_weights += rows * columns
        self._matrix_bytes += codes.length + of_rows.length
        return TernaryMatrix(codes, of_rows, rows)

    def _append_slabs(
        self, source: LazyTensor, codes_of: Callable[[int, int, NDArray[np.float32]], NDArray[np.uint8]]
    ) -> None:
        """Append what ``codes_of`` makes of the rows ``start:stop`` of each slab, in several threads."""

        def checked(part: tuple[int, int, NDArray[np.float32]]) -> NDArray[np.uint8]:
            self._check(source, part[2])
            # The output is discarded where a number is not finite; go on to name the other tensors.
            return np.empty(0, np.uint8) if self._not_finite else codes_of(*part)

        for codes in in_threads(checked, source.slabs(_SLAB)):
            self._sink.append(codes)
        self._on_tensor(math.prod(source.shape))

    def _append(self, name: str, array: NDArray[Any]) -> Tensor:
        offset = self._sink.begin(array.nbytes)
        self._sink.append(array)
        return _tensor(name, array.dtype.name, array.shape, offset)

    def _check(self, source: LazyTensor, slab: NDArray[np.float32]) -> None:
        # The sum is not finite if an element is not, or if it overflows: check elements only then.
        with np.errstate(all="ignore"):
            if np.isfinite(slab.sum()) or np.isfinite(slab).all():
                return
        names = source.names
        name = ", ".join(names) if len(names) <= 3 else f"one of {names[0]} to {names[-1]}"
        with self._lock:
            if name not in self._not_finite:
                self._not_finite.append(name)


class FedParameters:
    """Parameters as graph inputs; ``feeds`` reads the weights that the graph asked for.

    ``blocks``: matrices, by (fused) module, that are computed quantized, as in the bundle. They are ``constants`` of
    the graph instead of inputs, because the operator quantizes activations only with constant matrices. ``ternary``:
    inputs of the layers' matrices are rounded as ternary models do.
    """

    def __init__(
        self,
        tensors: Mapping[str, LazyTensor],
        blocks: Mapping[str, Blocks] | None = None,
        *,
        ternary: bool = False,
    ) -> None:
        self._tensors = tensors
        self._blocks = blocks or {}
        self._ternary = ternary
        self._readers: dict[str, Callable[[], NDArray[np.float32]]] = {}
        self.constants: dict[str, NDArray[np.generic]] = {}

    def matrix(self, *modules: str) -> Matrix:
        if (blocks := self._blocks.get(fused_name(modules))) is not None:
            return self._constant(f"{fused_name(modules)}.weight", blocks)
        weight = fused_weight(self._tensors, modules)
        name, (rows, columns) = fused_name(modules), weight.shape
        rounded = self._ternary and name.startswith("layers.")
        fed = self._feed(f"{name}.weight", weight.shape, weight.read)
        return FloatMatrix(fed, rows, columns, rounded_inputs=rounded)

    def expert_biases(self, module: str, count: int) -> tuple[Tensor | None, Tensor | None]:
        def fed(name: str, bias: LazyTensor | None) -> Tensor | None:
            if bias is None:
                return None
            shape = (count, bias.shape[0] // count)
            return self._feed(f"{module}.{name}.bias", shape, lambda: bias.read().reshape(shape))

        gate_up, down = expert_biases(self._tensors, module)
        return fed("gate+up", gate_up), fed("down", down)

    def experts(self, module: str, count: int) -> tuple[FloatMatrix, FloatMatrix]:
        def fed(name: str, weight: LazyTensor) -> FloatMatrix:
            shape = (count, weight.shape[0] // count, weight.shape[1])

            def read() -> NDArray[np.float32]:
                # By slabs: alternating rows need copies, and the matrix may have gigabytes.
                whole = np.empty(weight.shape, np.float32)
                for start, stop, slab in weight.slabs():
                    whole[start:stop] = slab
                return whole.reshape(shape)

            return FloatMatrix(self._feed(name, shape, read), *shape[1:])

        gate_up, down = expert_weights(self._tensors, module)
        return fed(f"{module}.gate+up.weight", gate_up), fed(f"{module}.down.weight", down)

    def single_experts(self, module: str, count: int) -> list[tuple[Matrix, Matrix]]:
        def fed(name: str, weights: LazyTensor, number: int) -> FloatMatrix:
            rows, columns = weights.shape[0] // count, weights.shape[1]
            one = weights.take(number * rows, (number + 1) * rows)
            return FloatMatrix(self._feed(f"{name}.weight.{number}", one.shape, one.read), rows, columns)

        taking, down = experts_one_by_one(self._tensors, module, count), self._tensors[f"{module}.down.weight"]
        name = fused_name(taken_by(self._tensors, module))
        return [(fed(name, taking, e), fed(f"{module}.down", down, e)) for e in range(count)]

    def bias(self, *modules: str) -> Tensor | None:
        bias = fused_bias(self._tensors, modules)
        return None if bias is None else self._feed(fused_name(modules) + ".bias", bias.shape, bias.read)

    def vector(self, name: str) -> Tensor:
        return self._feed(name, self._tensors[name].shape, self._tensors[name].read)

    def of_heads(self, module: str, count: int, *, transposed: bool) -> FloatHeads:
        weight = self._tensors[f"{module}.weight"]
        shape = (count, weight.shape[0] // count, weight.shape[1])
        fed = self._feed(f"{module}.weight", shape, lambda: weight.read().reshape(shape))
        return FloatHeads(fed, transposed)

    def forget_all_but(self, names: Collection[str]) -> None:
        """Read no other weights: the graph no longer needs them."""
        self._readers = {name: reader for name, reader in self._readers.items() if name in names}
        self.constants = {name: array for name, array in self.constants.items() if name in names}

    def feeds(self) -> dict[str, NDArray[np.float32]]:
        """The weights that the graph asked for, by graph input name; read on all cores, for many need a copy."""
        read = in_threads(lambda reader: reader(), self._readers.values())
        return dict(zip(self._readers, read, strict=True))

    def _constant(self, name: str, blocks: Blocks) -> BlockMatrix:
        def part(name: str, array: NDArray[np.generic]) -> Tensor:
            self.constants[name] = array
            return Tensor(name, array.dtype.name, array.shape)

        blocks = widened(blocks)  # stock operators may compute this
        rows, _, block_size = blocks.codes.shape
        codes = part(name, packed(blocks.codes, blocks.bits))
        return BlockMatrix(
            codes=codes,
            table=codes,
            scales=part(f"{name}.scales", blocks.scales),
            zeros=None if blocks.zeros is None else part(f"{name}.zeros", packed_zeros(blocks.zeros, blocks.bits)),
            rows=rows,
            columns=blocks.columns,
            bits=blocks.bits,
            block_size=block_size,
            accuracy_level=EIGHT_BITS.accuracy_level,
        )

    def _feed(self, name: str, shape: Sequence[int], read: Callable[[], NDArray[np.float32]]) -> Tensor:
        self._readers[name] = read
        return Tensor(name, "float32", tuple(shape))


def _per_expert(matrix: Matrix, count: int) -> Matrix:
    """``matrix`` split by rows into ``count`` matrices with a new first axis; the bytes stay the same."""

    def per_expert(tensor: Tensor) -> Tensor:
        return replace(tensor, shape=(count, tensor.shape[0] // count, *tensor.shape[1:]))

    return _of_fewer_rows(matrix, matrix.rows // count, per_expert)


def _single(matrix: Matrix, number: int, count: int) -> Matrix:
    """The ``number``-th of ``count`` matrices whose rows are one after the other in ``matrix``."""

    def single(tensor: Tensor) -> Tensor:
        assert tensor.offset is not None
        rows, length = tensor.shape[0] // count, tensor.length // count
        place = tensor.offset + number * length
        return Tensor(f"{tensor.name}.{number}", tensor.dtype, (rows, *tensor.shape[1:]), place, length)

    return _of_fewer_rows(matrix, matrix.rows // count, single)


def _of_fewer_rows(matrix: Matrix, rows: int, part: Callable[[Tensor], Tensor]) -> Matrix:
    """``matrix`` made of a ``part`` of each of its tensors."""
    match matrix:
        case FloatMatrix(weight):
            return replace(matrix, weight=part(weight), rows=rows)
        case BlockMatrix(codes, table, scales, zeros):
            parts = {"codes": part(codes), "table": part(table), "scales": part(scales)}
            return replace(matrix, **parts, zeros=part(zeros) if zeros else None, rows=rows)


def _nbytes(matrix: Matrix) -> int:
    match matrix:
        case FloatMatrix(weight):
            return weight.length
        case BlockMatrix(codes, _, scales, zeros):
            return codes.length + scales.length + (zeros.length if zeros else 0)


def _tensor(name: str, dtype: str, shape: tuple[int, ...], offset: int) -> Tensor:
    return Tensor(name, dtype, shape, offset, math.prod(shape) * np.dtype(dtype).itemsize)
