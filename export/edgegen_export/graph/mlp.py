"""MLPs of a decoder graph, plain and gated.

Shapes: b rows (batch), t new tokens per row, d hidden size.
"""

from collections.abc import Callable, Mapping

import numpy as np

from edgegen_export.architecture.components.mlp import MLP, XIELU, Activation, mlp_inputs
from edgegen_export.graph.builder import NONE, GraphBuilder, Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.reductions import mean, mean_square
from edgegen_export.graph.stream import Stream


def activation(layer: LayerGraph, kind: Activation, x: Value) -> Value:
    return _ACTIVATIONS[kind](layer, x)


def plain_mlp(layer: LayerGraph, mlp: MLP, x: Value, _residual: Value) -> Stream:
    """The MLP of x [b, t, d]; the stream adds the bias of ``down``."""
    return feed_forward(layer, mlp, x)


def feed_forward(layer: LayerGraph, mlp: MLP, x: Value, *, name: str = "mlp", weights: Value = NONE) -> Stream:
    """``down(activation(up(x)))``, or ``down(activation(gate(x)) · up(x))``; the stream adds the bias of ``down``.

    ``weights`` [b, t, n]: of n equal parts of what ``down`` takes.
    """
    return narrowed(layer, mlp, layer.linear(x, *mlp_inputs(name, gated=mlp.gated)), name=name, weights=weights)


def narrowed(layer: LayerGraph, mlp: MLP, wide: Value, *, name: str = "mlp", weights: Value = NONE) -> Stream:
    """``down`` of what the other matrices give, [b, t, channels].

    Of the gate, only what is above the layer's cutoff is activated, where it has one; a sub-norm stands before
    ``down``.
    """
    g = layer.g
    if mlp.gated:
        gate, up = g.parts(wide, 2)
        gate = gate if mlp.cutoff is None else _above(g, gate, mlp.cutoff, mlp.width)
        hidden = g.op.Mul(activation(layer, mlp.activation, gate), up)
    else:
        hidden = activation(layer, mlp.activation, wide)
    if mlp.sub_norm:
        hidden = layer.normalized(hidden, f"{name}.sub_norm", mlp.sub_norm)
    if weights:
        parts = g.op.Concat(g.op.Shape(weights), g.axes(-1), axis=0)
        weighed = g.op.Mul(g.op.Reshape(hidden, parts), g.op.Unsqueeze(weights, g.axes(3)))
        hidden = g.op.Reshape(weighed, g.axes(0, 0, mlp.width))
    return layer.output(hidden, f"{name}.down")


def _above(g: GraphBuilder, x: Value, cutoff: float, width: int) -> Value:
    """``relu(x - (mean + cutoff · deviation))`` of the numbers of each token, x [b, t, width]."""
    apart = g.op.Sub(x, mean(g, x, width))
    deviation = g.op.Sqrt(mean_square(g, apart, width))
    return g.op.Relu(g.op.Sub(apart, g.op.Mul(deviation, g.constant(np.array(cutoff, np.float32)))))


def _xielu(layer: LayerGraph, x: Value) -> Value:
    """xIELU (Huang and Schlag 2024, arXiv:2411.13010): ``beta · x``, plus ``positive · x²`` above zero and ``negative ·
    (exp(x) - 1 - x)`` below; x [b, t, n].

    The model's own code takes at most -1e-6 into exp, which changes less than float32 rounds.
    """
    g = layer.g
    positive, negative, linear = map(layer.weight, XIELU)
    above = g.op.Relu(x)
    below = g.op.Min(x, g.constant(np.array(0, np.float32)))
    quadratic = g.op.Mul(g.op.Mul(above, above), positive)
    exponential = g.op.Mul(g.op.Sub(g.op.Elu(below, alpha=1.0), below), negative)
    return g.op.Add(g.op.Add(quadratic, exponential), g.op.Mul(x, linear))


def _relu2(layer: LayerGraph, x: Value) -> Value:
    positive = layer.g.op.Relu(x)
    return layer.g.op.Mul(positive, positive)


_ACTIVATIONS: Mapping[Activation, Callable[[LayerGraph, Value], Value]] = {
    "gelu": lambda layer, x: layer.g.op.Gelu(x),
    "gelu_tanh": lambda layer, x: layer.g.op.Gelu(x, approximate="tanh"),
    "relu": lambda layer, x: layer.g.op.Relu(x),
    "relu2": _relu2,
    "silu": lambda layer, x: layer.g.ms.QuickGelu(x, alpha=1.0),  # x · sigmoid(x), in one node
    "xielu": _xielu,
}
