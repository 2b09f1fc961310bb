"""Inputs of ternary matrices, rounded to 8 bits for each token (BitNet b1.58, arXiv:2402.17764)."""

import numpy as np

from edgegen_export.graph.builder import GraphBuilder, Value


def scaled_inputs(g: GraphBuilder, x: Value) -> tuple[Value, Value]:
    """x [b, t, columns] times a factor [b, t, 1], so that the largest size of a token is 127; and that factor."""
    largest = g.op.ReduceMax(g.op.Abs(x), g.axes(-1), keepdims=1)
    least = g.constant(np.array(1e-5, np.float32))
    factor = g.op.Div(g.constant(np.array(127, np.float32)), g.op.Max(largest, least))
    return g.op.Mul(x, factor), factor


def rounded_inputs(g: GraphBuilder, x: Value) -> Value:
    """x [b, t, columns], each token's numbers multiples of its largest size / 127."""
    scaled, factor = scaled_inputs(g, x)
    return g.op.Div(g.op.Round(scaled), factor)
