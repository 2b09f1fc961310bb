"""Matrices of a decoder graph in their operators: multiplied with, or looked up by row.

Shapes: b rows (batch), t new tokens per row.
"""

from onnx import TensorProto

from edgegen_export.graph.builder import NONE, GraphBuilder, Tensor, Value, trimmed
from edgegen_export.graph.parameters import BlockMatrix, FloatMatrix, Matrix


def rows(g: GraphBuilder, table: Matrix, ids: Value) -> Value:
    """The rows ``ids`` int64 [b, t] of ``table`` as float32 [b, t, columns]."""
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


def linear(g: GraphBuilder, matrix: Matrix, x: Value, bias: Tensor | None = None) -> Value:
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
        case FloatMatrix(weight):
            y = g.ms.FusedMatMul(x, g.weight(weight), transB=1)
    return g.op.Add(y, added) if bias else y
