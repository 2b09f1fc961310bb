"""Attention to another pass, mixed with attention to its own keys and values; :class:`MixedAttention` has the formula.

Shapes: b rows (batch), t new tokens per row, h heads.
"""

from edgegen_export.architecture.components.mixed_attention import MixedAttention
from edgegen_export.graph.builder import Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.reductions import total


def with_earlier(layer: LayerGraph, mixed: MixedAttention, query: Value, read: tuple[Value, Value]) -> Value:
    """Mix what rotated queries [b, t, h · head_dim] read of an earlier layer's keys and values, and of their own."""
    g = layer.g
    by_head = g.axes(0, 0, mixed.heads, mixed.head_dim)
    weight, bias = (layer.weight(f"mix.{name}") for name in ("weight", "bias"))
    logit = total(g, g.op.Mul(g.op.Reshape(query, by_head), weight), mixed.head_dim)
    gate = g.op.Sigmoid(g.op.Add(logit, g.op.Unsqueeze(bias, g.axes(-1))))
    earlier, later = (g.op.Reshape(x, by_head) for x in read)
    result = g.op.Add(later, g.op.Mul(gate, g.op.Sub(earlier, later)))
    return g.op.Reshape(result, g.axes(0, 0, mixed.heads * mixed.head_dim))
