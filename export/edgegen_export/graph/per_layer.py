"""Embeddings of each layer's own: what all layers take of them, and what a layer makes of its part.

Shapes: b rows (batch), t new tokens per row, d hidden size, w width of a layer's part.
"""

import numpy as np

from edgegen_export.architecture.components.per_layer import PerLayerEmbedding
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.matrices import linear, rows
from edgegen_export.graph.mlp import activation
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.stream import normalized


def table_rows(g: GraphBuilder, config: DecoderConfig, own: PerLayerEmbedding, ids: Value) -> Value:
    """The rows of the table that ``ids`` int64 [b, t] have: the first one, where they are beyond it."""
    if own.rows >= config.vocab_size:
        return ids
    known = g.op.Less(ids, g.constant(np.array(own.rows, np.int64)))
    return g.op.Where(known, ids, g.constant(np.array(0, np.int64)))


def per_layer_inputs(
    g: GraphBuilder, params: Parameters, config: DecoderConfig, own: PerLayerEmbedding, ids: Value, x: Value
) -> Value:
    """``norm(projection(x)) + table[ids]`` for :func:`table_rows` int64 [b, t] and the embeddings x [b, t, d] of the
    tokens: the parts of all layers, one after the other, [b, t, layers · w]. The multipliers are in the weights."""
    projected = linear(g, params.matrix("per_layer_in"), x)
    parts = g.op.Reshape(projected, g.axes(0, 0, config.num_layers, own.width))
    even = normalized(g, params, config.norm, parts, "per_layer_norm")
    flat = g.op.Reshape(even, g.axes(0, 0, config.num_layers * own.width))
    return g.op.Add(flat, rows(g, params.matrix("embed_per_layer"), ids))


def of_part(layer: LayerGraph, embedding: PerLayerEmbedding, x: Value) -> Value:
    """``norm(out(activation(gate(x)) · part))`` for x [b, t, d] and the layer's part [b, t, w]."""
    g, gate, out = layer.g, *(layer.params.matrix(f"{layer.name}.per_layer.{name}") for name in ("gate", "out"))
    opening = activation(layer, embedding.activation, linear(g, gate, x))
    output = linear(g, out, g.op.Mul(opening, layer.step.per_layer[layer.index]))
    return layer.normalized(output, "per_layer_norm")
