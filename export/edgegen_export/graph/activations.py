"""Activations of a decoder graph that more than one kind of layer has.

The bits of stock ``Softplus`` are not the same however a text is cut, where threads share its elements, but a row of
``LogSoftmax`` is one thread's: ``-softplus(x)`` is ``log_softmax([x, 0])`` at the 0.
"""

from collections.abc import Sequence

import numpy as np

from edgegen.graph.norms_and_activations import NEGATIVE_SOFTPLUS
from edgegen_export.graph.builder import GraphBuilder, Value


def silu(g: GraphBuilder, x: Value) -> Value:
    """``x · sigmoid(x)``."""
    return g.ms.QuickGelu(x, alpha=1.0)


def negative_softplus(g: GraphBuilder, x: Value) -> Value:
    """``-log(1 + exp(x))`` of x [b, t, c]."""
    kind = {"kind": NEGATIVE_SOFTPLUS, "gate_axis": 0}
    return g.function("Activation_negative_softplus", [x], 1, _negative_softplus, kind)[0]


def _negative_softplus(f: GraphBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
    pairs = f.op.Pad(f.op.Unsqueeze(inputs[0], f.axes(-1)), f.axes(0, 0, 0, 0, 0, 0, 0, 1))
    return [f.op.Gather(f.op.LogSoftmax(pairs, axis=-1), f.constant(np.array(1, np.int64)), axis=-1)]


def softcap(g: GraphBuilder, cap: float, x: Value) -> Value:
    """``cap · tanh(x / cap)``."""
    scale = g.constant(np.array(cap, np.float32))
    return g.op.Mul(g.op.Tanh(g.op.Div(x, scale)), scale)
