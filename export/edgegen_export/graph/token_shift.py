"""Difference of the token before, over a fixed state.

Shapes: b rows (batch), t new tokens per row, d hidden size.
"""

import numpy as np

from edgegen.bundle.layer_state import FixedState
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.layer_graph import LayerGraph


def change(g: GraphBuilder, x: Value, state: FixedState) -> Value:
    """``before - x`` of x [b, t, d] and the token before each; the state [b, 1, d] is x of the last token."""
    shape = ["batch", *state.shape]
    seen = g.op.Concat(g.input(state.past, "float32", shape), x, axis=1)
    last = np.iinfo(np.int64).max
    g.output(state.present, g.op.Slice(seen, g.axes(-1), g.axes(last), g.axes(1)), "float32", shape)
    return g.op.Sub(g.op.Slice(seen, g.axes(0), g.axes(-1), g.axes(1)), x)


def blend(layer: LayerGraph, x: Value, changed: Value, shift: str) -> Value:
    """``x + changed · shift``, by channel."""
    return layer.g.op.Add(x, layer.g.op.Mul(changed, layer.weight(shift)))
