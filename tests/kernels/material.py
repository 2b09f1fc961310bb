"""Graphs of the kernels' operators, and their results by the definition in kernels/matmul/matrix.h, in NumPy."""

import ctypes
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edgegen.model.kernels import kernel_library

Array = NDArray[Any]
LANES = 4
TINY = np.float32(1e-30)

_ONNX_TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.BFLOAT16,
}
ScaleType = Literal["float32", "float16", "bfloat16"]
SCALE_TYPES: tuple[ScaleType, ...] = get_args(ScaleType)
_CPU_FLAGS = {
    "amx": "amx_int8",
    "avx512vnni": "avx512_vnni",
    "avxvnni": "avx_vnni",
    "avx2": "avx2",
    "i8mm": "i8mm",
    "dotprod": "asimddp",
    "neon": "asimd",
}


def needs_library() -> Path:
    """The compiled kernels; the test is skipped where they are not built."""
    library = kernel_library()
    if library is None:
        pytest.skip("the kernels are not built: run `python kernels/build.py`, which needs a C compiler")
    return library


def tiles_are_allowed() -> bool:
    """Whether the system gives AMX's tiles to this process: a sandbox may refuse them, whatever the processor has."""
    arch_prctl, ask, tiles = 158, 0x1023, 18
    return sys.platform == "linux" and ctypes.CDLL(None).syscall(arch_prctl, ask, tiles) == 0


def instruction_sets() -> list[str]:
    """Names of EDGEGEN_ISA that this processor runs."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ["portable"]
    flags = {word for line in lines if line.lower().startswith(("flags", "features")) for word in line.split()}
    if "amx_int8" in flags and not tiles_are_allowed():
        flags.remove("amx_int8")
    return [name for name, flag in _CPU_FLAGS.items() if flag in flags] + ["portable"]


@contextmanager
def instruction_set(name: str) -> Generator[None]:
    """Sessions that are made meanwhile run the kernels of this instruction set."""
    before = os.environ.get("EDGEGEN_ISA")
    os.environ["EDGEGEN_ISA"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["EDGEGEN_ISA"]
        else:
            os.environ["EDGEGEN_ISA"] = before


@dataclass(frozen=True)
class Weights:
    """A block-quantized matrix as an operator gets it; scales of uint16 are bfloat16, the upper halves of floats."""

    columns: int
    rows: int
    block: int
    bits: int
    codes: Array
    scales: Array
    zeros: Array | None = None
    bias: Array | None = None

    @property
    def blocks(self) -> int:
        return -(-self.columns // self.block)

    def wide_scales(self) -> Array:
        """Scales as float32 [rows, blocks]."""
        if self.scales.dtype != np.uint16:
            return self.scales.astype(np.float32)
        return (self.scales.astype(np.uint32) << 16).view(np.float32)

    def numbers(self) -> Array:
        """Codes less zero points, int64 [rows, blocks, block]."""
        codes = self.codes.astype(np.int64)
        zeros: Array | int = 1 << (self.bits - 1)
        if self.bits < 4:
            codes = self._of_words()
        if self.bits == 4:
            codes = np.stack([codes & 15, codes >> 4], -1).reshape(self.rows, self.blocks, self.block)
        if self.zeros is not None:
            zeros = self.zeros.astype(np.int64)
            if self.bits < 8:
                zeros = np.stack([zeros & 15, zeros >> 4], -1).reshape(self.rows, -1)[:, : self.blocks]
            zeros = zeros[..., None]
        return codes - zeros

    def _of_words(self) -> Array:
        """Codes of 3 or 2 bits, read bit by bit: int64 [rows, blocks, block]."""
        rows, found = self.codes.reshape(self.rows, -1), np.zeros((self.rows, self.blocks, self.block), np.int64)
        places = {
            2: [[(i // 4, 2 * (i % 4)), (i // 4, 2 * (i % 4) + 1)] for i in range(8)],
            3: [[(i // 2, 3 * (i % 2) + j) for j in range(3)] for i in range(6)]
            + [[(i, 6), (i, 7), (2, 6 + i)] for i in range(2)],
        }[self.bits]
        for b in range(self.blocks):
            group, count = b // 4 * 4, min(4, self.blocks - b // 4 * 4)
            for i in range(self.block):
                for weight, (word, bit) in enumerate(places[i % 8]):
                    at = 4 * (group * self.bits + word * count + b % 4) + i // 8
                    found[:, b, i] |= (rows[:, at].astype(np.int64) >> bit & 1) << weight
        return found


def random_weights(
    rng: np.random.Generator,
    columns: int,
    rows: int,
    *,
    block: int = 32,
    bits: int = 8,
    scale_type: ScaleType = "bfloat16",
    zeros: bool = False,
    bias: bool = False,
) -> Weights:
    """A matrix of random codes; those that pad the last block of a row are random too."""
    blocks = -(-columns // block)
    scales: Array = rng.uniform(0.001, 0.02, (rows, blocks)).astype(np.float32)
    if scale_type == "bfloat16":
        scales = (scales.view(np.uint32) >> 16).astype(np.uint16)
    return Weights(
        columns,
        rows,
        block,
        bits,
        rng.integers(0, 256, (rows, blocks, block * bits // 8), np.uint8),
        scales.astype(np.float16) if scale_type == "float16" else scales,
        rng.integers(0, 256, (rows, blocks if bits == 8 else (blocks + 1) // 2), np.uint8) if zeros else None,
        rng.normal(size=rows).astype(np.float32) if bias else None,
    )


def graph_of(
    weights: Weights,
    *,
    operator: str = "BlockMatMul",
    attributes: Mapping[str, int] | None = None,
    computed: str | None = None,
    rank: int = 2,
) -> bytes:
    """A graph of one matrix, of the stock operator ``MatMulNBits`` if that is named.

    ``attributes`` take the place of what is true of the matrix. ``computed``: the input ("codes", "scales", "zeros",
    "bias") that another node gives instead of an initializer.
    """
    stock = operator == "MatMulNBits"
    if stock:
        weights = replace(weights, scales=weights.wide_scales())
    parts = {"codes": weights.codes, "scales": weights.scales, "zeros": weights.zeros, "bias": weights.bias}
    inputs, tensors, nodes = ["x"], list[Any](), list[Any]()
    for name, array in parts.items():
        if stock and name == "bias":
            inputs.append("")  # the stock operator has the order of columns here
        if array is None:
            inputs.append("")
            continue
        inputs.append(name)
        kept = f"{name} before" if name == computed else name
        dtype = _ONNX_TYPES[array.dtype.name] if array.dtype.name in _ONNX_TYPES else _other(array)
        tensors.append(helper.make_tensor(kept, dtype, array.shape, array.tobytes(), raw=True))
        if name == computed:
            nodes.append(helper.make_node("Mul" if dtype == TensorProto.FLOAT else "BitwiseAnd", [kept, kept], [name]))
    while not inputs[-1]:
        inputs.pop()
    known = {"K": weights.columns, "N": weights.rows, "bits": weights.bits, "block_size": weights.block}
    known |= attributes or {}
    if stock:
        known["accuracy_level"] = 4
    domain = "com.microsoft" if stock else "edgegen"
    nodes.append(cast(Any, helper).make_node(operator, inputs, ["y"], domain=domain, **known))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * rank)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)
    graph = helper.make_graph(nodes, "one matrix", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def _other(array: Array) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def register(options: Any, graph: bytes) -> None:
    """Give ``options`` the kernels that a graph has: those of all operators take a session three times as long."""
    nodes = onnx.load_from_string(graph).graph.node
    names = sorted({node.op_type for node in nodes if node.domain == "edgegen"})
    options.add_session_config_entry("edgegen.operators", f",{','.join(names)},")
    options.register_custom_ops_library(str(needs_library()))


def session_of(graph: bytes, *, isa: str | None = None, threads: int = 1, spare_constants: bool = False) -> Any:
    """A session with the kernels registered; ``spare_constants``: constants are not computed ahead of the run."""
    options = cast(Any, ort).SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if spare_constants:
        options.graph_optimization_level = cast(Any, ort).GraphOptimizationLevel.ORT_DISABLE_ALL
    register(options, graph)
    if isa is None:
        return cast(Any, ort).InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    with instruction_set(isa):
        return cast(Any, ort).InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def run(session: Any, x: Array) -> Array:
    return session.run(None, {"x": x})[0]


def reference(weights: Weights, x: Array) -> Array:
    """Compute kernels/matmul/matrix.h on ``x`` [count, columns], step by step: float32 [count, rows]."""
    count, blocks = len(x), weights.blocks
    padded = np.zeros((count, blocks * weights.block), np.float32)
    padded[:, : weights.columns] = x
    inputs = padded.reshape(count, blocks, weights.block)
    most = np.abs(inputs).max(-1)
    finite = np.isfinite(most)
    large = finite & (most >= TINY)
    with np.errstate(all="ignore"):
        size = np.where(large, most, np.float32(1))
        factor = np.where(large, np.float32(127) / size, np.float32(0)).astype(np.float32)
        codes = np.rint(np.where(finite[..., None], inputs, np.float32(0)) * factor[..., None]).astype(np.int64)
        scales = np.where(large, size / np.float32(127), np.float32(0)).astype(np.float32)
        scales = np.where(finite, scales, np.float32(np.nan))
        sums = np.einsum("nbk,mbk->mnb", weights.numbers(), codes)
        lanes = [np.zeros((count, weights.rows), np.float32) for _ in range(LANES)]
        for b in range(blocks):
            scale = weights.wide_scales()[None, :, b] * scales[:, None, b]
            lanes[b % LANES] = fma(sums[:, :, b].astype(np.float32), scale, lanes[b % LANES])
        total = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
        return total if weights.bias is None else total + weights.bias


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float32, rounded once.

    The product is exact in float64. The sum is rounded there to odd, so that rounding it to float32 is as if it were
    the first rounding (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
    """
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    even = (total.view(np.int64) & 1) == 0
    toward = np.where(lost > 0, np.inf, -np.inf)
    odd = np.where(np.isfinite(total) & (lost != 0) & even, np.nextafter(total, toward), total)
    return odd.astype(np.float32)


def same_bits(a: Array, b: Array) -> bool:
    """Equal to the last bit and the sign of zero; of what is not a number, only that neither is."""
    missing = np.isnan(a)
    return bool(
        a.shape == b.shape
        and np.array_equal(missing, np.isnan(b))
        and np.array_equal(a[~missing].view(np.uint32), b[~missing].view(np.uint32))
    )
