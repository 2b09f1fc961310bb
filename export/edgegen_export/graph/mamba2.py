"""The Mamba-2 mixer of a decoder graph, instead of attention or beside it in a layer, over two fixed states.

The recurrence is ONNX Runtime's ``LinearAttention`` in its gated mode, with C as queries, B as keys and dt · x as
values: its bits are the same however a text is cut.

Shapes: b rows (batch), t new tokens per row, h heads, p channels of a head, i = h · p inner channels.
"""

import numpy as np

from edgegen_export.architecture.components.mamba2 import Mamba2
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.graph.activations import negative_softplus, silu
from edgegen_export.graph.builder import NONE, Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.short_conv import convolved
from edgegen_export.graph.stream import Stream, norm_of_groups, norm_operator


def mamba2(layer: LayerGraph, mixer: Mamba2, x: Value) -> Stream:
    """``out(norm(y · silu(z)))`` or ``out(norm(y) · silu(z))``, y what :class:`Mamba2` says of z, x, B, C and dt, which
    are projected from x [b, t, d].

    Its states are the last inputs of the convolution [b, w - 1, channels], and h [b, h, state, p], negated. Returns
    the output projection without its bias, which the stream adds.
    """
    g, module = layer.g, mixer.name
    conv, ssm = layer.states(mixer)
    dt_offset, rate, skip = (layer.weight(f"{module}.{name}") for name in mixer.trained)
    z, mixed, dt = g.split(layer.linear(x, *mixer.inputs), mixer.inner, mixer.convolved, mixer.heads)
    mixed = convolved(layer, f"{module}.kernel", mixed, conv, activated=True)
    shared = mixer.groups * mixer.state
    values, keys, queries = g.split(mixed, mixer.inner, shared, shared)

    step = negative_softplus(g, g.op.Add(dt, dt_offset))  # [b, t, h]
    if mixer.least_step:
        step = g.op.Clip(step, NONE, g.constant(np.array(-mixer.least_step, np.float32)))
    by_head = g.op.Reshape(values, g.axes(0, 0, mixer.heads, mixer.head_dim))
    written = g.op.Reshape(g.op.Mul(by_head, g.op.Unsqueeze(step, g.axes(-1))), g.axes(0, 0, mixer.inner))
    shape = ["batch", *ssm.shape]
    y, present = g.node(
        "LinearAttention",
        [queries, keys, written, g.input(ssm.past, "float32", shape), g.op.Mul(step, rate)],
        2,
        domain="com.microsoft",
        attributes={
            "update_rule": "gated",
            "scale": 1.0,
            "q_num_heads": mixer.groups,
            "kv_num_heads": mixer.heads,
        },
    )
    g.output(ssm.present, present, "float32", shape)
    y = g.op.Sub(g.op.Mul(values, skip), y)
    gate = silu(g, z)
    y = y if mixer.gate_last else g.op.Mul(y, gate)
    if mixer.eps is not None:
        y = _normalized(layer, mixer, Norm("rms", mixer.eps), y)
    y = g.op.Mul(y, gate) if mixer.gate_last else y
    return layer.output(y, f"{module}.out")


def _normalized(layer: LayerGraph, mixer: Mamba2, norm: Norm, x: Value) -> Value:
    """x [b, t, i] normalized, in each group by itself."""
    g, weight = layer.g, layer.weight(f"{mixer.name}.norm.weight")
    if mixer.groups == 1:
        return norm_operator(g, norm, x, weight)
    return g.op.Mul(norm_of_groups(g, norm, x, mixer.groups, mixer.inner // mixer.groups), weight)
