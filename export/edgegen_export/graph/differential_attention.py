"""Differential attention of a decoder graph; :class:`DifferentialAttention` has the formulas.

A pair of keys is one key to the attention operator, and a query has zeros for the key that is not its own: so pairs of
values are read at once, and the KV cache has every key and value once.

Shapes: b rows (batch), t new tokens per row, h queries, s numbers of a query.
"""

import numpy as np

from edgegen_export.architecture.components.differential_attention import DifferentialAttention
from edgegen_export.graph.attention import cached_attention, softmax_attention
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.stream import Stream


def differential_attention(layer: LayerGraph, attention: DifferentialAttention, x: Value) -> Stream:
    """Causal attention of [b, t, d] by pairs of queries; without the output's bias, which the stream adds."""

    def read(query: Value, key: Value, value: Value) -> Value:
        pairs = _of_pairs(layer.g, attention, query), key, value
        return _difference(layer, attention, cached_attention(layer, attention, pairs, layer.caches[0]))

    return softmax_attention(layer, attention, x, read)


def _of_pairs(g: GraphBuilder, attention: DifferentialAttention, query: Value) -> Value:
    """Queries [b, t, h · s] as [b, t, h · 2 s], for pairs of keys."""
    pairs = g.op.Reshape(query, g.axes(0, 0, attention.heads // 2, 2, 1, attention.size))
    taken = g.constant(np.eye(2, dtype=np.float32)[..., None])
    return g.op.Reshape(g.op.Mul(pairs, taken), g.axes(0, 0, attention.heads * attention.head_dim))


def _difference(layer: LayerGraph, attention: DifferentialAttention, read: Value) -> Value:
    """Combine the results of both queries of each pair, [b, t, h · 2 s], to [b, t, h · s]."""
    g, pairs = layer.g, attention.heads // 2
    split = g.op.Reshape(read, g.axes(0, 0, pairs, 2, attention.head_dim))
    first, second = g.parts(split, 2, axis=3)
    less = g.op.Sub(first, g.op.Mul(second, layer.weight("attn.rate")))
    normed = layer.normalized(less, "attn.pair_norm", attention.pair_norm)
    return g.op.Reshape(normed, g.axes(0, 0, pairs * attention.head_dim))
