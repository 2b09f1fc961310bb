"""Softcap: numbers held between two limits, smoothly."""

import numpy as np

from edgegen_export.graph.builder import GraphBuilder, Value


def softcap(g: GraphBuilder, cap: float, x: Value) -> Value:
    """``cap · tanh(x / cap)``."""
    scale = g.constant(np.array(cap, np.float32))
    return g.op.Mul(g.op.Tanh(g.op.Div(x, scale)), scale)
