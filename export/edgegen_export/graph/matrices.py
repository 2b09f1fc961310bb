"""Matrices of a decoder graph in their operators: multiplied with, or looked up by row.

Shapes: b rows (batch), t new tokens per row, n = b · t tokens in all, h heads.
"""

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
            y = _ternary(g, matrix, x)
        case FloatMatrix(weight):
            if matrix.rounded_inputs:
                x = _rounded_inputs(g, x)
            y = g.ms.FusedMatMul(x, g.weight(weight), transB=1)
    return g.op.Add(y, added) if bias else y


def of_each_head(g: GraphBuilder, matrices: HeadMatrices, x: Value) -> Value:
    """x [n, h, columns] of each head times its matrix: [n, h, rows].

    There is one row of zeros more: ONNX Runtime adds in another order where there is a single row, and the bits of a
    token must not depend on how a text is cut. ``edgegen.graph.matrices_per_head`` knows the nodes of quantized
    matrices, and puts one of edgegen's operators in their place; without that, ONNX Runtime makes floats of them when
    it opens the graph.
    """
    match matrices:
        case FloatHeads(stored, transposed):
            weight = g.weight(stored)
        case BlockHeads(codes, scales, heads, rows, columns):
            transposed, wide = False, g.op.Cast(g.weight(codes), to=TensorProto.FLOAT)
            values = g.op.Sub(wide, g.constant(np.array(MIDDLE, np.float32)))
            weight = g.op.Reshape(g.op.Mul(values, g.weight(scales)), g.axes(heads, rows, columns))
    padded = g.op.Pad(g.op.Transpose(x, perm=[1, 0, 2]), g.axes(0, 0, 0, 0, 1, 0))
    made = g.ms.FusedMatMul(padded, weight, transB=int(not transposed))
    return g.op.Transpose(g.op.Slice(made, g.axes(0), g.axes(-1), g.axes(1)), perm=[1, 0, 2])


def _ternary(g: GraphBuilder, matrix: TernaryMatrix, x: Value) -> Value:
    """Whole numbers are summed: ONNX Runtime makes a matrix of int8 of the codes when it opens the graph.

    ``edgegen.graph.ternary`` knows these nodes, and puts one of edgegen's operators in their place.
    """
    scaled, factor = _scaled_inputs(g, x)
    zero = g.constant(np.array(128, np.uint8))
    rounded = g.op.QuantizeLinear(scaled, g.constant(np.array(1, np.float32)), zero)
    codes = g.op.Cast(g.weight(matrix.codes), to=TensorProto.INT32)
    values = g.op.Gather(g.constant(values_of_bytes(), "values of bytes"), codes)
    rows = g.op.Reshape(values, g.axes(matrix.rows, IN_A_BYTE * matrix.codes.shape[1]))
    sums = g.op.Cast(g.op.MatMulInteger(rounded, g.op.Transpose(rows), zero), to=TensorProto.FLOAT)
    return g.op.Mul(g.op.Div(sums, factor), g.weight(matrix.scales))


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
