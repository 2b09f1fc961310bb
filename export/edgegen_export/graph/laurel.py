"""LAuReL: a learned residual of low rank beside attention (Menghani et al. 2024, arXiv:2411.07501).

Shapes: b rows (batch), t new tokens per row, d hidden size.
"""

import numpy as np

from edgegen_export.graph.builder import Value
from edgegen_export.graph.layer_graph import LayerGraph


def with_laurel(layer: LayerGraph, x: Value, residual: Value, attended: Value) -> Value:
    """``(residual + attended + x + norm(right(left(x)))) / √2``, all [b, t, d]; x: what attention took."""
    g, low = layer.g, layer.linear(x, "laurel.left")
    learned = layer.normalized(layer.linear(low, "laurel.right"), "laurel.norm")
    return g.op.Mul(g.op.Sum(residual, attended, x, learned), g.constant(np.array(2**-0.5, np.float32)))
