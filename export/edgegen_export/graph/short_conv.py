"""The short convolution of a decoder graph, which some layers have instead of attention, over a fixed state.

It is written as shifted products, not as ONNX Runtime's ``CausalConvWithState``: a prompt of 128 tokens takes a third
of the time, a token 4 µs more, every version of ONNX Runtime has it, and its bits depend on nothing.

Shapes: b rows (batch), t new tokens per row, d hidden size, w width of the convolution.
"""

import numpy as np

from edgegen.bundle.layer_state import FixedState
from edgegen_export.architecture.components.short_conv import ShortConv
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.stream import Stream


def short_conv(layer: LayerGraph, conv: ShortConv, x: Value) -> Stream:
    """``out(c · conv(b · v))`` with ``b, c, v`` projected from x [b, t, d], each channel convolved over its last w
    tokens. The state [b, w - 1, d] is ``b · v`` of the last tokens.

    Returns the output projection without its bias, which the stream adds.
    """
    g, (state,) = layer.g, layer.states(conv)
    packed = layer.linear(x, *conv.inputs)
    before, after, value = g.node("Split", [packed], 3, attributes={"axis": 2, "num_outputs": 3})
    mixed = convolved(g, layer.params, f"{layer.name}.{conv.name}.kernel", g.op.Mul(before, value), state)
    return layer.output(g.op.Mul(after, mixed), f"{conv.name}.out")


def convolved(g: GraphBuilder, params: Parameters, module: str, x: Value, state: FixedState) -> Value:
    """``Σ kernel[:, k] · x[:, t - w + 1 + k]`` of x [b, t, d], from the earliest token to the latest, plus a bias.

    The state [b, w - 1, d] is x of the last tokens.
    """
    seen, width = with_last_tokens(g, x, state), state.shape[0] + 1
    tokens = g.op.Shape(x, start=1, end=2)
    kernel = g.weight(params.vector(f"{module}.weight"))  # [d, 1, w]
    total = None
    for k in range(width):
        earlier = shifted(g, seen, tokens, k)
        tap = g.op.Reshape(g.op.Gather(kernel, g.constant(np.array(k, np.int64)), axis=2), g.axes(-1))
        product = g.op.Mul(earlier, tap)
        total = g.op.Add(total, product) if total else product
    assert total, "a convolution has a width"
    bias = params.bias(module)
    return g.op.Add(total, g.weight(bias)) if bias else total


def with_last_tokens(g: GraphBuilder, x: Value, state: FixedState) -> Value:
    """x [b, t, d] behind what the state kept of it, [b, w - 1 + t, d]; the state becomes the last tokens of both."""
    shape = ["batch", *state.shape]
    seen = g.op.Concat(g.input(state.past, "float32", shape), x, axis=1)
    present = g.op.Slice(seen, g.axes(-state.shape[0]), g.axes(np.iinfo(np.int64).max), g.axes(1))
    g.output(state.present, present, "float32", shape)
    return seen


def shifted(g: GraphBuilder, seen: Value, tokens: Value, first: int) -> Value:
    """As many of what is ``seen`` [b, w - 1 + t, d] as there are new ``tokens`` [1], from ``first`` on."""
    return g.op.Slice(seen, g.axes(first), g.op.Add(tokens, g.axes(first)), g.axes(1))
