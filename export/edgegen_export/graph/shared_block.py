"""A block that several layers share, before the mixer of a layer; :mod:`shared_block` has what each use has of its own.

Shapes: b rows (batch), t new tokens per row.
"""

from edgegen_export.architecture.components.shared_block import HIGH_ATTENTION, LOW_ATTENTION, SharedUse
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.parameters import Parameters


def with_updated_attention(
    g: GraphBuilder, params: Parameters, use: SharedUse | None, layer: int, x: Value, packed: Value
) -> Value:
    """Queries, keys and values [b, t, …] of x, one after the other, with the updates of a use."""
    if use is None or not use.attends:
        return packed
    low = linear(g, params.matrix(*(f"layers.{layer}.{name}" for name in LOW_ATTENTION)), x)
    parts = g.node("Split", [low], 3, attributes={"axis": 2, "num_outputs": 3})
    made = (
        linear(g, params.matrix(f"layers.{layer}.{name}"), part)
        for name, part in zip(HIGH_ATTENTION, parts, strict=True)
    )
    return g.op.Add(packed, g.op.Concat(*made, axis=2))


def with_updated_mlp(
    g: GraphBuilder, params: Parameters, use: SharedUse | None, layer: int, x: Value, wide: Value
) -> Value:
    """Gate and up [b, t, …] of x, one after the other, with the update of a use."""
    if use is None:
        return wide
    low = linear(g, params.matrix(f"layers.{layer}.low.mlp_a"), x)
    return g.op.Add(wide, linear(g, params.matrix(f"layers.{layer}.low.mlp_b"), low))
