"""Matrices of a decoder graph in their operators: multiplied with, or looked up by row.

Shapes: b rows (batch), t new tokens per row, n = b · t tokens in all, h heads.
"""

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from edgegen_export.graph.builder import NONE, GraphBuilder, Tensor, Value, trimmed
from edgegen_export.graph.parameters import (
    BlockHeads,
    BlockMatrix,
    FloatHeads,
    FloatMatrix,
    HeadMatrices,
    LinearMatrix,
    TernaryMatrix,
)
from edgegen_export.quantize.ternary import IN_A_BYTE, values_of_bytes

MIDDLE = 128
"""The code of 8 bits that stands for zero."""


def rows(g: GraphBuilder, table: LinearMatrix, ids: Value) -> Value:
    """The rows ``ids`` int64 [b, t] of ``table`` as float32 [b, t, columns]."""
    assert not isinstance(table, TernaryMatrix), "tables are not ternary"
    match table:
        case FloatMatrix(weight) if weight.dtype == "float16" and weight.offset is not None:
            # Widened after the choice: the table stays mapped, and half as large.
            return g.op.Cast(g.op.Gather(g.stored(weight), ids, axis=0), to=TensorProto.FLOAT)
        case FloatMatrix(weight):
            return g.op.Gather(g.weight(weight), ids, axis=0)
        case BlockMatrix():
            gathered = g.ms.GatherBlockQuantized(
                g.weight(table.table),
                ids,
                g.weight(table.scales),
                *([g.weight(table.zeros)] if table.zeros else []),
                bits=table.bits,
                block_size=table.block_size,
                gather_axis=0,
                quantize_axis=1,
            )
            if table.table.shape[1] * 8 == table.columns * table.bits:
                return gathered
            return g.op.Slice(gathered, g.axes(0), g.axes(table.columns), g.axes(2))


def linear(g: GraphBuilder, matrix: LinearMatrix, x: Value, bias: Tensor | None = None) -> Value:
    """``x @ matrix.T + bias``: [b, t, columns] → [b, t, rows]."""
    added = g.weight(bias) if bias else NONE
    match matrix:
        case BlockMatrix():
            return g.ms.MatMulNBits(
                x,
                g.weight(matrix.codes),
                g.weight(matrix.scales),
                *trimmed([g.weight(matrix.zeros) if matrix.zeros else NONE, NONE, added]),
                K=matrix.columns,
                N=matrix.rows,
                bits=matrix.bits,
                block_size=matrix.block_size,
                accuracy_level=matrix.accuracy_level,
            )
        case TernaryMatrix():
            return _ternary(g, matrix, x, added)
        case FloatMatrix(weight):
            if matrix.rounded_inputs:
                x = _rounded_inputs(g, x)
            y = g.ms.FusedMatMul(x, g.weight(weight), transB=1)
    return g.op.Add(y, added) if bias else y


def of_each_head(g: GraphBuilder, matrices: HeadMatrices, x: Value) -> Value:
    """x [n, h, columns] of each head times its matrix: [n, h, rows].

    There is one row of zeros more: ONNX Runtime adds in another order where there is a single row, and the bits of a
    token must not depend on how a text is cut. Quantized matrices are one of edgegen's operators; where its kernels are
    not, ONNX Runtime makes floats of them when it opens the graph.
    """
    match matrices:
        case FloatHeads(stored, transposed):
            return _of_each_head(g, x, g.weight(stored), transposed=transposed)
        case BlockHeads():
            return _of_quantized_heads(g, matrices, x)


def _of_quantized_heads(g: GraphBuilder, matrices: BlockHeads, x: Value) -> Value:
    heads, rows, columns = matrices.heads, matrices.rows, matrices.columns

    def body(f: GraphBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        x, codes, scales = inputs
        values = f.op.Sub(f.op.Cast(codes, to=TensorProto.FLOAT), f.constant(np.array(MIDDLE, np.float32)))
        weight = f.op.Reshape(f.op.Mul(values, scales), f.axes(heads, rows, columns))
        return [_of_each_head(f, x, weight, transposed=False)]

    sizes = {"heads": heads, "K": columns, "N": rows, "bits": 8, "block_size": matrices.block_size}
    inputs = [x, g.weight(matrices.codes), g.weight(matrices.scales)]
    return g.function(f"BlockMatMulPerHead_{heads}_{rows}_{columns}", inputs, 1, body, sizes)[0]


def _of_each_head(g: GraphBuilder, x: Value, weight: Value, *, transposed: bool) -> Value:
    padded = g.op.Pad(g.op.Transpose(x, perm=[1, 0, 2]), g.axes(0, 0, 0, 0, 1, 0))
    made = g.ms.FusedMatMul(padded, weight, transB=int(not transposed))
    return g.op.Transpose(g.op.Slice(made, g.axes(0), g.axes(-1), g.axes(1)), perm=[1, 0, 2])


def _ternary(g: GraphBuilder, matrix: TernaryMatrix, x: Value, bias: Value) -> Value:
    """``x @ matrix.T + bias`` by one of edgegen's operators."""
    sizes = {"K": IN_A_BYTE * matrix.codes.shape[1], "N": matrix.rows, "bits": 2, "block_size": 4}
    inputs = [x, g.weight(matrix.codes), g.weight(matrix.scales), NONE, bias]
    return g.function(f"BlockMatMul_ternary{'_bias' if bias else ''}", inputs, 1, _ternary_body, sizes)[0]


def _ternary_body(f: GraphBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
    """Whole numbers are summed: ONNX Runtime makes a matrix of int8 of the codes when it opens the graph."""
    x, codes, scales, _, bias = inputs
    scaled, factor = _scaled_inputs(f, x)
    zero = f.constant(np.array(128, np.uint8))
    rounded = f.op.QuantizeLinear(scaled, f.constant(np.array(1, np.float32)), zero)
    values = f.op.Gather(f.constant(values_of_bytes(), "values of bytes"), f.op.Cast(codes, to=TensorProto.INT32))
    rows = f.op.Reshape(values, f.axes(0, -1))
    sums = f.op.Cast(f.op.MatMulInteger(rounded, f.op.Transpose(rows), zero), to=TensorProto.FLOAT)
    y = f.op.Mul(f.op.Div(sums, factor), scales)
    return [f.op.Add(y, bias) if bias else y]


def _scaled_inputs(g: GraphBuilder, x: Value) -> tuple[Value, Value]:
    """x [b, t, columns] times a factor [b, t, 1], so that the largest size of a token is 127; and that factor
    (BitNet b1.58, arXiv:2402.17764)."""
    largest = g.op.ReduceMax(g.op.Abs(x), g.axes(-1), keepdims=1)
    least = g.constant(np.array(1e-5, np.float32))
    factor = g.op.Div(g.constant(np.array(127, np.float32)), g.op.Max(largest, least))
    return g.op.Mul(x, factor), factor


def _rounded_inputs(g: GraphBuilder, x: Value) -> Value:
    """x [b, t, columns], each token's numbers multiples of its largest size / 127."""
    scaled, factor = _scaled_inputs(g, x)
    return g.op.Div(g.op.Round(scaled), factor)
