"""The blocks of a decoder: norm, linear, attention, mlp. No block knows a family's name.

Shapes: b rows (batch), t new tokens per row, d hidden size, v vocabulary.
"""

from dataclasses import dataclass, replace

from edgegen.manifest import KVLayer
from edgegen_export.config import Activation, DecoderConfig
from edgegen_export.graph import NONE, GraphBuilder, Tensor, Value
from edgegen_export.parameters import BlockMatrix, FloatMatrix, Matrix, Parameters


@dataclass(frozen=True, slots=True)
class Stream:
    """The residual stream [b, t, d] between blocks: ``residual + delta + bias``, not yet added.

    The sum waits for the next norm, whose fused operator adds, normalizes and returns both in one pass.
    """

    residual: Value
    delta: Value
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class CacheLengths:
    """The length inputs of one cache class.

    ``seqlens``: int32 [b], each row's valid length after this step, less one; ``total``: int32 scalar, the longest
    valid length after this step.
    """

    seqlens: Value
    total: Value


def embedding(g: GraphBuilder, params: Parameters, config: DecoderConfig, ids: Value, positions: Value) -> Stream:
    """Token embedding plus learned positions; ids and positions int64 [b, t]."""
    table = params.matrix("embed")
    position_table = g.weight(params.vector("positions.weight"))
    return Stream(rows(g, table, ids), g.op.Gather(position_table, positions, axis=0))


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
                bits=table.bits,
                block_size=table.block_size,
                gather_axis=0,
                quantize_axis=1,
            )
            if table.table.shape[1] == table.columns:
                return gathered
            return g.op.Slice(gathered, g.axes(0), g.axes(table.columns), g.axes(2))


def norm(
    g: GraphBuilder, params: Parameters, config: DecoderConfig, stream: Stream, module: str
) -> tuple[Value, Value]:
    """Add up the stream and normalize it: (normalized, sum), both [b, t, d]."""
    normalized, _, _, total = g.node(
        "SkipLayerNormalization",
        [
            stream.residual,
            stream.delta,
            g.weight(params.vector(f"{module}.weight")),
            g.weight(params.vector(f"{module}.bias")),
            g.weight(stream.bias) if stream.bias else NONE,
        ],
        4,
        domain="com.microsoft",
        attributes={"epsilon": config.norm.eps},
    )
    return normalized, total


def linear(g: GraphBuilder, matrix: Matrix, x: Value, bias: Tensor | None = None) -> Value:
    """``x @ matrix.T + bias``: [b, t, columns] → [b, t, rows]."""
    added = g.weight(bias) if bias else NONE
    match matrix:
        case BlockMatrix():
            return g.ms.MatMulNBits(
                x,
                g.weight(matrix.codes),
                g.weight(matrix.scales),
                *([NONE, NONE, added] if bias else []),
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
        case "silu":
            return g.op.Mul(x, g.op.Sigmoid(x))


def attention(
    g: GraphBuilder,
    params: Parameters,
    config: DecoderConfig,
    layer: int,
    x: Value,
    cache: KVLayer,
    lengths: CacheLengths,
) -> Stream:
    """Causal attention of [b, t, d] over the cache, which the operator appends to in place.

    Returns the output projection, its bias still to be added.
    """
    module = f"layers.{layer}.attn"
    qkv = tuple(f"{module}.{name}" for name in "qkv")
    packed = linear(g, params.matrix(*qkv), x, params.bias(*qkv))
    kv_shape = ["batch", cache.kv_heads, "capacity", cache.head_dim]
    past_key = g.input(cache.past_key, "float32", kv_shape)
    past_value = g.input(cache.past_value, "float32", kv_shape)
    attended, present_key, present_value = g.node(
        "GroupQueryAttention",
        [packed, NONE, NONE, past_key, past_value, lengths.seqlens, lengths.total],
        3,
        domain="com.microsoft",
        attributes={
            "num_heads": config.num_heads,
            "kv_num_heads": config.num_kv_heads,
            "scale": config.attention_scales[layer],
        },
    )
    g.output(cache.present_key, present_key, "float32", kv_shape)
    g.output(cache.present_value, present_value, "float32", kv_shape)
    projected = linear(g, params.matrix(f"{module}.o"), attended)
    return Stream(NONE, projected, params.bias(f"{module}.o"))


def mlp(g: GraphBuilder, params: Parameters, config: DecoderConfig, layer: int, x: Value) -> Stream:
    """``down(activation(up(x)))``; the bias of ``down`` still to be added."""
    module = f"layers.{layer}.mlp"
    up = linear(g, params.matrix(f"{module}.up"), x, params.bias(f"{module}.up"))
    down = linear(g, params.matrix(f"{module}.down"), activation(g, config.activation, up))
    return Stream(NONE, down, params.bias(f"{module}.down"))


def sequential_block(
    g: GraphBuilder,
    params: Parameters,
    config: DecoderConfig,
    layer: int,
    stream: Stream,
    cache: KVLayer,
    lengths: CacheLengths,
) -> Stream:
    """``x += attention(norm(x)); x += mlp(norm(x))``."""
    with g.scope(f"layers.{layer}"):
        with g.scope("attn"):
            normalized, residual = norm(g, params, config, stream, f"layers.{layer}.attn_norm")
            stream = replace(attention(g, params, config, layer, normalized, cache, lengths), residual=residual)
        with g.scope("mlp"):
            normalized, residual = norm(g, params, config, stream, f"layers.{layer}.mlp_norm")
            return replace(mlp(g, params, config, layer, normalized), residual=residual)
