"""Embeddings of each layer's own: what all layers take of them, and what a layer makes of its part.

Shapes: b rows (batch), t new tokens per row, d hidden size, w width of a layer's part.
"""

from edgegen_export.architecture.config import DecoderConfig, PerLayerEmbedding
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.matrices import linear, rows
from edgegen_export.graph.mlp import activation
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.stream import normalized


def per_layer_inputs(
    g: GraphBuilder, params: Parameters, config: DecoderConfig, own: PerLayerEmbedding, ids: Value, x: Value
) -> Value:
    """``norm(projection(x)) + table[ids]`` for ids int64 [b, t] and their embeddings x [b, t, d]: the parts of all
    layers, one after the other, [b, t, layers · w]. The multipliers are in the weights."""
    projected = linear(g, params.matrix("per_layer_in"), x)
    parts = g.op.Reshape(projected, g.axes(0, 0, config.num_layers, own.width))
    even = normalized(g, params, config.norm, parts, "per_layer_norm")
    flat = g.op.Reshape(even, g.axes(0, 0, config.num_layers * own.width))
    return g.op.Add(flat, rows(g, params.matrix("embed_per_layer"), ids))


def with_per_layer(
    g: GraphBuilder, params: Parameters, config: DecoderConfig, layer: int, x: Value, part: Value
) -> Value:
    """``x + norm(out(activation(gate(x)) · part))`` for the stream x [b, t, d] and the layer's part [b, t, w]."""
    module = f"layers.{layer}.per_layer"
    gate = activation(g, params, config.activation, layer, linear(g, params.matrix(f"{module}.gate"), x))
    made = linear(g, params.matrix(f"{module}.out"), g.op.Mul(gate, part))
    return g.op.Add(x, normalized(g, params, config.norm, made, f"{module}_norm"))
