"""Layers of one residual stream, by kind of block: the order of their norms and sublayers.

In the formulas ``attn`` is attention, the mixer of a layer that has one in its place, or the sum of both.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from edgegen_export.architecture.components.sublayer_convs import ATTENTION_CONV, MLP_CONV
from edgegen_export.architecture.config import Block
from edgegen_export.graph.block_residual import over_blocks
from edgegen_export.graph.builder import Value
from edgegen_export.graph.layer_graph import BlockGraph, LayerGraph
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.stream import Stream, added, both_added, sublayer_output
from edgegen_export.graph.sublayers import mix, mixed, over_tokens, think


def _sequential(layer: LayerGraph, stream: Stream) -> Stream:
    """``x += attn(norm(x)); x += mlp(norm(x))``, both convolved over the last tokens in some models."""
    x, residual = layer.norm(stream, "attn_norm")
    attended = over_tokens(layer, mix(layer, x), ATTENTION_CONV)
    x, residual = layer.norm(replace(attended, residual=residual), "mlp_norm")
    output = over_tokens(layer, think(layer, x, residual), MLP_CONV)
    return replace(output, residual=residual, others=attended.others)


def _sandwich(layer: LayerGraph, stream: Stream) -> Stream:
    """``x += norm(attn(norm(x))); x += norm(mlp(norm(x)))``."""
    x, residual = layer.norm(stream, "attn_norm")
    return _sandwiched(layer, Stream(residual, layer.post_norm(mix(layer, x), "attn_post_norm")))


def _sandwich_with_laurel(layer: LayerGraph, stream: Stream) -> Stream:
    """``y = norm(x); x = (x + norm(attn(y)) + y + norm(right(left(y)))) / √2; x += norm(mlp(norm(x)))``."""
    g, (y, residual) = layer.g, layer.norm(stream, "attn_norm")
    attended = layer.post_norm(mix(layer, y), "attn_post_norm")
    with g.scope("laurel"):
        learned = layer.linear(layer.linear(y, "laurel.left"), "laurel.right")
        total = g.op.Sum(residual, attended, y, layer.normalized(learned, "laurel.norm"))
        x = g.op.Mul(total, g.constant(np.array(2**-0.5, np.float32)))
    return _sandwiched(layer, Stream(x))


def _sandwiched(layer: LayerGraph, stream: Stream) -> Stream:
    """``x += norm(mlp(norm(x)))``."""
    x, residual = layer.norm(stream, "mlp_norm")
    return Stream(residual, layer.post_norm(think(layer, x, residual), "mlp_post_norm"))


def _post_norm(layer: LayerGraph, stream: Stream) -> Stream:
    """``x += norm(attn(x)); x += norm(mlp(x))``."""
    x = added(layer.g, stream)
    x = added(layer.g, Stream(x, layer.post_norm(mix(layer, x), "attn_post_norm")))
    return Stream(x, layer.post_norm(think(layer, x, x), "mlp_post_norm"))


def _norm_after_sum(layer: LayerGraph, stream: Stream) -> Stream:
    """``x = norm(x + attn(x)); x = norm(x + mlp(x))``."""
    x = added(layer.g, stream)
    x, _ = layer.norm(replace(mix(layer, x), residual=x), "attn_norm")
    x, _ = layer.norm(replace(think(layer, x, x), residual=x), "mlp_norm")
    return Stream(x)


def _normed_residual(layer: LayerGraph, stream: Stream) -> Stream:
    """``x = norm(x); x += attn(x); x = norm(x); x += mlp(x)``."""
    x, _ = layer.norm(stream, "attn_norm")
    x, _ = layer.norm(replace(mix(layer, x), residual=x), "mlp_norm")
    return replace(think(layer, x, x), residual=x)


def _interpolated(layer: LayerGraph, stream: Stream) -> Stream:
    """``x = norm(x); x += rate · (norm(attn(x)) - x); x = norm(x); x += rate · (norm(mlp(x)) - x)``."""

    def approached(x: Value, sublayer: str, part: Stream) -> Stream:
        output = layer.post_norm(part, f"{sublayer}_post_norm")
        return Stream(x, layer.g.op.Mul(layer.g.op.Sub(output, x), layer.weight(f"{sublayer}_rate")))

    x, _ = layer.norm(stream, "attn_norm")
    x, _ = layer.norm(approached(x, "attn", mix(layer, x)), "mlp_norm")
    return approached(x, "mlp", think(layer, x, x))


def _parallel(layer: LayerGraph, stream: Stream) -> Stream:
    """``y = norm(x); x += attn(y) + mlp(y)``."""
    x, residual = layer.norm(stream, "attn_norm")
    return both_added(layer.g, residual, mix(layer, x), think(layer, x, residual))


def _parallel_two_norms(layer: LayerGraph, stream: Stream) -> Stream:
    """``x += attn(norm(x)) + mlp(norm(x))``."""
    x, residual = layer.norm(stream, "attn_norm")
    y = layer.normalized(residual, "mlp_norm")
    return both_added(layer.g, residual, mix(layer, x), think(layer, y, residual))


def _single(layer: LayerGraph, stream: Stream) -> Stream:
    """``x += attn(norm(x))``, or ``x += mlp(norm(x))``."""
    x, residual = layer.norm(stream, "norm")
    output = think(layer, x, residual) if layer.parts.mlp else mix(layer, x)
    return replace(output, residual=residual)


def _shared_before_mixer(layer: LayerGraph, stream: Stream) -> Stream:
    """``x += mixer(norm(x))``; with attention, which takes x and the embedding e, ``x += mixer(norm(x +
    linear(mlp(norm(attn(norm(concat(x, e))))))))``."""
    g, (mixer, *shared) = layer.g, layer.parts.mixing
    x = residual = added(g, stream)
    for attention in shared:
        both = layer.normalized(g.op.Concat(x, *stream.others, axis=2), "attn_norm")
        read = layer.post_norm(mixed(layer, attention, both), "mlp_norm")
        matrix = layer.matrix("linear")
        x = g.op.Add(x, linear(g, matrix, sublayer_output(g, think(layer, read, x))))
    return replace(mixed(layer, mixer, layer.normalized(x, "norm")), residual=residual)


BLOCKS: Mapping[Block, BlockGraph] = {
    "sequential": _sequential,
    "sandwich": _sandwich,
    "sandwich_with_laurel": _sandwich_with_laurel,
    "post_norm": _post_norm,
    "norm_after_sum": _norm_after_sum,
    "normed_residual": _normed_residual,
    "interpolated": _interpolated,
    "parallel": _parallel,
    "parallel_two_norms": _parallel_two_norms,
    "single": _single,
    "shared_before_mixer": _shared_before_mixer,
    "over_blocks": over_blocks,
    "over_blocks_apart": over_blocks,
}
