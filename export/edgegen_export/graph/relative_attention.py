"""Attention with a number that a query adds to its scores for each distance; :class:`RelativeAttention` has the
formulas.

The attention operator takes these numbers as a bias of the scores. A logit of each query that adds nothing is taken off
its whole bias, so that it is 0, which the operator takes as the sink of every head.

Shapes: b rows (batch), t new tokens per row, d hidden size, h heads, n keys in the cache, e distances.
"""

import numpy as np

from edgegen.bundle.layer_state import FixedState
from edgegen.bundle.manifest import KVLayer
from edgegen_export.architecture.components.relative_attention import (
    KEY_CONV,
    PROFILES,
    QUERY_GAIN,
    RELATIVE_GAIN,
    VALUE_CONV,
    RelativeAttention,
)
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.graph.attention import cached_attention, gated, head_norm
from edgegen_export.graph.builder import NONE, GraphBuilder, Value
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.parameters import FloatMatrix, Parameters
from edgegen_export.graph.reductions import total
from edgegen_export.graph.short_conv import convolved, shifted, with_last_tokens
from edgegen_export.graph.step_inputs import CacheLengths, StepInputs
from edgegen_export.graph.stream import Stream, norm_of_groups

_LEAST_LENGTH = 1e-6
"""What is added to lengths that are divided by."""


def relative_attention(
    g: GraphBuilder,
    params: Parameters,
    config: DecoderConfig,
    layer: int,
    inputs: tuple[Value, ...],
    cache: KVLayer,
    states: tuple[FixedState, ...],
    step: StepInputs,
) -> Stream:
    """Causal attention over the KV cache; ``inputs`` [b, t, d]: what all is projected of, or what
    queries, keys and values are.

    Returns the output projection without its bias, which the stream adds.
    """
    name, module, own = f"layers.{layer}", f"layers.{layer}.attn", config.layers[layer].attention
    assert isinstance(own, RelativeAttention), "its layer has it"
    inputs = inputs * 3 if own.apart and not inputs[1:] else inputs
    parts = dict[str, Value]()
    for x, modules in zip(inputs, own.products[:-1], strict=True):
        fused = tuple(f"{name}.{matrix}" for matrix in modules)
        packed = linear(g, params.matrix(*fused), x, params.bias(*fused))
        widths = g.axes(*(own.projected[matrix.removeprefix("attn.")][0] for matrix in modules))
        split = g.node("Split", [packed, widths], len(modules), attributes={"axis": 2}) if modules[1:] else (packed,)
        parts |= {matrix.removeprefix("attn."): part for matrix, part in zip(modules, split, strict=True)}

    def over_tokens(part: str, conv: str, state: FixedState) -> Value:
        if own.dynamic:
            taken = parts[part], parts[f"{part}_taps"]
            return _dynamically_convolved(g, params, own, f"{module}.{conv}", taken, state)
        return convolved(g, params, f"{module}.{conv}", parts[part], state)

    of_keys, of_values = states
    key, value = over_tokens("k", KEY_CONV, of_keys), over_tokens("v", VALUE_CONV, of_values)
    query, relative = parts["q"], parts["relative"]
    if own.limits:
        query = _limited(
            g, query, own.heads, own.head_dim, own.limits.heads, g.weight(params.vector(f"{name}.{QUERY_GAIN}"))
        )
        key = _limited(g, key, own.kv_heads, own.head_dim, own.limits.heads)
        gain = g.weight(params.vector(f"{name}.{RELATIVE_GAIN}"))
        relative = _limited(g, relative, own.heads, own.rank, own.limits.relative, gain)
    if own.qk_norm:
        query = head_norm(g, params, own.qk_norm, query, f"{module}.q_norm", own.heads, own.head_dim)
        key = head_norm(g, params, own.qk_norm, key, f"{module}.k_norm", own.kv_heads, own.head_dim)
    if own.value_norm:
        value = norm_of_groups(g, config.norm, value, own.kv_heads, own.head_dim)
    if own.query_scale:
        factor = step.query_scales[own.query_scale]
        query, relative = g.op.Mul(query, factor), g.op.Mul(relative, factor)
    bias = _bias(g, params, own, name, relative, parts.get("sink", NONE), step.distances[cache.cache_class, own.extent])
    sinks = g.constant(np.zeros(own.heads, np.float32)) if own.query_sinks else NONE
    attended = cached_attention(g, params, own, layer, (query, key, value), cache, step, bias=bias, sinks=sinks)
    if own.gate:
        attended = gated(g, own, attended, parts["gate"], own.head_dim)
    return Stream(NONE, linear(g, params.matrix(f"{module}.o"), attended), params.bias(f"{module}.o"))


def distances(g: GraphBuilder, ids: Value, lengths: CacheLengths, extent: int) -> Value:
    """From each of the new tokens, of which ids [b, t] has the shape, to each key in the cache, int64 [b, t, n, 1];
    ``extent`` stands for all that are farther, and 0 for keys behind the token, which it does not see."""
    tokens = g.op.Shape(ids, start=1, end=2)
    zero, one = (g.constant(np.array(number, np.int64)) for number in (0, 1))
    new = g.op.Range(zero, g.op.Squeeze(tokens, g.axes(0)), one)
    ends = g.op.Add(g.op.Cast(lengths.seqlens, to=7), one)
    places = g.op.Add(g.op.Unsqueeze(g.op.Sub(ends, tokens), g.axes(1)), new)
    keys = g.op.Range(zero, g.op.Cast(lengths.total, to=7), one)
    apart = g.op.Sub(g.op.Unsqueeze(places, g.axes(2)), keys)
    clipped = g.op.Clip(apart, zero, g.constant(np.array(extent, np.int64)))
    return g.op.Unsqueeze(clipped, g.axes(3))


def _bias(
    g: GraphBuilder,
    params: Parameters,
    own: RelativeAttention,
    layer: str,
    relative: Value,
    sink: Value,
    apart: Value,
) -> Value:
    """What is added to the scores, [b, h, t, n]; relative [b, t, h · rank], sink [b, t, h], apart [b, t, n, 1]."""
    profiles = FloatMatrix(params.vector(f"{layer}.{PROFILES}"), own.extent + 1, own.rank)
    by_head = g.op.Reshape(relative, g.op.Concat(g.op.Shape(relative, end=1), g.axes(-1, own.rank), axis=0))
    of_heads = linear(g, profiles, by_head)  # [b, t · h, e]
    shape = g.op.Concat(g.op.Shape(relative, end=2), g.axes(own.heads, own.extent + 1), axis=0)
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
    g: GraphBuilder,
    params: Parameters,
    own: RelativeAttention,
    module: str,
    taken: tuple[Value, Value],
    state: FixedState,
) -> Value:
    """Each channel of the first of ``taken``, [b, t, heads · size], over its last tokens; the other, [b, t, heads ·
    width], is added to the taps of each head, in the order of distances."""
    x, taps = taken
    heads, size, width = own.kv_heads, own.head_dim, own.conv
    seen, tokens = with_last_tokens(g, x, state), g.op.Shape(x, start=1, end=2)
    by_head = g.op.Reshape(taps, g.axes(0, 0, heads, width))
    made = g.node("Split", [by_head], width, attributes={"axis": 3, "num_outputs": width})
    kernel = g.op.Reshape(g.weight(params.vector(f"{module}.weight")), g.axes(width, heads, size))
    fixed = g.node("Split", [kernel], width, attributes={"axis": 0, "num_outputs": width})
    sums = NONE
    for distance in range(width - 1, -1, -1):
        earlier = g.op.Reshape(shifted(g, seen, tokens, width - 1 - distance), g.axes(0, 0, heads, size))
        product = g.op.Mul(earlier, g.op.Add(made[distance], fixed[distance]))
        sums = g.op.Add(sums, product) if sums else product
    return g.op.Reshape(sums, g.axes(0, 0, heads * size))
