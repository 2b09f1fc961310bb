"""xIELU (Huang and Schlag 2024, arXiv:2411.13010) in a graph: quadratic above zero, exponential below."""

import numpy as np

from edgegen_export.architecture.components.mlp import XIELU
from edgegen_export.graph.builder import Value
from edgegen_export.graph.layer_graph import LayerGraph


def xielu(layer: LayerGraph, x: Value) -> Value:
    """``beta · x``, plus ``positive · x²`` above zero and ``negative · (exp(x) - 1 - x)`` below; x [b, t, n].

    The model's own code takes at most -1e-6 into exp, which changes less than float32 rounds.
    """
    g = layer.g
    positive, negative, linear = map(layer.weight, XIELU)
    above = g.op.Relu(x)
    below = g.op.Min(x, g.constant(np.array(0, np.float32)))
    quadratic = g.op.Mul(g.op.Mul(above, above), positive)
    exponential = g.op.Mul(g.op.Sub(g.op.Elu(below, alpha=1.0), below), negative)
    return g.op.Add(g.op.Add(quadratic, exponential), g.op.Mul(x, linear))
