"""Attention and MLP that several layers share; :mod:`shared_block` has what each use has of its own.

Shapes: b rows (batch), t new tokens per row, d hidden size.
"""

from edgegen_export.architecture.components.shared_block import (
    HIGH_ATTENTION,
    LOW_ATTENTION,
    SharedAttention,
    SharedMLP,
    SharedUse,
)
from edgegen_export.graph.attention import attended
from edgegen_export.graph.builder import Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.mlp import narrowed
from edgegen_export.graph.stream import Stream


def shared_attention(layer: LayerGraph, attention: SharedAttention, x: Value) -> Stream:
    """Causal attention of [b, t, 2 d], with the updates of a use in queries, keys and values."""
    g, use = layer.g, layer.parts.first(SharedUse)
    packed = layer.linear(x, *attention.inputs)
    if use and use.attends:
        parts = g.parts(layer.product(x, *LOW_ATTENTION), 3)
        updates = (layer.product(part, name) for name, part in zip(HIGH_ATTENTION, parts, strict=True))
        packed = g.op.Add(packed, g.op.Concat(*updates, axis=2))
    return attended(layer, attention, packed)


def shared_mlp(layer: LayerGraph, mlp: SharedMLP, x: Value, _residual: Value) -> Stream:
    """The MLP of x [b, t, d], with the update of a use in gate and up."""
    wide = layer.linear(x, *mlp.inputs)
    if layer.parts.first(SharedUse):
        wide = layer.g.op.Add(wide, layer.product(layer.product(x, "low.mlp_a"), "low.mlp_b"))
    return narrowed(layer, mlp, wide)
