"""The gated delta net of a decoder graph, which some layers have instead of attention, over two fixed states.

The recurrence is ONNX Runtime's ``LinearAttention``, whose bits are the same however a text is cut. edgegen's kernels
have it as one operator, with the norms and the gate around it.

Shapes: b rows (batch), t new tokens per row, h value heads, k and v channels of a key head and of a value head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from edgegen.bundle.layer_state import FixedState
from edgegen.graph.norms_and_activations import LOGISTIC, SILU
from edgegen_export.architecture.components.gated_delta_net import GatedDeltaNet
from edgegen_export.graph.activations import negative_softplus, silu
from edgegen_export.graph.builder import MICROSOFT, GraphBuilder, Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.short_conv import convolved
from edgegen_export.graph.stream import Stream

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
    mixed, z, dt, beta = g.split(wide, net.convolved, net.values, net.value_heads, net.value_heads)
    mixed = convolved(layer, f"{module}.kernel", mixed, conv, activated=True)
    qkv = g.split(mixed, net.keys, net.keys, net.values)
    decay = g.op.Mul(negative_softplus(g, g.op.Add(dt, dt_offset)), rate)
    share = g.op.Sigmoid(beta)
    share = g.op.Mul(share, g.constant(np.array(2, np.float32))) if net.doubled else share
    rule = DeltaRule(net.key_heads, delta, net.eps, "silu")
    return layer.output(rule.read(g, qkv, decay, share, layer.weight(f"{module}.norm.weight"), z), f"{module}.out")


@dataclass(frozen=True, slots=True)
class DeltaRule:
    """``norm(q · S) · gate(z)`` after each token has decayed the state S and moved it to v by beta; queries and keys
    have a length of one.

    ``key_heads``: heads of queries and keys; ``state``: S, [b, h, k, v]; ``eps``: of the norm by head.
    """

    key_heads: int
    state: FixedState
    eps: float
    gate: Literal["silu", "sigmoid"]

    def read(self, g: GraphBuilder, qkv: Sequence[Value], decay: Value, beta: Value, weight: Value, z: Value) -> Value:
        """Read the state, [b, t, h · v], and let each token change it.

        ``qkv``: [b, t, key_heads · k] twice and [b, t, h · v]; ``decay``: logarithms, [b, t, h] or [b, t, h · k];
        ``beta`` [b, t, h]; ``weight`` [h · v], of the norm; ``z`` [b, t, h · v].
        """
        (heads, keys, values), shape = self.state.shape, ["batch", *self.state.shape]
        past, unit = g.input(self.state.past, "float32", shape), g.constant(np.full(keys, keys**-0.5, np.float32))
        y, present = g.function(
            f"GatedDeltaRule_{self.key_heads}_{heads}_{keys}_{values}_{self.gate}",
            [*qkv, past, decay, beta, unit, weight, z],
            2,
            self._body,
            {
                "q_heads": self.key_heads,
                "heads": heads,
                "keys": keys,
                "values": values,
                "scale": keys**-0.5,
                "q_epsilon": _TINY / keys,
                "epsilon": self.eps,
                "activation": {"silu": SILU, "sigmoid": LOGISTIC}[self.gate],
            },
        )
        g.output(self.state.present, present, "float32", shape)
        return y

    def _body(self, f: GraphBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        q, k, v, past, decay, beta, unit, weight, z = inputs
        heads, keys, values = self.state.shape

        def normed(x: Value, heads: int, size: int, weight: Value, eps: float) -> Value:
            """x [b, t, heads · size], normalized by head."""
            split = f.op.Reshape(x, f.axes(0, 0, heads, size))
            # ONNX Runtime (1.23 to 1.32) ends the process at this operator in a function without stash_type.
            even = f.op.SimplifiedLayerNormalization(split, weight, axis=-1, epsilon=eps, stash_type=1)
            return f.op.Reshape(even, f.axes(0, 0, heads * size))

        q, k = (normed(x, self.key_heads, keys, unit, _TINY / keys) for x in (q, k))
        read, present = f.node(
            "LinearAttention",
            [q, k, v, past, decay, beta],
            2,
            domain=MICROSOFT,
            attributes={
                "update_rule": "gated_delta",
                "scale": keys**-0.5,
                "q_num_heads": self.key_heads,
                "kv_num_heads": heads,
            },
        )
        even = normed(read, heads, values, f.constant(np.ones(values, np.float32)), self.eps)
        gate = silu(f, z) if self.gate == "silu" else f.op.Sigmoid(z)
        return f.op.Mul(f.op.Mul(even, weight), gate), present
