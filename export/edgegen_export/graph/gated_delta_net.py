"""The gated delta net of a decoder graph, which some layers have instead of attention, over two fixed states.

The recurrence is ONNX Runtime's ``LinearAttention``, whose bits are the same however a text is cut.

Shapes: b rows (batch), t new tokens per row, h value heads, k and v channels of a key head and of a value head.
"""

import numpy as np

from edgegen.bundle.layer_state import FixedState
from edgegen_export.architecture.components.gated_delta_net import GatedDeltaNet
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.graph.builder import NONE, GraphBuilder, Value
from edgegen_export.graph.mamba2 import negative_softplus, silu, split
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.short_conv import convolved
from edgegen_export.graph.stream import Stream, norm_of_groups, norm_operator

_TINY = 1e-6
"""Added to the square of a length that is divided by, as transformers does."""


def gated_delta_net(
    g: GraphBuilder,
    params: Parameters,
    net: GatedDeltaNet,
    layer: int,
    x: Value,
    states: tuple[FixedState, ...],
) -> Stream:
    """``out(norm(y) · silu(z))``, y what :class:`GatedDeltaNet` says of projections of x [b, t, d].

    ``states``: the last inputs of the convolution [b, w - 1, channels], and the recurrence's [b, h, k, v]. Returns the
    output projection without its bias, which the stream adds.
    """
    module = f"layers.{layer}.{net.name}"
    inputs = tuple(f"{module}.{part}" for part in net.parts)
    conv, delta = states
    dt_offset, rate = (g.weight(params.vector(f"{module}.{name}")) for name in net.trained)
    wide = linear(g, params.matrix(*inputs), x, params.bias(*inputs))
    mixed, z, dt, beta = split(g, wide, net.convolved, net.values, net.value_heads, net.value_heads)
    mixed = silu(g, convolved(g, params, f"{module}.kernel", mixed, conv))
    queries, keys, values = split(g, mixed, net.keys, net.keys, net.values)

    shape = ["batch", *delta.shape]
    read, present = g.node(
        "LinearAttention",
        [
            _of_length_one(g, net, queries),
            _of_length_one(g, net, keys),
            values,
            g.input(delta.past, "float32", shape),
            g.op.Mul(negative_softplus(g, g.op.Add(dt, dt_offset)), rate),
            g.op.Sigmoid(beta),
        ],
        2,
        domain="com.microsoft",
        attributes={
            "update_rule": "gated_delta",
            "scale": net.key_dim**-0.5,
            "q_num_heads": net.key_heads,
            "kv_num_heads": net.value_heads,
        },
    )
    g.output(delta.present, present, "float32", shape)
    even = norm_of_groups(g, Norm("rms", net.eps), read, net.value_heads, net.value_dim)
    y = g.op.Mul(even, g.weight(params.vector(f"{module}.norm.weight")))
    y = g.op.Mul(y, silu(g, z))
    return Stream(NONE, linear(g, params.matrix(f"{module}.out"), y), params.bias(f"{module}.out"))


def _of_length_one(g: GraphBuilder, net: GatedDeltaNet, x: Value) -> Value:
    """Each key head of x [b, t, keys] over its length: an RMS norm whose weight is ``key_dim ** -0.5``."""
    size = net.key_dim
    weight = g.constant(np.full(size, size**-0.5, np.float32))
    heads = norm_operator(g, Norm("rms", _TINY / size), g.op.Reshape(x, g.axes(0, 0, net.key_heads, size)), weight)
    return g.op.Reshape(heads, g.axes(0, 0, net.keys))
