"""Kimi delta attention of a decoder graph, which some layers have instead of softmax attention, over two fixed states.

The recurrence is ONNX Runtime's ``LinearAttention`` with a decay for each channel of the keys; its bits are the same
however a text is cut.

Shapes: b rows (batch), t new tokens per row, h heads, c channels of a head, i = h · c channels of all.
"""

import numpy as np

from edgegen_export.architecture.components.kimi_delta_attention import KimiDeltaAttention
from edgegen_export.graph.activations import negative_softplus
from edgegen_export.graph.builder import Value
from edgegen_export.graph.gated_delta_net import DeltaRule
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.short_conv import convolved
from edgegen_export.graph.stream import Stream


def kimi_delta_attention(layer: LayerGraph, net: KimiDeltaAttention, x: Value) -> Stream:
    """``out(norm(y) · sigmoid(z))``, y what :class:`KimiDeltaAttention` says of projections of x [b, t, d].

    Its states are the last inputs of the convolution [b, w - 1, 3 · i], and the recurrence's [b, h, c, c]. Returns the
    output projection without its bias, which the stream adds.
    """
    g, module = layer.g, net.name
    conv, delta = layer.states(net)
    dt_offset, rate = (layer.weight(f"{module}.{name}") for name in net.trained)
    wide = layer.linear(x, *net.inputs)
    _, _, _, *rest = net.sizes.values()
    mixed, dt, z, beta = g.split(wide, 3 * net.channels, *rest)
    if net.rank is not None:
        dt, z = (layer.linear(part, f"{module}.{name}") for name, part in zip(net.low, (dt, z), strict=True))
    mixed = convolved(layer, f"{module}.kernel", mixed, conv, activated=True)
    qkv = g.split(mixed, *[net.channels] * 3)
    dt = g.op.Add(dt, dt_offset)
    if net.bound is None:
        decay = g.op.Mul(negative_softplus(g, dt), rate)
    else:
        decay = g.op.Mul(g.op.Sigmoid(g.op.Mul(dt, rate)), g.constant(np.array(net.bound, np.float32)))
    rule, weight = DeltaRule(net.heads, delta, net.eps, "sigmoid"), layer.weight(f"{module}.norm.weight")
    return layer.output(rule.read(g, qkv, decay, g.op.Sigmoid(beta), weight, z), f"{module}.out")
