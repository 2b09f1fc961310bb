"""Attention of a decoder graph over the KV cache, with everything that happens to queries and keys before it.

Shapes: b rows (batch), t new tokens per row, d hidden size, h heads.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgegen.bundle.manifest import KVLayer
from edgegen_export.architecture.components.attention import Attention, QKNorm
from edgegen_export.architecture.components.differential_attention import DifferentialAttention
from edgegen_export.architecture.components.mixed_attention import MixedAttention
from edgegen_export.architecture.components.normalized import NormalizedAttention
from edgegen_export.architecture.components.shared_block import SharedUse
from edgegen_export.architecture.config import Alibi, DecoderConfig
from edgegen_export.graph.builder import NONE, AttributeValue, GraphBuilder, Value, trimmed
from edgegen_export.graph.differential_attention import difference, of_pairs
from edgegen_export.graph.mamba2 import negative_softplus
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.reductions import total
from edgegen_export.graph.shared_block import with_updated_attention
from edgegen_export.graph.step_inputs import StepInputs
from edgegen_export.graph.stream import Stream, norm_of_groups, norm_operator, normalized

ROTARY_STEP = 16
"""GroupQueryAttention applies RoPE itself if head size and rotated size are multiples of this."""


def attention(
    g: GraphBuilder,
    params: Parameters,
    config: DecoderConfig,
    layer: int,
    x: Value,
    caches: Sequence[KVLayer],
    step: StepInputs,
) -> Stream:
    """Causal attention of [b, t, d] over the KV cache, to which the operator appends in place.

    A layer that reads another's cache appends the other's keys and values a second time, in the same place: the
    operator always appends, and the bits are the same. ``caches``: the layer's own, if it has one, and the other's.

    Returns the output projection without its bias, which the stream adds.
    """
    name, own, mixed = f"layers.{layer}", config.attentions[layer], config.layers[layer].extra(MixedAttention)
    module, inputs_of_layer = f"{name}.attn", tuple(f"{name}.{matrix}" for matrix in own.inputs)
    packed = linear(g, params.matrix(*inputs_of_layer), x, params.bias(*inputs_of_layer))
    packed = with_updated_attention(g, params, config.layers[layer].extra(SharedUse), layer, x, packed)
    gate = NONE
    if own.gate:
        widths = g.axes(sum(_widths(own)), own.gates)
        packed, gate = g.node("Split", [packed, widths], 2, attributes={"axis": 2})
    if own.clip is not None:
        limit = np.array(own.clip, np.float32)
        packed = g.op.Clip(packed, g.constant(-limit), g.constant(limit))
    fused_rotation = _rotates_inside(own)
    apart = own.qk_norm or own.value_norm or own.value_is_key or own.query_scale or layer in config.sources
    apart = apart or isinstance(own, DifferentialAttention) or config.layers[layer].source is not None
    if apart or (own.rope and not fused_rotation):
        query, key, value = _prepared(g, params, config, layer, packed, step)
    else:
        query, key, value = packed, NONE, NONE
    if layer in config.sources:
        step.kept[layer] = key, value
    if isinstance(own, DifferentialAttention):
        query = of_pairs(g, own, query)
    attended = cached_attention(g, params, own, layer, (query, key, value), caches[0], step, rotates=fused_rotation)
    if mixed and mixed.source is not None:
        whole, read = replace(own, window=None, source=mixed.source), (query, *step.kept[mixed.source])
        earlier = cached_attention(g, params, whole, layer, read, caches[1], step, rotates=fused_rotation)
        rotated = _rotated(g, own, query, own.heads, step) if fused_rotation else query
        attended = _mixed(g, params, mixed, layer, rotated, (earlier, attended))
    if isinstance(own, DifferentialAttention):
        attended = difference(g, params, own, layer, attended)
    if gate:
        attended = gated(g, own, attended, gate, own.head_dim)
    if own.sub_norm:
        attended = normalized(g, params, own.sub_norm, attended, f"{module}.sub_norm")
    projected = linear(g, params.matrix(f"{module}.o"), attended)
    return Stream(NONE, projected, params.bias(f"{module}.o"))


def cached_attention(
    g: GraphBuilder,
    params: Parameters,
    own: Attention,
    layer: int,
    packed: tuple[Value, Value, Value],
    cache: KVLayer,
    step: StepInputs,
    *,
    rotates: bool = False,
    bias: Value = NONE,
    sinks: Value = NONE,
) -> Value:
    """What queries read of the KV cache, [b, t, h · head_dim], to which the operator appends keys and values first.

    ``packed``: query, key and value, or all three in the first; ``rotates``: whether the operator applies RoPE;
    ``bias`` [b, h, t, keys]: added to the scores; ``sinks`` [h]: logits of heads that add nothing, if computed.
    """
    query, key, value = packed
    cos, sin = step.rotary[own.rope] if own.rope and rotates else (NONE, NONE)
    kv_shape = ["batch", cache.kv_heads, "capacity", cache.head_dim]
    past_key = g.input(cache.past_key, step.kv_dtype, kv_shape)
    past_value = g.input(cache.past_value, step.kv_dtype, kv_shape)
    lengths = step.lengths[cache.cache_class]
    positions = step.positions if cos else NONE
    inputs = [
        query,
        key,
        value,
        past_key,
        past_value,
        lengths.seqlens,
        lengths.total,
        cos,
        sin,
        positions,
        bias or step.unseen.get(cache.cache_class, step.alibi),
    ]
    inputs += [g.weight(params.vector(f"layers.{layer}.attn.sinks")) if own.sinks else sinks]
    rounding: dict[str, AttributeValue] = {}
    if step.kv_dtype == "int8":
        rounding = {"kv_cache_bit_width": 8, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
        keeper = layer if own.source is None else own.source
        of_keys, of_values = kv_scale_names(keeper)
        names = (of_keys, of_keys if cache.latent else of_values)
        inputs += [g.weight(params.vector(name)) for name in names]
    attended, present_key, present_value = g.node(
        "GroupQueryAttention",
        trimmed(inputs),
        3,
        domain="com.microsoft",
        attributes={
            "num_heads": own.heads,
            "kv_num_heads": cache.kv_heads,
            "scale": own.scale,
            **({"local_window_size": own.window} if own.window else {}),
            **({"softcap": own.softcap} if own.softcap else {}),
            **({"do_rotary": 1, "rotary_interleaved": int(own.rope.interleaved)} if own.rope and cos else {}),
            **rounding,
        },
    )
    g.output(cache.present_key, present_key, step.kv_dtype, kv_shape)
    g.output(cache.present_value, present_value, step.kv_dtype, kv_shape)
    return attended


def kv_scale_names(layer: int) -> tuple[str, str]:
    """Names of a layer's key and value scales for an int8 KV cache, float32 [1, kv_heads, 1, head_dim] each."""
    return f"layers.{layer}.attn.k_scale", f"layers.{layer}.attn.v_scale"


def _rotates_inside(own: Attention) -> bool:
    rope, normed_later = own.rope, own.qk_norm is not None and own.qk_norm.after_rotation
    fits = rope is not None and own.head_dim % ROTARY_STEP == 0 and rope.dim % ROTARY_STEP == 0
    return fits and own.size == own.head_dim and not normed_later


def _widths(own: Attention) -> list[int]:
    """The widths of queries, and of keys and values where they have projections of their own."""
    return [rows for name, (rows,) in own.projected.items() if name != "gate"]


def _prepared(
    g: GraphBuilder,
    params: Parameters,
    config: DecoderConfig,
    layer: int,
    packed: Value,
    step: StepInputs,
) -> tuple[Value, Value, Value]:
    """Query, key and value, each [b, t, heads · head_dim], with their norms and query scale, and with RoPE if the
    attention operator cannot apply it. Keys and values may be another layer's."""
    module, own = f"layers.{layer}.attn", config.attentions[layer]
    head_dim, heads = own.head_dim, {"q": own.heads, "k": own.kv_heads}

    def normed(name: str, x: Value, *, after_rotation: bool) -> Value:
        if own.qk_norm is None or own.qk_norm.after_rotation != after_rotation:
            return x
        return head_norm(g, params, own.qk_norm, x, f"{module}.{name}_norm", heads[name], head_dim)

    def prepared(name: str, x: Value) -> Value:
        x = normed(name, x, after_rotation=False)
        if not _rotates_inside(own):
            x = _rotated(g, own, x, {"q": own.heads, "k": own.kv_width // own.size}[name], step)
        return normed(name, x, after_rotation=True)

    def scaled(query: Value) -> Value:  # which a later rotation does not change
        if isinstance(own, NormalizedAttention):  # rotated before
            query = g.op.Mul(query, g.weight(params.vector(f"{module}.query_scale")))
        return g.op.Mul(query, step.query_scales[own.query_scale]) if own.query_scale else query

    if own.source is not None:
        return scaled(prepared("q", packed)), *step.kept[own.source]
    widths = _widths(own)
    query, key, *others = g.node("Split", [packed, g.axes(*widths)], len(widths), attributes={"axis": 2})
    value = others[0] if others else key
    if own.value_norm:
        value = norm_of_groups(g, replace(config.norm, kind="rms"), value, heads["k"], head_dim)
    return scaled(prepared("q", query)), prepared("k", key), value


def _rotated(g: GraphBuilder, own: Attention, x: Value, heads: int, step: StepInputs) -> Value:
    """x [b, t, heads · size] with RoPE, where there is any."""
    if own.rope is None:
        return x
    cos, sin = step.rotary[own.rope]
    partial = {"rotary_embedding_dim": own.rope.dim} if own.rope.dim != own.size else {}
    interleaved = int(own.rope.interleaved)
    return g.ms.RotaryEmbedding(x, step.positions, cos, sin, num_heads=heads, interleaved=interleaved, **partial)


def _mixed(
    g: GraphBuilder, params: Parameters, own: MixedAttention, layer: int, query: Value, read: tuple[Value, Value]
) -> Value:
    """What rotated queries [b, t, h · head_dim] have read of an earlier layer's keys and values, and of their own."""
    by_head = g.axes(0, 0, own.heads, own.head_dim)
    weight, bias = (g.weight(params.vector(f"layers.{layer}.mix.{name}")) for name in ("weight", "bias"))
    logit = total(g, g.op.Mul(g.op.Reshape(query, by_head), weight), own.head_dim)
    gate = g.op.Sigmoid(g.op.Add(logit, g.op.Unsqueeze(bias, g.axes(-1))))
    earlier, later = (g.op.Reshape(x, by_head) for x in read)
    mixed = g.op.Add(later, g.op.Mul(gate, g.op.Sub(earlier, later)))
    return g.op.Reshape(mixed, g.axes(0, 0, own.heads * own.head_dim))


def gated(g: GraphBuilder, own: Attention, attended: Value, gate: Value, size: int) -> Value:
    """attended [b, t, h · size] times the opening of the ``gate`` of each channel, or of each head, [b, t, h]."""
    opening = g.op.Neg(negative_softplus(g, gate)) if own.softplus else g.op.Sigmoid(gate)
    if own.gate == "by_channel":
        return g.op.Mul(attended, opening)
    heads = own.heads
    by_head = g.op.Reshape(attended, g.axes(0, 0, heads, size))
    return g.op.Reshape(g.op.Mul(by_head, g.op.Unsqueeze(opening, g.axes(-1))), g.axes(0, 0, heads * size))


def head_norm(
    g: GraphBuilder, params: Parameters, qk_norm: QKNorm, x: Value, module: str, heads: int, head_dim: int
) -> Value:
    """Normalize the heads of x [b, t, heads · head_dim]."""
    if qk_norm.over == "all":
        return normalized(g, params, qk_norm.norm, x, module)
    split = g.op.Reshape(x, g.axes(0, 0, heads, head_dim))
    if qk_norm.over == "head":
        result = normalized(g, params, qk_norm.norm, split, module)
    else:
        plain = norm_operator(g, qk_norm.norm, split, g.constant(np.ones(head_dim, np.float32)))
        result = g.op.Mul(plain, g.weight(params.vector(f"{module}.weight")))
        if bias := params.bias(module):
            result = g.op.Add(result, g.weight(bias))
    return g.op.Reshape(result, g.axes(0, 0, heads * head_dim))


def alibi_bias(g: GraphBuilder, alibi: Alibi, ids: Value, total: Value) -> Value:
    """The ALiBi bias of the scores, float32 [1, h, t, total] for ids [b, t]. It uses the key's position instead of its
    distance: the difference is constant within a row, and softmax ignores it."""
    keys = g.op.Cast(g.op.Range(g.constant(np.array(0, np.int32)), total, g.constant(np.array(1, np.int32))), to=1)
    slopes = np.array(alibi.slopes, np.float32).reshape(1, -1, 1, 1)
    bias = g.op.Mul(g.constant(slopes), keys)
    if alibi.bfloat16:
        bias = g.op.Cast(g.op.Cast(bias, to=16), to=1)
    bias = g.op.Mul(bias, g.constant(np.array(alibi.scale, np.float32)))
    tokens = g.op.Shape(ids, start=1, end=2)
    return g.op.Expand(bias, g.op.Concat(g.axes(1, 1), tokens, g.axes(1), axis=0))
