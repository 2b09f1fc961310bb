"""The residual stream of a decoder graph, and the norms that add to it.

Shapes: b rows (batch), t new tokens per row, d hidden size.
"""

from dataclasses import dataclass

import numpy as np

from edgegen_export.architecture.components.norm import Norm
from edgegen_export.graph.builder import NONE, GraphBuilder, Tensor, Value


@dataclass(frozen=True, slots=True)
class Stream:
    """The residual stream [b, t, d] between blocks: ``residual + delta + bias``, not yet added.

    The next norm's fused operator adds them, normalizes the sum and returns both in one pass. ``others``: between
    layers, the streams behind the first, in models that have several.
    """

    residual: Value
    delta: Value = NONE
    bias: Tensor | None = None
    others: tuple[Value, ...] = ()


def added(g: GraphBuilder, stream: Stream) -> Value:
    """The stream as one value [b, t, d]."""
    total = g.op.Add(stream.residual, stream.delta) if stream.delta else stream.residual
    return g.op.Add(total, g.weight(stream.bias)) if stream.bias else total


def pick(g: GraphBuilder, hidden: Value, indices: Value) -> Value:
    """Selected positions of each row: hidden [b, t, d], indices [b, n] → [b, n, d]."""
    return g.op.GatherND(hidden, g.op.Unsqueeze(indices, g.axes(2)), batch_dims=1)


def sublayer_output(g: GraphBuilder, part: Stream) -> Value:
    """The output of a sublayer [b, t, d], with its bias."""
    return g.op.Add(part.delta, g.weight(part.bias)) if part.bias else part.delta


def both_added(g: GraphBuilder, residual: Value, first: Stream, second: Stream) -> Stream:
    """The stream with the outputs of both sublayers."""
    delta = g.op.Add(first.delta, second.delta)
    if first.bias:
        delta = g.op.Add(delta, g.weight(first.bias))
    return Stream(residual, delta, second.bias)


def norm_of_groups(g: GraphBuilder, norm: Norm, x: Value, groups: int, size: int) -> Value:
    """Each of the ``groups`` of ``size`` channels of x [b, t, groups · size] normalized by itself, without a weight."""
    split = g.op.Reshape(x, g.axes(0, 0, groups, size))
    even = norm_operator(g, norm, split, g.constant(np.ones(size, np.float32)))
    return g.op.Reshape(even, g.axes(0, 0, groups * size))


def norm_operator(g: GraphBuilder, norm: Norm, x: Value, weight: Value, *bias: Value) -> Value:
    operator = {"layer": g.op.LayerNormalization, "rms": g.op.SimplifiedLayerNormalization}[norm.kind]
    return operator(x, weight, *bias, axis=-1, epsilon=norm.eps)
