"""RWKV-7's time mixing of a decoder graph, instead of attention, over two fixed states; and its channel mixing, an MLP.

The recurrence is a stock ``Scan`` over the tokens, whose bits are the same however a text is cut; ``LinearAttention``
cannot say it, since what a token removes, what decays and what it writes have a vector each.

Shapes: b rows (batch), t new tokens per row, h heads, c channels of a head, i = h · c channels of all.
"""

from dataclasses import replace

import numpy as np

from edgegen.bundle.layer_state import FixedState
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.components.time_mix import ChannelMix, TimeMix
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.mlp import feed_forward
from edgegen_export.graph.reductions import total
from edgegen_export.graph.short_conv import with_last_tokens
from edgegen_export.graph.stream import Stream, norm_of_groups, norm_operator

_TINY = 1e-24
"""Added to the square of a length that is divided by."""


def time_mix(layer: LayerGraph, mixer: TimeMix, x: Value) -> Stream:
    """``out((norm(y) + bonus) · gate)``, y what :class:`TimeMix` says of projections of x [b, t, d].

    Its states are x of the last token [b, 1, d], and the recurrence's [b, h, c, c]. v [b, t, i] of the first layer is a
    stream of its mixer. Returns the output projection without its bias, which the stream adds.
    """
    g, module = layer.g, mixer.name
    shift, state = layer.states(mixer)
    changed = change(g, x, shift)
    blends = {part: blend(layer, x, changed, f"{module}.shift_{part}") for part in mixer.parts}

    def projected(name: str, x: Value) -> Value:
        return layer.linear(x, f"{module}.{name}")

    def weighed(x: Value, name: str) -> Value:
        return g.op.Mul(x, layer.weight(f"{module}.{name}"))

    r, k = (projected(part, blends[part]) for part in "rk")
    w = projected("w", g.op.Tanh(projected("w_in", blends["w"])))
    rate = g.op.Sigmoid(projected("rate", projected("rate_in", blends["rate"])))
    gate = projected("gate", g.op.Sigmoid(projected("gate_in", blends["gate"])))
    v = layer.linear(blends["v"], *mixer.of_value)
    if mixer.first:
        first_value = v
    else:
        (first_value,) = layer.others
        v, low = g.split(v, mixer.channels, mixer.mix_rank)
        v = g.op.Add(v, g.op.Mul(g.op.Sub(first_value, v), g.op.Sigmoid(projected("mix", low))))
    decay = g.op.Exp(g.op.Mul(g.op.Sigmoid(w), g.constant(np.array(-mixer.largest_decay, np.float32))))
    unit = _of_length_one(g, weighed(k, "key_scale"), mixer.heads, mixer.head_dim)
    less = g.op.Sub(g.op.Mul(k, rate), k)
    k = g.op.Add(k, weighed(less, "key_rate"))

    with g.scope("scan"):
        shape = ["batch", *state.shape]
        past = g.input(state.past, "float32", shape)
        removed = g.op.Neg(g.op.Mul(unit, rate))
        y, present = _scanned(g, f"{layer.name}.{module}.scan", mixer, past, decay, (removed, k), unit, v, r)
        g.output(state.present, present, "float32", shape)
    even = norm_of_groups(g, Norm("layer", mixer.eps), y, mixer.heads, mixer.head_dim)
    bias = layer.bias(f"{module}.norm")
    assert bias, "a norm by head has a bias"
    y = g.op.Add(weighed(even, "norm.weight"), g.weight(bias))
    by_head = g.axes(0, 0, mixer.heads, mixer.head_dim)
    bonus = total(g, g.op.Reshape(weighed(g.op.Mul(r, k), "bonus"), by_head), mixer.head_dim)
    bonus = g.op.Reshape(g.op.Mul(bonus, g.op.Reshape(v, by_head)), g.axes(0, 0, mixer.channels))
    return replace(layer.output(g.op.Mul(g.op.Add(y, bonus), gate), f"{module}.out"), others=(first_value,))


def _scanned(
    g: GraphBuilder,
    name: str,
    mixer: TimeMix,
    past: Value,
    decay: Value,
    columns: tuple[Value, Value],
    unit: Value,
    v: Value,
    r: Value,
) -> tuple[Value, Value]:
    """``S = decay · S + columns · (unit S; v)`` and ``y = r S`` for each token: (y [b, t, i], the last S).

    ``past``: the first S [b, h, c, c]; the others [b, t, i].
    """
    column, row = (g.axes(0, 0, mixer.heads, *sizes) for sizes in ((mixer.head_dim, 1), (1, mixer.head_dim)))
    one = GraphBuilder(name)
    with one.scope(name):
        wide, tall, two, flat = (["batch", mixer.heads, *sizes] for sizes in (["c", "c"], ["c", 1], ["c", 2], [1, "c"]))
        state = one.input(f"{name}.state", "float32", wide)
        kept, both = one.input(f"{name}.decay", "float32", tall), one.input(f"{name}.columns", "float32", two)
        taking, value, reading = (one.input(f"{name}.{part}", "float32", flat) for part in ("unit", "v", "r"))
        rows = one.op.Concat(one.op.MatMul(taking, state), value, axis=2)
        after = one.op.Add(one.op.Mul(state, kept), one.op.MatMul(both, rows))
        one.output(f"{name}.after", after, "float32", wide)
        one.output(f"{name}.y", one.op.MatMul(reading, Value(f"{name}.after")), "float32", flat)
    tall_ones = [g.op.Reshape(decay, column), g.op.Concat(*(g.op.Reshape(x, column) for x in columns), axis=4)]
    present, y = g.node(
        "Scan",
        [past, *tall_ones, *(g.op.Reshape(x, row) for x in (unit, v, r))],
        2,
        attributes={
            "body": one.graph(f"{name}.after", f"{name}.y"),
            "num_scan_inputs": 5,
            "scan_input_axes": [1] * 5,
            "scan_output_axes": [1],
        },
    )
    return g.op.Reshape(y, g.axes(0, 0, mixer.channels)), present


def _of_length_one(g: GraphBuilder, x: Value, heads: int, size: int) -> Value:
    """Each of the ``heads`` of x [b, t, heads · size] over its length, to whose square ``_TINY`` is added: an RMS norm
    whose weight is ``size ** -0.5``."""
    weight = g.constant(np.full(size, size**-0.5, np.float32))
    even = norm_operator(g, Norm("rms", _TINY / size), g.op.Reshape(x, g.axes(0, 0, heads, size)), weight)
    return g.op.Reshape(even, g.axes(0, 0, heads * size))


def change(g: GraphBuilder, x: Value, state: FixedState) -> Value:
    """``before - x`` of x [b, t, d] and the token before each; the state [b, 1, d] is x of the last token."""
    seen = with_last_tokens(g, x, state)
    return g.op.Sub(g.op.Slice(seen, g.axes(0), g.axes(-1), g.axes(1)), x)


def blend(layer: LayerGraph, x: Value, changed: Value, shift: str) -> Value:
    """``x + changed · shift``, by channel."""
    return layer.g.op.Add(x, layer.g.op.Mul(changed, layer.weight(shift)))


def channel_mix(layer: LayerGraph, mlp: ChannelMix, x: Value, _residual: Value) -> Stream:
    """The MLP of a blend of x [b, t, d] and the token before; the state [b, 1, d] is x of the last token."""
    (state,) = layer.states(mlp)
    return feed_forward(layer, mlp, blend(layer, x, change(layer.g, x, state), "mlp.shift"))
