"""The short convolution of a decoder graph, which some layers have instead of attention, over a fixed state.

It is written as shifted products, not as ONNX Runtime's ``CausalConvWithState``: a prompt of 128 tokens takes a third
of the time, a token 4 µs more, every version of ONNX Runtime has it, and its bits depend on nothing. edgegen's kernels
have it as one operator, of which this is the body.

Shapes: b rows (batch), t new tokens per row, d hidden size, w width of the convolution.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from edgegen.bundle.layer_state import FixedState
from edgegen.graph.norms_and_activations import SILU
from edgegen_export.architecture.components.short_conv import ShortConv
from edgegen_export.graph.activations import silu
from edgegen_export.graph.builder import NONE, Body, GraphBuilder, Value
from edgegen_export.graph.layer_graph import LayerGraph, ModelGraph
from edgegen_export.graph.stream import Stream


def short_conv(layer: LayerGraph, conv: ShortConv, x: Value) -> Stream:
    """``out(c · conv(b · v))`` with ``b, c, v`` projected from x [b, t, d], each channel convolved over its last w
    tokens. The state [b, w - 1, d] is ``b · v`` of the last tokens.

    Returns the output projection without its bias, which the stream adds.
    """
    g, (state,) = layer.g, layer.states(conv)
    packed = layer.linear(x, *conv.inputs)
    before, after, value = g.parts(packed, 3)
    mixed = convolved(layer, f"{conv.name}.kernel", g.op.Mul(before, value), state)
    return layer.output(g.op.Mul(after, mixed), f"{conv.name}.out")


def convolved(graph: ModelGraph, module: str, x: Value, state: FixedState, *, activated: bool = False) -> Value:
    """``Σ kernel[:, k] · x[:, t - w + 1 + k]`` of x [b, t, d], from the earliest token to the latest, plus a bias; SiLU
    of that, where it is ``activated``.

    The state [b, w - 1, d] is x of the last tokens.
    """
    g, shape, (last, channels) = graph.g, ["batch", *state.shape], state.shape
    kernel, bias = graph.weight(f"{module}.weight"), graph.bias(module)  # [d, 1, w], [d]

    past = g.input(state.past, "float32", shape)
    kind = 1 + SILU if activated else 0
    y, present = g.function(
        f"CausalConv_{last + 1}{'_bias' if bias else ''}{'_silu' if activated else ''}",
        [x, past, kernel, g.weight(bias) if bias else NONE],
        2,
        _body(last, activated=activated),
        {"channels": channels, "width": last + 1, "activation": kind},
    )
    g.output(state.present, present, "float32", shape)
    return y


@cache
def _body(last: int, *, activated: bool) -> Body:
    def body(f: GraphBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        x, past, kernel, bias = inputs
        total = _convolved(f, (seen := f.op.Concat(past, x, axis=1)), x, kernel, last + 1)
        total = f.op.Add(total, bias) if bias else total
        return silu(f, total) if activated else total, _last_of(f, seen, last)

    return body


def _convolved(g: GraphBuilder, seen: Value, x: Value, kernel: Value, width: int) -> Value:
    """The products of what is ``seen`` [b, w - 1 + t, d] with the taps of ``kernel`` [d, 1, w], added up."""
    tokens, total = g.op.Shape(x, start=1, end=2), NONE
    for k in range(width):
        tap = g.op.Reshape(g.op.Gather(kernel, g.constant(np.array(k, np.int64)), axis=2), g.axes(-1))
        product = g.op.Mul(shifted(g, seen, tokens, k), tap)
        total = g.op.Add(total, product) if total else product
    return total


def with_last_tokens(g: GraphBuilder, x: Value, state: FixedState) -> Value:
    """x [b, t, d] behind what the state kept of it, [b, w - 1 + t, d]; the state becomes the last tokens of both."""
    shape = ["batch", *state.shape]
    seen = g.op.Concat(g.input(state.past, "float32", shape), x, axis=1)
    g.output(state.present, _last_of(g, seen, state.shape[0]), "float32", shape)
    return seen


def _last_of(g: GraphBuilder, seen: Value, count: int) -> Value:
    return g.op.Slice(seen, g.axes(-count), g.axes(np.iinfo(np.int64).max), g.axes(1))


def shifted(g: GraphBuilder, seen: Value, tokens: Value, first: int) -> Value:
    """As many of what is ``seen`` [b, w - 1 + t, d] as there are new ``tokens`` [1], from ``first`` on."""
    return g.op.Slice(seen, g.axes(first), g.op.Add(tokens, g.axes(first)), g.axes(1))
