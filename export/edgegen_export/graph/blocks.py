"""The building blocks of a decoder graph: embedding, norm, linear, attention, MLP, experts, layer, head.

Shapes: b rows (batch), t new tokens per row, d hidden size, h heads, v vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgegen.bundle.manifest import KVDtype, KVLayer
from edgegen_export.architecture.config import (
    Activation,
    Alibi,
    DecoderConfig,
    Experts,
    Layer,
    LearnedPositions,
    Norm,
    QKNorm,
)
from edgegen_export.architecture.rope import Rope
from edgegen_export.graph.builder import MICROSOFT, NONE, AttributeValue, GraphBuilder, Tensor, Value
from edgegen_export.graph.parameters import BlockMatrix, FloatMatrix, Matrix, Parameters
from edgegen_export.quantize.recipe import EIGHT_BITS

ROTARY_STEP = 16
"""GroupQueryAttention applies RoPE itself if head size and rotated size are multiples of this."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The residual stream [b, t, d] between blocks: ``residual + delta + bias``, not yet added.

    The next norm's fused operator adds them, normalizes the sum and returns both in one pass.
    """

    residual: Value
    delta: Value = NONE
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class CacheLengths:
    """The length inputs of one cache class.

    ``seqlens``: int32 [b], each row's valid length after this step, less one; ``total``: int32 scalar, the longest
    valid length after this step.
    """

    seqlens: Value
    total: Value


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The inputs that all layers of a graph share.

    ``positions``: int64 [b, t]; ``lengths`` by cache class; ``rotary``: cosines and sines float32 [positions, dim / 2]
    by rope; ``alibi``: float32 [1, h, t, total], added to the scores; ``kv_dtype``: the dtype of the KV cache.
    """

    positions: Value
    lengths: Mapping[str, CacheLengths]
    rotary: Mapping[Rope, tuple[Value, Value]]
    alibi: Value = NONE
    kv_dtype: KVDtype = "float32"


def embedding(g: GraphBuilder, params: Parameters, config: DecoderConfig, ids: Value, positions: Value) -> Stream:
    """Token embedding, projected and normalized where the model does so, plus learned positions; both int64 [b, t]."""
    x = rows(g, params.matrix("embed"), ids)
    if config.embedding_size not in (None, config.hidden_size):
        x = linear(g, params.matrix("embed_in"), x)
    if config.embedding_norm:
        x = normalized(g, params, config.norm, x, "embed_norm")
    if isinstance(config.positions, LearnedPositions):
        return Stream(x, rows(g, params.matrix("positions"), positions))
    return Stream(x)


def rows(g: GraphBuilder, table: Matrix, ids: Value) -> Value:
    """The rows ``ids`` int64 [b, t] of ``table`` as float32 [b, t, columns]."""
    match table:
        case FloatMatrix(weight):
            return g.op.Gather(g.weight(weight), ids, axis=0)
        case BlockMatrix():
            gathered = g.ms.GatherBlockQuantized(
                g.weight(table.table),
                ids,
                g.weight(table.scales),
                *([g.weight(table.zeros)] if table.zeros else []),
                bits=table.bits,
                block_size=table.block_size,
                gather_axis=0,
                quantize_axis=1,
            )
            if table.table.shape[1] * 8 == table.columns * table.bits:
                return gathered
            return g.op.Slice(gathered, g.axes(0), g.axes(table.columns), g.axes(2))


def added(g: GraphBuilder, stream: Stream) -> Value:
    """The stream as one value [b, t, d]."""
    total = g.op.Add(stream.residual, stream.delta) if stream.delta else stream.residual
    return g.op.Add(total, g.weight(stream.bias)) if stream.bias else total


def norm(
    g: GraphBuilder, params: Parameters, config: DecoderConfig, stream: Stream, module: str
) -> tuple[Value, Value]:
    """Add up the stream and normalize it: (normalized, sum), both [b, t, d]."""
    if not stream.delta:
        total = added(g, stream)
        return normalized(g, params, config.norm, total, module), total
    weight, bias = params.vector(f"{module}.weight"), params.bias(module)
    skipped = g.weight(stream.bias) if stream.bias else NONE
    inputs = [stream.residual, stream.delta, g.weight(weight)]
    if config.norm.kind == "layer":
        inputs += [g.weight(bias) if bias else NONE]
    result, _, _, total = g.node(
        {"layer": "SkipLayerNormalization", "rms": "SkipSimplifiedLayerNormalization"}[config.norm.kind],
        [*inputs, skipped],
        4,
        domain="com.microsoft",
        attributes={"epsilon": config.norm.eps},
    )
    return result, total


def normalized(g: GraphBuilder, params: Parameters, norm: Norm, x: Value, module: str) -> Value:
    """``x`` normalized over its last axis."""
    bias = params.bias(module)
    weight = g.weight(params.vector(f"{module}.weight"))
    return _norm_operator(g, norm, x, weight, *([g.weight(bias)] if bias else []))


def _norm_operator(g: GraphBuilder, norm: Norm, x: Value, weight: Value, *bias: Value) -> Value:
    operator = {"layer": g.op.LayerNormalization, "rms": g.op.SimplifiedLayerNormalization}[norm.kind]
    return operator(x, weight, *bias, axis=-1, epsilon=norm.eps)


def linear(g: GraphBuilder, matrix: Matrix, x: Value, bias: Tensor | None = None) -> Value:
    """``x @ matrix.T + bias``: [b, t, columns] → [b, t, rows]."""
    added = g.weight(bias) if bias else NONE
    match matrix:
        case BlockMatrix():
            return g.ms.MatMulNBits(
                x,
                g.weight(matrix.codes),
                g.weight(matrix.scales),
                *_trimmed([g.weight(matrix.zeros) if matrix.zeros else NONE, NONE, added]),
                K=matrix.columns,
                N=matrix.rows,
                bits=matrix.bits,
                block_size=matrix.block_size,
                accuracy_level=matrix.accuracy_level,
            )
        case FloatMatrix(weight):
            y = g.ms.FusedMatMul(x, g.weight(weight), transB=1)
    return g.op.Add(y, added) if bias else y


def activation(g: GraphBuilder, kind: Activation, x: Value) -> Value:
    match kind:
        case "gelu_tanh":
            return g.op.Gelu(x, approximate="tanh")
        case "gelu":
            return g.op.Gelu(x)
        case "relu":
            return g.op.Relu(x)
        case "relu2":
            positive = g.op.Relu(x)
            return g.op.Mul(positive, positive)
        case "silu":
            return g.ms.QuickGelu(x, alpha=1.0)  # x · sigmoid(x), in one node


def softcap(g: GraphBuilder, cap: float, x: Value) -> Value:
    """``cap · tanh(x / cap)``."""
    scale = g.constant(np.array(cap, np.float32))
    return g.op.Mul(g.op.Tanh(g.op.Div(x, scale)), scale)


def attention(
    g: GraphBuilder, params: Parameters, config: DecoderConfig, layer: int, x: Value, cache: KVLayer, step: StepInputs
) -> Stream:
    """Causal attention of [b, t, d] over the KV cache, to which the operator appends in place.

    Returns the output projection without its bias, which the stream adds.
    """
    module, own = f"layers.{layer}.attn", config.layers[layer]
    qkv = tuple(f"{module}.{name}" for name in "qkv")
    packed = linear(g, params.matrix(*qkv), x, params.bias(*qkv))
    if config.clip_qkv is not None:
        limit = np.array(config.clip_qkv, np.float32)
        packed = g.op.Clip(packed, g.constant(-limit), g.constant(limit))
    fused_rotation = _rotates_inside(config, own)
    if config.qk_norm or (own.rope and not fused_rotation):
        query, key, value = _prepared(g, params, config, module, own, packed, step)
    else:
        query, key, value = packed, NONE, NONE
    cos, sin = step.rotary[own.rope] if own.rope and fused_rotation else (NONE, NONE)

    kv_shape = ["batch", cache.kv_heads, "capacity", cache.head_dim]
    past_key = g.input(cache.past_key, step.kv_dtype, kv_shape)
    past_value = g.input(cache.past_value, step.kv_dtype, kv_shape)
    lengths = step.lengths[cache.cache_class]
    positions = step.positions if cos else NONE
    inputs = [query, key, value, past_key, past_value, lengths.seqlens, lengths.total, cos, sin, positions, step.alibi]
    inputs += [g.weight(params.vector(f"{module}.sinks")) if config.sinks else NONE]
    rounding: dict[str, AttributeValue] = {}
    if step.kv_dtype == "int8":
        rounding = {"kv_cache_bit_width": 8, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
        inputs += [g.weight(params.vector(name)) for name in kv_scale_names(layer)]
    attended, present_key, present_value = g.node(
        "GroupQueryAttention",
        _trimmed(inputs),
        3,
        domain="com.microsoft",
        attributes={
            "num_heads": config.num_heads,
            "kv_num_heads": config.num_kv_heads,
            "scale": own.scale,
            **({"local_window_size": own.window} if own.window else {}),
            **({"softcap": config.attention_softcap} if config.attention_softcap else {}),
            **({"do_rotary": 1, "rotary_interleaved": int(own.rope.interleaved)} if own.rope and cos else {}),
            **rounding,
        },
    )
    g.output(cache.present_key, present_key, step.kv_dtype, kv_shape)
    g.output(cache.present_value, present_value, step.kv_dtype, kv_shape)
    projected = linear(g, params.matrix(f"{module}.o"), attended)
    return Stream(NONE, projected, params.bias(f"{module}.o"))


def kv_scale_names(layer: int) -> tuple[str, str]:
    """Names of a layer's key and value scales for an int8 KV cache, float32 [1, kv_heads, 1, head_dim] each."""
    return f"layers.{layer}.attn.k_scale", f"layers.{layer}.attn.v_scale"


def _rotates_inside(config: DecoderConfig, layer: Layer) -> bool:
    rope = layer.rope
    return rope is not None and config.head_dim % ROTARY_STEP == 0 and rope.dim % ROTARY_STEP == 0


def _prepared(
    g: GraphBuilder,
    params: Parameters,
    config: DecoderConfig,
    module: str,
    layer: Layer,
    packed: Value,
    step: StepInputs,
) -> tuple[Value, Value, Value]:
    """Query, key and value, each [b, t, heads · head_dim], with QK norm, and with RoPE if the attention operator cannot
    apply it."""
    heads = {"q": config.num_heads, "k": config.num_kv_heads}
    widths = [n * config.head_dim for n in (config.num_heads, config.num_kv_heads, config.num_kv_heads)]
    query, key, value = g.node("Split", [packed, g.axes(*widths)], 3, attributes={"axis": 2})

    def prepared(name: str, x: Value) -> Value:
        if config.qk_norm:
            x = _head_norm(g, params, config.qk_norm, x, f"{module}.{name}_norm", heads[name], config.head_dim)
        if layer.rope and not _rotates_inside(config, layer):
            cos, sin = step.rotary[layer.rope]
            partial = {"rotary_embedding_dim": layer.rope.dim} if layer.rope.dim != config.head_dim else {}
            interleaved = int(layer.rope.interleaved)
            x = g.ms.RotaryEmbedding(
                x, step.positions, cos, sin, num_heads=heads[name], interleaved=interleaved, **partial
            )
        return x

    return prepared("q", query), prepared("k", key), value


def _head_norm(
    g: GraphBuilder, params: Parameters, qk_norm: QKNorm, x: Value, module: str, heads: int, head_dim: int
) -> Value:
    """Normalize the heads of x [b, t, heads · head_dim]."""
    if qk_norm.over == "all":
        return normalized(g, params, qk_norm.norm, x, module)
    split = g.op.Reshape(x, g.axes(0, 0, heads, head_dim))
    if qk_norm.over == "head":
        result = normalized(g, params, qk_norm.norm, split, module)
    else:
        plain = _norm_operator(g, qk_norm.norm, split, g.constant(np.ones(head_dim, np.float32)))
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


def mlp(g: GraphBuilder, params: Parameters, config: DecoderConfig, module: str, x: Value) -> Stream:
    """``down(activation(up(x)))``, or ``down(activation(gate(x)) · up(x))``; the stream adds the bias of ``down``."""
    if config.gated:
        both = (f"{module}.gate", f"{module}.up")
        wide = linear(g, params.matrix(*both), x, params.bias(*both))
        gate, up = g.node("Split", [wide], 2, attributes={"axis": 2, "num_outputs": 2})
        hidden = g.op.Mul(activation(g, config.activation, gate), up)
    else:
        up = linear(g, params.matrix(f"{module}.up"), x, params.bias(f"{module}.up"))
        hidden = activation(g, config.activation, up)
    down = linear(g, params.matrix(f"{module}.down"), hidden)
    return Stream(NONE, down, params.bias(f"{module}.down"))


def expert_mlp(
    g: GraphBuilder, params: Parameters, config: DecoderConfig, experts: Experts, layer: int, x: Value
) -> Stream:
    """``Σ p[e] · down[e](silu(gate[e](x)) · up[e](x))`` over the experts with the highest p, the router's.

    A shared expert adds ``sigmoid(shared_gate(x)) · shared(x)``. The router stays float32: it is small, and its choice
    matters much.
    """
    module = f"layers.{layer}.mlp"
    router = FloatMatrix(params.vector(f"{module}.router.weight"), experts.count, config.hidden_size)
    scores = linear(g, router, x, params.bias(f"{module}.router"))
    gate_up, down = params.experts(module, experts.count)
    bias_gate_up, bias_down = params.expert_biases(module, experts.count)
    rows = g.op.Reshape(scores, g.axes(-1, experts.count))
    inputs = [x, rows, *_expert_inputs(g, gate_up, bias_gate_up), *_expert_inputs(g, down, bias_down)]
    attributes: dict[str, AttributeValue] = {
        "k": experts.per_token,
        "normalize_routing_weights": 1,
        "activation_type": "swiglu",
        "swiglu_fusion": 1,  # rows of gate and up alternate
        "activation_alpha": experts.glu.alpha,
        "activation_beta": experts.glu.offset,
        "swiglu_limit": experts.glu.limit,
    }
    if isinstance(down, BlockMatrix):
        attributes |= {"expert_weight_bits": down.bits, "block_size": down.block_size}
        if down.bits < EIGHT_BITS.bits:
            attributes["accuracy_level"] = down.accuracy_level  # with 8 bits it is this one anyway
    op_type = "QMoE" if isinstance(down, BlockMatrix) else "MoE"
    (result,) = g.node(op_type, inputs, 1, domain=MICROSOFT, attributes=attributes)
    if not experts.normalized:
        # Normalized here: QMoE always normalizes, and MoE with that attribute reads its input after overwriting it.
        chosen, _ = g.node("TopK", [g.op.Softmax(scores, axis=-1), g.axes(experts.per_token)], 2, attributes={})
        result = g.op.Mul(result, g.op.ReduceSum(chosen, g.axes(-1)))
    if experts.shared_width:
        shared = mlp(g, params, config, f"layers.{layer}.shared", x)
        opening = FloatMatrix(params.vector(f"layers.{layer}.shared_gate.weight"), 1, config.hidden_size)
        result = g.op.Add(result, g.op.Mul(shared.delta, g.op.Sigmoid(linear(g, opening, x))))
    return Stream(NONE, result)


def _expert_inputs(g: GraphBuilder, matrix: Matrix, bias: Tensor | None) -> list[Value]:
    """Weights, scales if quantized, and the bias."""
    added = g.weight(bias) if bias else NONE
    match matrix:
        case FloatMatrix(weight):
            return [g.weight(weight), added]
        case BlockMatrix():
            return [g.weight(matrix.table), g.weight(matrix.scales), added]


def decoder_block(
    g: GraphBuilder,
    params: Parameters,
    config: DecoderConfig,
    layer: int,
    stream: Stream,
    cache: KVLayer,
    step: StepInputs,
) -> Stream:
    """A decoder layer, by kind of block:

    - ``sequential``: ``x += attn(norm(x)); x += mlp(norm(x))``
    - ``sandwich``: ``x += norm(attn(norm(x))); x += norm(mlp(norm(x)))``
    - ``post_norm``: ``x += norm(attn(x)); x += norm(mlp(x))``
    - ``norm_after_sum``: ``x = norm(x + attn(x)); x = norm(x + mlp(x))``
    - ``normed_residual``: ``x = norm(x); x += attn(x); x = norm(x); x += mlp(x)``
    - ``parallel``: ``y = norm(x); x += attn(y) + mlp(y)``
    - ``parallel_two_norms``: ``x += attn(norm(x)) + mlp(norm(x))``
    """
    name = f"layers.{layer}"

    def attend(x: Value) -> Stream:
        with g.scope("attn"):
            return attention(g, params, config, layer, x, cache, step)

    def think(x: Value) -> Stream:
        with g.scope("mlp"):
            if experts := config.experts_of(layer):
                return expert_mlp(g, params, config, experts, layer, x)
            return mlp(g, params, config, f"{name}.mlp", x)

    with g.scope(name):
        match config.block:
            case "sequential":
                x, residual = norm(g, params, config, stream, f"{name}.attn_norm")
                x, residual = norm(g, params, config, replace(attend(x), residual=residual), f"{name}.mlp_norm")
                return replace(think(x), residual=residual)
            case "sandwich":
                x, residual = norm(g, params, config, stream, f"{name}.attn_norm")
                post = _post_norm(g, params, config, attend(x), f"{name}.attn_post_norm")
                x, residual = norm(g, params, config, Stream(residual, post), f"{name}.mlp_norm")
                return Stream(residual, _post_norm(g, params, config, think(x), f"{name}.mlp_post_norm"))
            case "post_norm":
                x = added(g, stream)
                x = added(g, Stream(x, _post_norm(g, params, config, attend(x), f"{name}.attn_post_norm")))
                return Stream(x, _post_norm(g, params, config, think(x), f"{name}.mlp_post_norm"))
            case "norm_after_sum":
                x = added(g, stream)
                x, _ = norm(g, params, config, replace(attend(x), residual=x), f"{name}.attn_norm")
                x, _ = norm(g, params, config, replace(think(x), residual=x), f"{name}.mlp_norm")
                return Stream(x)
            case "normed_residual":
                x, _ = norm(g, params, config, stream, f"{name}.attn_norm")
                x, _ = norm(g, params, config, replace(attend(x), residual=x), f"{name}.mlp_norm")
                return replace(think(x), residual=x)
            case "parallel":
                x, residual = norm(g, params, config, stream, f"{name}.attn_norm")
                return _both(g, residual, attend(x), think(x))
            case "parallel_two_norms":
                x, residual = norm(g, params, config, stream, f"{name}.attn_norm")
                y = normalized(g, params, config.norm, residual, f"{name}.mlp_norm")
                return _both(g, residual, attend(x), think(y))


def _post_norm(g: GraphBuilder, params: Parameters, config: DecoderConfig, part: Stream, module: str) -> Value:
    """The normalized output of a sublayer."""
    x = g.op.Add(part.delta, g.weight(part.bias)) if part.bias else part.delta
    return normalized(g, params, config.norm, x, module)


def _both(g: GraphBuilder, residual: Value, attended: Stream, thought: Stream) -> Stream:
    """The stream with the outputs of both sublayers."""
    delta = g.op.Add(attended.delta, thought.delta)
    if attended.bias:
        delta = g.op.Add(delta, g.weight(attended.bias))
    return Stream(residual, delta, thought.bias)


def final_hidden(g: GraphBuilder, params: Parameters, config: DecoderConfig, stream: Stream) -> Value:
    """The stream after the last layer, normalized: [b, t, d]."""
    return norm(g, params, config, stream, "final_norm")[0] if config.final_norm else added(g, stream)


def projected(g: GraphBuilder, params: Parameters, config: DecoderConfig, hidden: Value) -> Value:
    """hidden [b, t, d] in the embedding's width, [b, t, e]."""
    if config.embedding_size in (None, config.hidden_size):
        return hidden
    return linear(g, params.matrix("head_in"), hidden)


def head(g: GraphBuilder, params: Parameters, config: DecoderConfig, hidden: Value) -> Value:
    """The logits [b, t, v] of hidden [b, t, e]."""
    logits = linear(g, params.matrix("embed" if config.tied_head else "head"), hidden, params.bias("head"))
    return softcap(g, config.logit_softcap, logits) if config.logit_softcap else logits


def _trimmed(inputs: list[Value]) -> list[Value]:
    """``inputs`` without trailing omitted ones."""
    while inputs and not inputs[-1]:
        inputs.pop()
    return inputs
