"""What differential attention does to queries before, and to what they read; :class:`DifferentialAttention` has the
formulas.

A pair of keys is one key to the attention operator, and a query has zeros for the key that is not its own: so pairs of
values are read at once, and the KV cache has every key and value once.

Shapes: b rows (batch), t new tokens per row, h queries, s numbers of a query.
"""

import numpy as np

from edgegen_export.architecture.components.differential_attention import DifferentialAttention
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.stream import normalized


def of_pairs(g: GraphBuilder, own: DifferentialAttention, query: Value) -> Value:
    """Queries [b, t, h · s] as [b, t, h · 2 s], for pairs of keys."""
    pairs = g.op.Reshape(query, g.axes(0, 0, own.heads // 2, 2, 1, own.size))
    taken = g.constant(np.eye(2, dtype=np.float32)[..., None])
    return g.op.Reshape(g.op.Mul(pairs, taken), g.axes(0, 0, own.heads * own.head_dim))


def difference(g: GraphBuilder, params: Parameters, own: DifferentialAttention, layer: int, read: Value) -> Value:
    """What both queries of each pair have read, [b, t, h · 2 s], as [b, t, h · s]."""
    module, pairs = f"layers.{layer}.attn", own.heads // 2
    split = g.op.Reshape(read, g.axes(0, 0, pairs, 2, own.head_dim))
    first, second = g.node("Split", [split], 2, attributes={"axis": 3, "num_outputs": 2})
    less = g.op.Sub(first, g.op.Mul(second, g.weight(params.vector(f"{module}.rate"))))
    normed = normalized(g, params, own.pair_norm, less, f"{module}.pair_norm")
    return g.op.Reshape(normed, g.axes(0, 0, pairs * own.head_dim))
