"""Gates of what attention reads.

Shapes: b rows (batch), t new tokens per row, h heads.
"""

from edgegen_export.architecture.components.attention import Gate
from edgegen_export.graph.activations import negative_softplus
from edgegen_export.graph.builder import GraphBuilder, Value


def gated(g: GraphBuilder, gate: Gate, x: Value, projected: Value, heads: int, size: int) -> Value:
    """x [b, t, h · size] times the opening of each channel, or of each head; ``projected`` [b, t, h · size] or [b, t,
    h]: the gate before its activation."""
    opening = g.op.Neg(negative_softplus(g, projected)) if gate.softplus else g.op.Sigmoid(projected)
    if gate.by == "channel":
        return g.op.Mul(x, opening)
    by_head = g.op.Reshape(x, g.axes(0, 0, heads, size))
    return g.op.Reshape(g.op.Mul(by_head, g.op.Unsqueeze(opening, g.axes(-1))), g.axes(0, 0, heads * size))
