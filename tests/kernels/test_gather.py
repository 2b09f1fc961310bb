"""The operator that gathers rows of a block-quantized table: against NumPy, the stock operator, and graphs that lie."""

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgegen.graph.kernel_operators import with_kernels
from tests.kernels.material import SCALE_TYPES, ScaleType, random_weights, register
from tests.kernels.stock import needs_kernels

pytestmark = needs_kernels

ROWS = 50


@dataclass(frozen=True)
class Table:
    """A random table, its last block partial where ``columns`` is no multiple of ``block``."""

    bits: int = 8
    block: int = 64
    columns: int = 160
    with_zeros: bool = False
    scale_type: ScaleType = "bfloat16"
    seed: int = 0
    codes: NDArray[np.uint8] = field(init=False)
    scales: NDArray[np.float32] = field(init=False)
    zeros: NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        blocks = -(-self.columns // self.block)
        codes = rng.integers(0, 256, (ROWS, self.columns * self.bits // 8), dtype=np.uint8)
        zeros = rng.integers(0, 256, (ROWS, -(-blocks * self.bits // 8)), dtype=np.uint8)
        bits = rng.uniform(0.001, 0.02, (ROWS, blocks)).astype(np.float32).view(np.uint32) & 0xFFFF0000
        object.__setattr__(self, "codes", codes)
        object.__setattr__(self, "zeros", zeros)
        object.__setattr__(self, "scales", bits.view(np.float32))  # which 16 bits hold exactly

    def values(self) -> NDArray[np.float32]:
        """Return the values of the table: (code - zero) * scale, rounded once."""
        codes, zeros = self._numbers(self.codes), self._numbers(self.zeros)
        if not self.with_zeros:
            zeros[:] = 128 if self.bits == 8 else 8
        at = np.arange(self.columns) // self.block
        return (codes - zeros[:, at]).astype(np.float32) * self.scales[:, at]

    def _numbers(self, packed: NDArray[np.uint8]) -> NDArray[np.int32]:
        if self.bits == 8:
            return packed.astype(np.int32)
        return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1).astype(np.int32)

    def initializers(self) -> list[onnx.TensorProto]:
        tensors = [numpy_helper.from_array(self.codes, "codes")]
        if self.scale_type == "bfloat16":
            raw = (self.scales.view(np.uint32) >> 16).astype(np.uint16).tobytes()
            tensors += [helper.make_tensor("scales", TensorProto.BFLOAT16, self.scales.shape, raw, raw=True)]
        else:
            tensors += [numpy_helper.from_array(self.scales.astype(self.scale_type), "scales")]
        return [*tensors, *([numpy_helper.from_array(self.zeros, "zeros")] if self.with_zeros else [])]

    def graph(
        self, op: str = "BlockGather", ids: int = TensorProto.INT64, changed: dict[str, int] | None = None
    ) -> onnx.ModelProto:
        inputs = ["codes", "ids", "scales", *(["zeros"] if self.with_zeros else [])]
        attributes: dict[str, Any] = {"bits": self.bits, "block_size": self.block, **(changed or {})}
        nodes = list[onnx.NodeProto]()
        if op != "BlockGather":
            attributes |= {"gather_axis": 0, "quantize_axis": 1}
            if self.scale_type != "float32":
                nodes, inputs[2] = [helper.make_node("Cast", ["scales"], ["floats"], to=TensorProto.FLOAT)], "floats"
        domain = "edgegen" if op == "BlockGather" else "com.microsoft"
        nodes += [helper.make_node(op, inputs, ["y"], domain=domain, **attributes)]
        return model(nodes, self.initializers(), ids)


def model(nodes: list[onnx.NodeProto], tensors: list[onnx.TensorProto], ids: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("ids", ids, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        tensors,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("edgegen", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def session(graph: bytes, threads: int = 1) -> Any:
    options = cast(Any, ort).SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    register(options, graph)
    return ort.InferenceSession(graph, options)


def gathered(graph: onnx.ModelProto, ids: NDArray[np.int64] | NDArray[np.int32], threads: int = 1) -> Any:
    return session(graph.SerializeToString(), threads).run(None, {"ids": ids})[0]


ZEROS_AND_SCALES: tuple[tuple[bool, ScaleType], ...] = (
    (False, "bfloat16"),
    (True, "float32"),
    (True, "bfloat16"),
    (False, "float16"),
)
TABLES = [
    Table(bits, block, columns, zeros, scale_type, seed=bits * block)
    for bits in (8, 4)
    for block in (64, 32)
    for columns in (32, 128, 160, 768)
    for zeros, scale_type in ZEROS_AND_SCALES
]


@pytest.mark.parametrize("table", TABLES, ids=lambda t: f"{t.bits}x{t.block}-{t.columns}-{t.with_zeros}-{t.scale_type}")
def test_rows_are_those_of_numpy_and_of_the_stock_operator(table: Table) -> None:
    ids = np.random.default_rng(7).integers(-ROWS, ROWS, (3, 5))
    rows = gathered(table.graph(), ids)
    assert rows.dtype == np.float32
    assert np.array_equal(rows, table.values()[ids])
    assert np.array_equal(rows, gathered(table.graph("GatherBlockQuantized"), ids))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (1, 1, 2, 1, 3)])
def test_ids_have_any_rank(shape: tuple[int, ...]) -> None:
    table = Table()
    ids = np.random.default_rng(1).integers(0, ROWS, shape)
    rows = gathered(table.graph(), np.asarray(ids, np.int64))
    assert rows.shape == (*shape, table.columns)
    assert np.array_equal(rows, table.values()[ids])


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_many_ids_of_32_bits_are_read_by_all_threads(threads: int) -> None:
    table = Table(bits=4, block=32, with_zeros=True)
    ids = np.random.default_rng(2).integers(0, ROWS, (2, 511)).astype(np.int32)
    assert np.array_equal(gathered(table.graph(ids=TensorProto.INT32), ids, threads), table.values()[ids])


@pytest.mark.parametrize("wrong", [ROWS, -ROWS - 1, 2**40, -(2**63)])
def test_an_id_out_of_range_is_named(wrong: int) -> None:
    ids = np.array([[0, 1], [wrong, 2]], np.int64)
    with pytest.raises(Exception, match=f"there is no row {wrong} in a table of {ROWS}"):
        gathered(Table().graph(), ids)


def test_ids_of_another_type_are_refused() -> None:
    with pytest.raises(Exception, match="int64 or int32"):
        gathered(Table().graph(ids=TensorProto.FLOAT), np.zeros(1, np.float32))  # pyright: ignore


@pytest.mark.parametrize("bits", [3, 2])
@pytest.mark.parametrize("columns", [32, 96, 128, 416])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_3_and_2_bits_are_those_of_the_definition(bits: int, columns: int, zeros: bool) -> None:
    table = random_weights(np.random.default_rng(columns + bits), columns, ROWS, bits=bits, zeros=zeros)
    inputs = ["codes", "ids", "scales", *(["zeros"] if zeros else [])]
    tensors = [
        numpy_helper.from_array(table.codes.reshape(ROWS, -1), "codes"),
        numpy_helper.from_array(table.wide_scales(), "scales"),
        *([numpy_helper.from_array(cast(Any, table.zeros), "zeros")] if zeros else []),
    ]
    node = helper.make_node("BlockGather", inputs, ["y"], domain="edgegen", bits=bits, block_size=32)
    ids = np.random.default_rng(7).integers(-ROWS, ROWS, (3, 5))
    expected = (table.numbers().astype(np.float32) * table.wide_scales()[..., None]).reshape(ROWS, -1)
    assert np.array_equal(gathered(model([node], tensors, TensorProto.INT64), ids), expected[ids])


@pytest.mark.parametrize("changed", [{"bits": 3}, {"bits": 0}, {"block_size": 48}, {"block_size": -64}])
def test_other_sizes_are_refused(changed: dict[str, int]) -> None:
    with pytest.raises(
        Exception, match="bits must be 8 or 4 and block_size 32 or 64, or bits 3 or 2 and block_size 32"
    ):
        session(Table().graph(changed=changed).SerializeToString())


@pytest.mark.parametrize(("name", "what"), [("scales", "scales"), ("zeros", "zero points")])
@pytest.mark.parametrize("rows", [ROWS - 1, ROWS + 1])
def test_a_length_that_is_not_the_tables_is_refused(name: str, what: str, rows: int) -> None:
    graph = Table(with_zeros=True, scale_type="float32").graph()
    (tensor,) = (one for one in graph.graph.initializer if one.name == name)
    array = np.resize(numpy_helper.to_array(tensor), (rows, tensor.dims[1]))
    tensor.CopyFrom(numpy_helper.from_array(array, name))
    with pytest.raises(Exception, match=f"{what} have {array.size} elements"):
        session(graph.SerializeToString())


@pytest.mark.parametrize("shape", [(ROWS * 160,), (ROWS, 2, 80), (0, 160), (ROWS, 0)])
def test_codes_have_two_dimensions(shape: tuple[int, ...]) -> None:
    graph = Table().graph()
    graph.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros(shape, np.uint8), "codes"))
    with pytest.raises(Exception, match="two dimensions"):
        session(graph.SerializeToString())


@pytest.mark.parametrize("name", ["codes", "scales"])
def test_what_is_no_initializer_is_refused(name: str) -> None:
    graph = Table(scale_type="float32").graph()
    (tensor,) = (one for one in graph.graph.initializer if one.name == name)
    graph.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
    graph.graph.initializer.remove(tensor)
    with pytest.raises(Exception, match="must be"):
        session(graph.SerializeToString())


@pytest.mark.parametrize(
    "table", [Table(), Table(4, 32, with_zeros=True), *(Table(scale_type=one) for one in SCALE_TYPES)]
)
def test_graphs_are_rewritten_to_read_scales_where_they_lie(table: Table) -> None:
    stock = table.graph("GatherBlockQuantized")
    changed = onnx.ModelProto.FromString(with_kernels(stock.SerializeToString()))
    (node,) = (one for one in changed.graph.node if one.op_type != "Cast")
    assert (node.domain, node.op_type, node.input[2]) == ("edgegen", "BlockGather", "scales")
    ids = np.arange(-3, 7)
    assert np.array_equal(gathered(changed, ids), gathered(stock, ids))


@pytest.mark.parametrize("changed", [{"block_size": 16}, {"gather_axis": 1}, {"quantize_axis": 0}, {"bits": 2}])
def test_nodes_that_it_cannot_compute_are_left(changed: dict[str, int]) -> None:
    stock = Table().graph("GatherBlockQuantized")
    for attribute in stock.graph.node[-1].attribute:
        attribute.i = changed.get(attribute.name, attribute.i)
    kept = onnx.ModelProto.FromString(with_kernels(stock.SerializeToString()))
    assert kept.graph.node[-1] == stock.graph.node[-1]


@pytest.mark.parametrize("table", [Table(columns=128), Table(4, 32, with_zeros=True)])
def test_codes_of_a_matrix_are_read_by_block(table: Table) -> None:
    graph = table.graph()
    blocks = table.codes.reshape(ROWS, -1, table.block * table.bits // 8)
    graph.graph.initializer[0].CopyFrom(numpy_helper.from_array(blocks, "codes"))
    ids = np.arange(-3, 7)
    assert np.array_equal(gathered(graph, ids), table.values()[ids])


def tied(offset_of_the_table: int = 0, block_of_the_table: int = 64) -> onnx.ModelProto:
    """A graph whose head multiplies by the matrix whose rows its first node gathers: bytes 0 to 6,400 of a file."""

    def stored(name: str, shape: list[int], offset: int) -> onnx.TensorProto:
        tensor = TensorProto(name=name, data_type=TensorProto.UINT8, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "weights.data"), ("offset", str(offset)), ("length", str(ROWS * 128))):
            tensor.external_data.add(key=key, value=value)
        return tensor

    def node(op: str, inputs: list[str], output: str, attributes: dict[str, Any]) -> onnx.NodeProto:
        return helper.make_node(op, inputs, [output], domain="com.microsoft", bits=8, **attributes)

    by_row = {"block_size": block_of_the_table, "gather_axis": 0, "quantize_axis": 1}
    by_block = {"K": 128, "N": ROWS, "block_size": 64, "accuracy_level": 4}
    nodes = [
        node("GatherBlockQuantized", ["table", "ids", "scales"], "x", by_row),
        node("MatMulNBits", ["x", "matrix", "scales"], "y", by_block),
    ]
    scales = numpy_helper.from_array(np.ones((ROWS, 2), np.float32), "scales")
    tensors = [stored("table", [ROWS, 128], offset_of_the_table), stored("matrix", [ROWS, 2, 64], 0), scales]
    return model(nodes, tensors, TensorProto.INT64)


def test_a_tied_embedding_is_mapped_once() -> None:
    changed = onnx.ModelProto.FromString(with_kernels(tied().SerializeToString()))
    assert [tensor.name for tensor in changed.graph.initializer] == ["matrix", "scales"]
    assert [[*node.input[:2]] for node in changed.graph.node] == [["matrix", "ids"], ["x", "matrix"]]


@pytest.mark.parametrize(("offset", "block"), [(6400, 64), (0, 32)])
def test_a_table_of_other_bytes_or_blocks_is_kept(offset: int, block: int) -> None:
    changed = onnx.ModelProto.FromString(with_kernels(tied(offset, block).SerializeToString()))
    assert [tensor.name for tensor in changed.graph.initializer] == ["table", "matrix", "scales"]
    assert changed.graph.node[0].input[0] == "table"


def test_a_tied_table_that_another_node_reads_is_kept() -> None:
    graph = tied()
    graph.graph.node.append(helper.make_node("Shape", ["table"], ["size"]))
    changed = onnx.ModelProto.FromString(with_kernels(graph.SerializeToString()))
    assert [tensor.name for tensor in changed.graph.initializer] == ["table", "matrix", "scales"]
    assert changed.graph.node[0].input[0] == "matrix"
