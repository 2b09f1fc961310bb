"""Attention of a further pass over layers to its own keys and to those of an earlier pass; :class:`MixedAttention` has
the formulas.

Shapes: b rows (batch), t new tokens per row, d hidden size, h heads.
"""

from dataclasses import replace

from edgegen_export.architecture.components.mixed_attention import MixedAttention
from edgegen_export.graph.attention import cached_attention, rotated, rotates_inside, softmax_attention
from edgegen_export.graph.builder import Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.reductions import total
from edgegen_export.graph.stream import Stream


def mixed_attention(layer: LayerGraph, attention: MixedAttention, x: Value) -> Stream:
    """Causal attention of [b, t, d] to both caches; without the output's bias, which the stream adds."""

    def read(query: Value, key: Value, value: Value) -> Value:
        (own, *earlier), rotates, source = layer.caches, rotates_inside(attention), attention.earlier
        result = cached_attention(layer, attention, (query, key, value), own, rotates=rotates)
        if source is None:
            return result
        whole, kept = replace(attention, window=None, source=source), (query, *layer.step.kept[source])
        before = cached_attention(layer, whole, kept, earlier[0], rotates=rotates)
        if rotates:
            query = rotated(layer, attention.rope, query, attention.heads, attention.size)
        return _mixed(layer, attention, query, before, result)

    return softmax_attention(layer, attention, x, read)


def _mixed(layer: LayerGraph, attention: MixedAttention, query: Value, earlier: Value, later: Value) -> Value:
    """Mix what rotated queries [b, t, h · head_dim] read of an earlier layer's keys and values, and of their own."""
    g, size = layer.g, attention.head_dim
    by_head = g.axes(0, 0, attention.heads, size)
    weight, bias = (layer.weight(f"mix.{name}") for name in ("weight", "bias"))
    logit = total(g, g.op.Mul(g.op.Reshape(query, by_head), weight), size)
    gate = g.op.Sigmoid(g.op.Add(logit, g.op.Unsqueeze(bias, g.axes(-1))))
    earlier, later = (g.op.Reshape(x, by_head) for x in (earlier, later))
    result = g.op.Add(later, g.op.Mul(gate, g.op.Sub(earlier, later)))
    return g.op.Reshape(result, g.axes(0, 0, attention.heads * size))
