"""Attention of a decoder graph over the KV cache, with all that happens to queries, keys and what is read of them.

Shapes: b rows (batch), t new tokens per row, d hidden size, h heads.
"""

from collections.abc import Callable

import numpy as np

from edgegen.bundle.kv_format import KV_FORMATS
from edgegen.bundle.manifest import KVLayer
from edgegen_export.architecture.components.attention import Attention, Gate
from edgegen_export.architecture.rope import Rope
from edgegen_export.graph.activations import negative_softplus
from edgegen_export.graph.builder import NONE, GraphBuilder, Value, trimmed
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.stream import Stream, norm_of_groups, norm_operator

ROTARY_STEP = 16
"""GroupQueryAttention applies RoPE itself if head size and rotated size are multiples of this."""

Reading = Callable[[Value, Value, Value], Value]
"""Result of attention, [b, t, h · head_dim], of query, key and value, or of all three packed in the first."""


def softmax_attention(layer: LayerGraph, attention: Attention, x: Value, read: Reading | None = None) -> Stream:
    """Causal attention of [b, t, d] over the KV cache, to which the operator appends in place; ``read``: as in
    :func:`attended`.

    A layer that reads another's cache appends the other's keys and values a second time, in the same place: the
    operator always appends, and the bits are the same.

    Returns the output projection without its bias, which the stream adds.
    """
    return attended(layer, attention, layer.linear(x, *attention.inputs), read)


def attended(layer: LayerGraph, attention: Attention, packed: Value, read: Reading | None = None) -> Stream:
    """The output of attention; ``packed`` [b, t, channels]: what is projected of its input; ``read``: how queries read
    the KV cache, where that is not by :func:`cached_attention` alone."""
    g, opening = layer.g, NONE
    for (channels,) in attention.gates.values():
        packed, opening = g.split(packed, sum(_widths(attention)), channels)
    if attention.clip is not None:
        limit = np.array(attention.clip, np.float32)
        packed = g.op.Clip(packed, g.constant(-limit), g.constant(limit))
    parts, rotates = _prepared(layer, attention, packed), rotates_inside(attention)
    result = read(*parts) if read else cached_attention(layer, attention, parts, layer.caches[0], rotates=rotates)
    if attention.gate:
        result = gated(g, attention.gate, result, opening, attention.heads, attention.head_dim)
    if attention.sub_norm:
        result = layer.normalized(result, "attn.sub_norm", attention.sub_norm)
    return layer.output(result, "attn.o")


def cached_attention(
    layer: LayerGraph,
    attention: Attention,
    packed: tuple[Value, Value, Value],
    cache: KVLayer,
    *,
    rotates: bool = False,
    bias: Value = NONE,
) -> Value:
    """Return the result of attention to the KV cache, [b, t, h · head_dim]; keys and values are appended to it first.

    ``packed``: query, key and value, or all three in the first; ``rotates``: whether the operator applies RoPE;
    ``bias`` [b, h, t, keys]: added to the scores, less the logits of queries that add nothing.
    """
    g, step = layer.g, layer.step
    cos, sin = step.rotary[attention.rope] if attention.rope and rotates else (NONE, NONE)
    kv_shape = ["batch", cache.kv_heads, "capacity", cache.head_dim]
    past = [g.input(name, step.kv_dtype, kv_shape) for name in (cache.past_key, cache.past_value)]
    lengths, positions = step.lengths[cache.cache_class], step.positions if cos else NONE
    inputs = [*packed, *past, lengths.seqlens, lengths.total, cos, sin, positions]
    inputs += [bias or step.unseen.get(cache.cache_class, step.alibi.get(attention.alibi, NONE))]
    computed = g.constant(np.zeros(attention.heads, np.float32)) if attention.sinks == "query" else NONE
    inputs += [layer.weight("attn.sinks") if attention.sinks == "head" else computed]
    if rounding := KV_FORMATS[step.kv_dtype].attributes:
        of_keys, of_values = kv_scale_names(layer.index if attention.source is None else attention.source)
        names = (of_keys, of_keys if cache.latent else of_values)
        inputs += [g.weight(layer.params.vector(name)) for name in names]
    result, present_key, present_value = g.node(
        "GroupQueryAttention",
        trimmed(inputs),
        3,
        domain="com.microsoft",
        attributes={
            "num_heads": attention.heads,
            "kv_num_heads": cache.kv_heads,
            "scale": attention.scale,
            **({"local_window_size": attention.window} if attention.window else {}),
            **({"softcap": attention.softcap} if attention.softcap else {}),
            **(
                {"do_rotary": 1, "rotary_interleaved": int(attention.rope.interleaved)}
                if attention.rope and cos
                else {}
            ),
            **rounding,
        },
    )
    g.output(cache.present_key, present_key, step.kv_dtype, kv_shape)
    g.output(cache.present_value, present_value, step.kv_dtype, kv_shape)
    return result


def kv_scale_names(layer: int) -> tuple[str, str]:
    """Names of a layer's key and value scales for an int8 KV cache, float32 [1, kv_heads, 1, head_dim] each."""
    return f"layers.{layer}.attn.k_scale", f"layers.{layer}.attn.v_scale"


def rotates_inside(attention: Attention) -> bool:
    """Whether the attention operator applies RoPE."""
    rope, normed_later = attention.rope, attention.qk_norm is not None and attention.qk_norm.after_rotation
    fits = rope is not None and attention.head_dim % ROTARY_STEP == 0 and rope.dim % ROTARY_STEP == 0
    return fits and attention.size == attention.head_dim and not normed_later


def _widths(attention: Attention) -> list[int]:
    """The widths of queries, and of keys and values where they have projections of their own."""
    return [rows for name, (rows,) in attention.projected.items() if name != "gate"]


def _prepared(layer: LayerGraph, attention: Attention, packed: Value) -> tuple[Value, Value, Value]:
    """Query, key and value, each [b, t, heads · head_dim], with their norms and query scale, and with RoPE if the
    attention operator cannot apply it; ``packed`` in the first, if it does all of that. Keys and values may be another
    layer's."""
    is_source = layer.index in layer.config.sources
    rotated_before = attention.rope is not None and not rotates_inside(attention)
    if not (attention.takes_apart or is_source or layer.parts.source is not None or rotated_before):
        return packed, NONE, NONE
    if attention.source is not None:
        return _scaled(layer, attention, _turned(layer, attention, "q", packed)), *layer.step.kept[attention.source]
    g, widths = layer.g, _widths(attention)
    query, key, *others = g.split(packed, *widths)
    value = others[0] if others else key
    if attention.value_norm:
        value = norm_of_groups(g, attention.value_norm, value, attention.kv_heads, attention.head_dim)
    query = _scaled(layer, attention, _turned(layer, attention, "q", query))
    key = _turned(layer, attention, "k", key)
    if is_source:
        layer.step.kept[layer.index] = key, value
    return query, key, value


def _turned(layer: LayerGraph, attention: Attention, name: str, x: Value) -> Value:
    """Queries, or keys, normalized, and rotated if the attention operator does not do that."""
    qk_norm = attention.qk_norm
    if qk_norm and not qk_norm.after_rotation:
        x = head_norm(layer, attention, name, x)
    if not rotates_inside(attention):
        heads = {"q": attention.heads, "k": attention.kv_width // attention.size}[name]
        x = rotated(layer, attention.rope, x, heads, attention.size)
    return head_norm(layer, attention, name, x) if qk_norm and qk_norm.after_rotation else x


def _scaled(layer: LayerGraph, attention: Attention, query: Value) -> Value:
    """Queries times trained numbers, where they are rotated, and times their scale by position, which a later rotation
    does not change."""
    if attention.query_factors:
        query = layer.g.op.Mul(query, layer.weight(attention.query_factors))
    scale = attention.query_scale
    return layer.g.op.Mul(query, layer.step.query_scales[scale]) if scale else query


def rotated(layer: LayerGraph, rope: Rope | None, x: Value, heads: int, size: int) -> Value:
    """x [b, t, heads · size] with RoPE, where there is any."""
    if rope is None:
        return x
    cos, sin = layer.step.rotary[rope]
    partial = {"rotary_embedding_dim": rope.dim} if rope.dim != size else {}
    interleaved, positions = int(rope.interleaved), layer.step.positions
    return layer.g.ms.RotaryEmbedding(x, positions, cos, sin, num_heads=heads, interleaved=interleaved, **partial)


def gated(g: GraphBuilder, gate: Gate, x: Value, projected: Value, heads: int, size: int) -> Value:
    """x [b, t, h · size] times the opening of each channel, or of each head; ``projected`` [b, t, h · size] or [b, t,
    h]: the gate before its activation."""
    opening = g.op.Neg(negative_softplus(g, projected)) if gate.softplus else g.op.Sigmoid(projected)
    if gate.by == "channel":
        return g.op.Mul(x, opening)
    by_head = g.op.Reshape(x, g.axes(0, 0, heads, size))
    return g.op.Reshape(g.op.Mul(by_head, g.op.Unsqueeze(opening, g.axes(-1))), g.axes(0, 0, heads * size))


def head_norm(layer: LayerGraph, attention: Attention, name: str, x: Value) -> Value:
    """x [b, t, heads · head_dim], queries (``q``) or keys (``k``), with their norm."""
    g, qk_norm, head_dim, module = layer.g, attention.qk_norm, attention.head_dim, f"attn.{name}_norm"
    assert qk_norm, "queries and keys have a norm"
    if qk_norm.over == "all":
        return layer.normalized(x, module, qk_norm.norm)
    heads = {"q": attention.heads, "k": attention.kv_heads}[name]
    split = g.op.Reshape(x, g.axes(0, 0, heads, head_dim))
    if qk_norm.over == "head":
        result = layer.normalized(split, module, qk_norm.norm)
    else:
        plain = norm_operator(g, qk_norm.norm, split, g.constant(np.ones(head_dim, np.float32)))
        result = g.op.Mul(plain, layer.weight(f"{module}.weight"))
        if bias := layer.bias(module):
            result = g.op.Add(result, g.weight(bias))
    return g.op.Reshape(result, g.axes(0, 0, heads * head_dim))
