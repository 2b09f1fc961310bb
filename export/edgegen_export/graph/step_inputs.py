"""StepInputs: the inputs that all layers of a graph share, and how they are computed.

Shapes: b rows (batch), t new tokens per row, h heads, n keys in the cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edgegen.bundle.manifest import KVDtype
from edgegen_export.architecture.components.attention import Alibi, QueryScale
from edgegen_export.architecture.rope import Rope
from edgegen_export.graph.builder import GraphBuilder, Value


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
    by rope; ``alibi``: float32 [1, h, t, total], added to scores; ``kv_dtype``: the dtype of the KV cache;
    ``query_scales``: float32 [b, t, 1], multiplied with the queries; ``per_layer``: by layer, what it takes of
    embeddings of its own; ``distances``: int64 [b, t, keys, 1] by cache class and extent; ``kept``: new keys and values
    [b, t, kv_heads · head_dim] of layers whose cache others share, which these layers put in; ``unseen``: float32
    [1, 1, t, keys] by cache class, added to the scores where some keys are not to be read.
    """

    positions: Value
    lengths: Mapping[str, CacheLengths]
    rotary: Mapping[Rope, tuple[Value, Value]]
    alibi: Mapping[Alibi | None, Value] = field(default_factory=dict[Alibi | None, Value])
    kv_dtype: KVDtype = "float32"
    query_scales: Mapping[QueryScale, Value] = field(default_factory=dict[QueryScale, Value])
    per_layer: Mapping[int, Value] = field(default_factory=dict[int, Value])
    distances: Mapping[tuple[str, int], Value] = field(default_factory=dict[tuple[str, int], Value])
    kept: dict[int, tuple[Value, Value]] = field(default_factory=dict[int, tuple[Value, Value]])
    unseen: Mapping[str, Value] = field(default_factory=dict[str, Value])


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


def query_scale(g: GraphBuilder, scale: QueryScale, positions: Value, max_positions: int) -> Value:
    """The factor of each query, float32 [b, t, 1], for positions int64 [b, t] below ``max_positions``.

    It is read from a table: the logarithm of a vector depends on where it is cut, in its last bits.
    """
    if scale.smooth:
        # Before the position ``original`` the factor is 1, so the table begins there.
        first = min(scale.original, max_positions) - 1
        counts = np.arange(first + 1, max_positions + 1, dtype=np.float32)
        shares = np.maximum(counts / np.float32(scale.original), np.float32(1))
        table = np.float32(1) + np.float32(scale.beta) * np.log(shares)
        beyond = g.op.Sub(positions, g.constant(np.array(first, np.int64)))
        which = g.op.Max(beyond, g.constant(np.array(0, np.int64)))
        return g.op.Unsqueeze(g.op.Gather(g.constant(table, f"query scale {scale}"), which), g.axes(2))
    steps = np.arange(-(-max_positions // scale.original), dtype=np.float32)
    table = np.float32(1) + np.float32(scale.beta) * np.log(np.float32(1) + steps)
    which = g.op.Div(positions, g.constant(np.array(scale.original, np.int64)))
    return g.op.Unsqueeze(g.op.Gather(g.constant(table), which), g.axes(2))


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
