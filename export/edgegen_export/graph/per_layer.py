"""Embeddings of each layer's own: what all layers take of them, and what a layer makes of its part.

Shapes: b rows (batch), t new tokens per row, d hidden size, w width of a layer's part.
"""

import numpy as np

from edgegen_export.architecture.components.altup import AltUp
from edgegen_export.architecture.components.per_layer import LayerScale, PerLayerEmbedding
from edgegen_export.graph.builder import NONE, Value
from edgegen_export.graph.layer_graph import BlockGraph, LayerGraph, ModelGraph
from edgegen_export.graph.matrices import rows
from edgegen_export.graph.mlp import activation
from edgegen_export.graph.stream import Stream, added, pick


def table_rows(model: ModelGraph, ids: Value) -> Value:
    """The rows of the table that ``ids`` int64 [b, t] have: the first one, where they are beyond it."""
    g, own = model.g, model.config.first(PerLayerEmbedding)
    if own is None or own.rows >= model.config.vocab_size:
        return ids
    known = g.op.Less(ids, g.constant(np.array(own.rows, np.int64)))
    return g.op.Where(known, ids, g.constant(np.array(0, np.int64)))


def per_layer_inputs(model: ModelGraph, ids: Value, stream: Stream) -> Value:
    """``norm(projection(x)) + table[ids]`` for :func:`table_rows` int64 [b, t] and the embeddings x [b, t, d] of the
    tokens: the parts of all layers, one after the other, [b, t, layers · w]; none in models without such embeddings.
    The multipliers are in the weights."""
    g, layers, own = model.g, model.config.num_layers, model.config.first(PerLayerEmbedding)
    if own is None:
        return NONE
    x = added(g, stream)
    parts = g.op.Reshape(model.linear(x, "per_layer_in"), g.axes(0, 0, layers, own.width))
    even = model.normalized(parts, "per_layer_norm")
    flat = g.op.Reshape(even, g.axes(0, 0, layers * own.width))
    return g.op.Add(flat, rows(g, model.matrix("embed_per_layer"), ids))


def of_layers(model: ModelGraph, parts: Value, first: int, last: int, wanted: Value = NONE) -> dict[int, Value]:
    """Return the parts of layers ``first`` to ``last`` among all, [b, t, layers · w], of the ``wanted`` tokens."""
    g, config, own = model.g, model.config, model.config.first(PerLayerEmbedding)
    if own is None or first == last:
        return {}
    with g.scope("per_layer"):
        if last - first < config.num_layers:
            parts = g.op.Slice(parts, g.axes(first * own.width), g.axes(last * own.width), g.axes(2))
        parts = pick(g, parts, wanted) if wanted else parts
        split = g.parts(parts, last - first)
    return dict(zip(range(first, last), split, strict=True))


def of_part(layer: LayerGraph, embedding: PerLayerEmbedding, x: Value) -> Value:
    """``norm(out(activation(gate(x)) · part))`` for x [b, t, d] and the layer's part [b, t, w]."""
    opening = activation(layer, embedding.activation, layer.product(x, "per_layer.gate"))
    gated = layer.g.op.Mul(opening, layer.step.per_layer[layer.index])
    return layer.normalized(layer.product(gated, "per_layer.out"), "per_layer_norm")


def with_embedding(embedding: PerLayerEmbedding, block: BlockGraph, layer: LayerGraph, stream: Stream) -> Stream:
    """The stream after a layer, with what it makes of its part; AltUp adds that to its streams itself."""
    g, after = layer.g, block(layer, stream)
    if layer.parts.first(AltUp):
        return after
    with g.scope(layer.name), g.scope("per_layer"):
        x = added(g, after)
        return Stream(g.op.Add(x, of_part(layer, embedding, x)), others=after.others)


def with_scale(_scale: LayerScale, block: BlockGraph, layer: LayerGraph, stream: Stream) -> Stream:
    """The stream after a layer, times a trained number."""
    g, after = layer.g, block(layer, stream)
    with g.scope(layer.name):
        return Stream(g.op.Mul(added(g, after), layer.weight("scale")), others=after.others)
