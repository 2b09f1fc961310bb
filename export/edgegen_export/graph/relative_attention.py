"""Attention with a number that a query adds to its scores for each distance; :class:`RelativeAttention` has the
formulas.

The attention operator takes these numbers as a bias of the scores. A logit of each query that adds nothing is taken off
its whole bias, so that it is 0, which the operator takes as the sink of every head.

Shapes: b rows (batch), t new tokens per row, d hidden size, h heads, n keys in the cache, e distances.
"""

from collections.abc import Mapping

import numpy as np

from edgegen.bundle.layer_state import FixedState
from edgegen_export.architecture.components.relative_attention import (
    KEY_CONV,
    PROFILES,
    QUERY_GAIN,
    RELATIVE_GAIN,
    VALUE_CONV,
    RelativeAttention,
)
from edgegen_export.graph.attention import cached_attention, gated, head_norm
from edgegen_export.graph.builder import NONE, GraphBuilder, Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.reductions import total
from edgegen_export.graph.short_conv import convolved, shifted, with_last_tokens
from edgegen_export.graph.stream import Stream, norm_of_groups

_LEAST_LENGTH = 1e-6
"""Least length, added to lengths before they divide."""


def relative_attention(layer: LayerGraph, attention: RelativeAttention, *inputs: Value) -> Stream:
    """Causal attention over the KV cache; ``inputs`` [b, t, d]: what all is projected of, or what
    queries, keys and values are.

    Returns the output projection without its bias, which the stream adds.
    """
    g, cache = layer.g, layer.caches[0]
    heads, kv_heads, head_dim, limits = attention.heads, attention.kv_heads, attention.head_dim, attention.limits
    parts = _projected(layer, attention, inputs)
    of_keys, of_values = layer.states(attention)
    key = _over_tokens(layer, attention, parts, KEY_CONV, of_keys)
    value = _over_tokens(layer, attention, parts, VALUE_CONV, of_values)
    query, relative = parts["q"], parts["relative"]
    if limits:
        query = _limited(g, query, heads, head_dim, limits.heads, layer.weight(QUERY_GAIN))
        key = _limited(g, key, kv_heads, head_dim, limits.heads)
        gain = layer.weight(RELATIVE_GAIN)
        relative = _limited(g, relative, heads, attention.rank, limits.relative, gain)
    if attention.qk_norm:
        query, key = (head_norm(layer, attention, name, x) for name, x in (("q", query), ("k", key)))
    if attention.value_norm:
        value = norm_of_groups(g, attention.value_norm, value, kv_heads, head_dim)
    if attention.query_scale:
        factor = layer.step.query_scales[attention.query_scale]
        query, relative = g.op.Mul(query, factor), g.op.Mul(relative, factor)
    apart = layer.step.distances[cache.cache_class, attention.extent]
    bias = _bias(layer, attention, relative, parts.get("sink", NONE), apart)
    read = cached_attention(layer, attention, (query, key, value), cache, bias=bias)
    read = gated(g, attention.gate, read, parts["gate"], heads, head_dim) if attention.gate else read
    return layer.output(read, "attn.o")


def _projected(layer: LayerGraph, attention: RelativeAttention, inputs: tuple[Value, ...]) -> dict[str, Value]:
    """Return the projections of the inputs, by name, [b, t, channels]."""
    g, parts = layer.g, dict[str, Value]()
    inputs = inputs * 3 if attention.apart and not inputs[1:] else inputs
    for x, modules in zip(inputs, attention.products[:-1], strict=True):
        names = [module.removeprefix("attn.") for module in modules]
        packed, widths = layer.linear(x, *modules), g.axes(*(attention.projected[name][0] for name in names))
        split = g.node("Split", [packed, widths], len(names), attributes={"axis": 2}) if names[1:] else (packed,)
        parts |= zip(names, split, strict=True)
    return parts


def _over_tokens(
    layer: LayerGraph, attention: RelativeAttention, parts: Mapping[str, Value], conv: str, state: FixedState
) -> Value:
    """Keys, or values, convolved over the last tokens."""
    name, module = conv[0], f"attn.{conv}"
    if attention.dynamic:
        return _dynamically_convolved(layer, attention, module, (parts[name], parts[f"{name}_taps"]), state)
    return convolved(layer, module, parts[name], state)


def _bias(layer: LayerGraph, attention: RelativeAttention, relative: Value, sink: Value, apart: Value) -> Value:
    """Return the bias of the scores, [b, h, t, n]; relative [b, t, h · rank], sink [b, t, h], apart [b, t, n, 1]."""
    g, heads, rank, count = layer.g, attention.heads, attention.rank, attention.extent + 1
    by_head = g.op.Reshape(relative, g.op.Concat(g.op.Shape(relative, end=1), g.axes(-1, rank), axis=0))
    of_heads = layer.in_floats(by_head, PROFILES)  # [b, t · h, e]
    shape = g.op.Concat(g.op.Shape(relative, end=2), g.axes(heads, count), axis=0)
    by_distance = g.op.Transpose(g.op.Reshape(of_heads, shape), perm=[0, 1, 3, 2])
    if sink:
        by_distance = g.op.Sub(by_distance, g.op.Unsqueeze(sink, g.axes(2)))
    of_keys = g.op.GatherND(by_distance, apart, batch_dims=2)  # [b, t, n, h]
    return g.op.Transpose(of_keys, perm=[0, 3, 1, 2])


def _limited(g: GraphBuilder, x: Value, heads: int, size: int, limit: float, gain: Value = NONE) -> Value:
    """x [b, t, heads · size], times the ``gain`` [heads, size]; each head not longer than ``limit``."""
    by_head = g.op.Reshape(x, g.axes(0, 0, heads, size))
    by_head = g.op.Mul(by_head, gain) if gain else by_head
    length = g.op.Sqrt(total(g, g.op.Mul(by_head, by_head), size))
    least, most = (g.constant(np.array(number, np.float32)) for number in (_LEAST_LENGTH, limit))
    factor = g.op.Clip(g.op.Div(most, g.op.Add(length, least)), NONE, g.constant(np.array(1, np.float32)))
    return g.op.Reshape(g.op.Mul(by_head, factor), g.axes(0, 0, heads * size))


def _dynamically_convolved(
    layer: LayerGraph, attention: RelativeAttention, module: str, taken: tuple[Value, Value], state: FixedState
) -> Value:
    """Each channel of the first of ``taken``, [b, t, heads · size], over its last tokens; the other, [b, t, heads ·
    width], is added to the taps of each head, in the order of distances."""
    (x, taps), g = taken, layer.g
    heads, size, width = attention.kv_heads, attention.head_dim, attention.conv
    seen, tokens = with_last_tokens(g, x, state), g.op.Shape(x, start=1, end=2)
    by_head = g.op.Reshape(taps, g.axes(0, 0, heads, width))
    made = g.parts(by_head, width, axis=3)
    kernel = g.op.Reshape(layer.weight(f"{module}.weight"), g.axes(width, heads, size))
    fixed = g.parts(kernel, width, axis=0)
    sums = NONE
    for distance in range(width - 1, -1, -1):
        earlier = g.op.Reshape(shifted(g, seen, tokens, width - 1 - distance), g.axes(0, 0, heads, size))
        product = g.op.Mul(earlier, g.op.Add(made[distance], fixed[distance]))
        sums = g.op.Add(sums, product) if sums else product
    return g.op.Reshape(sums, g.axes(0, 0, heads * size))
