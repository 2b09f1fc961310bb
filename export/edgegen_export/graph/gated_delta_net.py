"""The gated delta net of a decoder graph, which some layers have instead of attention, over two fixed states.

The recurrence is ONNX Runtime's ``LinearAttention``, whose bits are the same however a text is cut.

Shapes: b rows (batch), t new tokens per row, h value heads, k and v channels of a key head and of a value head.
"""

import numpy as np

from edgegen.bundle.layer_state import FixedState
from edgegen_export.architecture.components.gated_delta_net import GatedDeltaNet
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.mamba2 import negative_softplus, silu, split
from edgegen_export.graph.short_conv import convolved
from edgegen_export.graph.stream import Stream, norm_of_groups, norm_operator

_TINY = 1e-6
"""Added to the square of a length that is divided by, as transformers does."""


def gated_delta_net(layer: LayerGraph, net: GatedDeltaNet, x: Value) -> Stream:
    """``out(norm(y) · silu(z))``, y what :class:`GatedDeltaNet` says of projections of x [b, t, d].

    Its states are the last inputs of the convolution [b, w - 1, channels], and the recurrence's [b, h, k, v]. Returns
    the output projection without its bias, which the stream adds.
    """
    g, module = layer.g, net.name
    conv, delta = layer.states(net)
    dt_offset, rate = (layer.weight(f"{module}.{name}") for name in net.trained)
    wide = layer.linear(x, *net.inputs)
    mixed, z, dt, beta = split(g, wide, net.convolved, net.values, net.value_heads, net.value_heads)
    mixed = silu(g, convolved(g, layer.params, f"{layer.name}.{module}.kernel", mixed, conv))
    queries, keys, values = split(g, mixed, net.keys, net.keys, net.values)
    queries, keys = (of_length_one(g, part, net.key_heads, net.key_dim) for part in (queries, keys))
    decay = g.op.Mul(negative_softplus(g, g.op.Add(dt, dt_offset)), rate)
    share = g.op.Sigmoid(beta)
    share = g.op.Mul(share, g.constant(np.array(2, np.float32))) if net.doubled else share
    read = read_by_delta_rule(g, (queries, keys, values), decay, share, delta, net.key_heads)
    even = norm_of_groups(g, Norm("rms", net.eps), read, net.value_heads, net.value_dim)
    y = g.op.Mul(even, layer.weight(f"{module}.norm.weight"))
    return layer.output(g.op.Mul(y, silu(g, z)), f"{module}.out")


def read_by_delta_rule(
    g: GraphBuilder, qkv: tuple[Value, ...], decay: Value, beta: Value, delta: FixedState, key_heads: int
) -> Value:
    """Read the state ``delta`` by q, [b, t, h · v], after each token has decayed it and moved it by ``beta``.

    ``qkv``: [b, t, key_heads · k] twice and [b, t, h · v]; ``decay``: logarithms, [b, t, h] or [b, t, h · k].
    """
    value_heads, key_dim, _ = delta.shape
    shape = ["batch", *delta.shape]
    read, present = g.node(
        "LinearAttention",
        [*qkv, g.input(delta.past, "float32", shape), decay, beta],
        2,
        domain="com.microsoft",
        attributes={
            "update_rule": "gated_delta",
            "scale": key_dim**-0.5,
            "q_num_heads": key_heads,
            "kv_num_heads": value_heads,
        },
    )
    g.output(delta.present, present, "float32", shape)
    return read


def of_length_one(g: GraphBuilder, x: Value, heads: int, size: int, tiny: float = _TINY) -> Value:
    """Each of the ``heads`` of x [b, t, heads · size] over its length, to whose square ``tiny`` is added: an RMS norm
    whose weight is ``size ** -0.5``."""
    weight = g.constant(np.full(size, size**-0.5, np.float32))
    even = norm_operator(g, Norm("rms", tiny / size), g.op.Reshape(x, g.axes(0, 0, heads, size)), weight)
    return g.op.Reshape(even, g.axes(0, 0, heads * size))
