"""The parts of a decoder graph in the order of its tokens: embedding, layers, head.

Shapes: b rows (batch), t new tokens per row, d hidden size, e width of the embedding, v vocabulary.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from edgegen.bundle.manifest import KVSpec
from edgegen_export.architecture.components.altup import AltUp
from edgegen_export.architecture.components.block_residual import BlockResidual
from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.architecture.components.per_layer import PerLayerEmbedding
from edgegen_export.architecture.config import LAYER_NORMS, DecoderConfig
from edgegen_export.graph.activations import softcap
from edgegen_export.graph.altup import corrected, first_streams, merged, predicted
from edgegen_export.graph.attention import kv_scale_names
from edgegen_export.graph.block_kinds import BLOCKS
from edgegen_export.graph.block_residual import final_sum
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.matrices import linear, rows
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.per_layer import of_part
from edgegen_export.graph.renamed import RenamedParameters
from edgegen_export.graph.step_inputs import StepInputs
from edgegen_export.graph.stream import Stream, added, norm, normalized


def embedding(g: GraphBuilder, params: Parameters, config: DecoderConfig, ids: Value, positions: Value) -> Stream:
    """Token embedding, projected and normalized where the model does so, plus learned positions; both int64 [b, t].
    Where there are several residual streams, all of them."""
    x = rows(g, params.matrix("embed"), ids)
    if config.embedding_size not in (None, config.hidden_size):
        x = linear(g, params.matrix("embed_in"), x)
    if config.embedding_norm:
        x = normalized(g, params, config.norm, x, "embed_norm")
    if config.learned_positions:
        return Stream(x, rows(g, params.matrix("positions"), positions))
    if altup := config.first(AltUp):
        with g.scope("altup"):
            x, *others = first_streams(g, params, config, altup, x)
        return Stream(x, others=tuple(others))
    return Stream(x)


def decoder_block(
    g: GraphBuilder,
    params: Parameters,
    config: DecoderConfig,
    layer: int,
    stream: Stream,
    kv: KVSpec,
    step: StepInputs,
) -> Stream:
    """A decoder layer: its kind of block, between prediction and correction where there are several residual streams;
    and before it what a further pass over layers starts from."""
    built = LayerGraph(g, of_layer(params, config, layer), config, layer, kv, step, stream.others)
    altup = built.parts.extra(AltUp)
    if start := built.parts.extra(PassStart):
        with g.scope(built.name), g.scope("start"):
            stream = started(built, start, stream)
            built = replace(built, others=stream.others)
    if altup:
        return _over_streams(built, altup, stream)
    result = _block(built, stream)
    return result if result.others else replace(result, others=stream.others)


def _over_streams(layer: LayerGraph, altup: AltUp, stream: Stream) -> Stream:
    """All streams after a layer, which is computed of one of them."""
    g = layer.g
    with g.scope(layer.name), g.scope("altup"):
        streams = predicted(layer, altup, (added(g, stream), *stream.others))
    output = added(g, _block(layer, Stream(streams[altup.active])))
    with g.scope(layer.name), g.scope("altup"):
        first, *others = streams = corrected(layer, altup, streams, output)
        if per_layer := layer.parts.extra(PerLayerEmbedding):
            x = streams[altup.active]
            x = g.op.Mul(x, layer.weight("altup.scale.weight")) if altup.scaled else x
            part = of_part(layer, per_layer, x)
            others = [g.op.Add(each, part) for each in others]
    return Stream(first, others=tuple(others))


def _block(layer: LayerGraph, stream: Stream) -> Stream:
    with layer.g.scope(layer.name):
        return BLOCKS[layer.config.block_of(layer.index)](layer, stream)


def final_hidden(g: GraphBuilder, params: Parameters, config: DecoderConfig, stream: Stream) -> Value:
    """The stream after the last layer, or all of them together, normalized: [b, t, d]."""
    if altup := config.first(AltUp):
        with g.scope("altup"):
            stream = Stream(merged(g, params, config, altup, (added(g, stream), *stream.others)))
    if blocks := config.layers[-1].extra(BlockResidual):
        with g.scope("taken"):
            stream = Stream(final_sum(g, params, config, blocks, stream))
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


def started(layer: LayerGraph, start: PassStart, stream: Stream) -> Stream:
    """The residual streams, each [b, t, d], that the first layer of the pass takes."""
    g, params = layer.g, layer.params
    x = norm(g, params, layer.config, stream, "pass_norm")[0] if start.normed else added(g, stream)
    match start.second:
        case None:
            return Stream(x, others=stream.others)
        case "copy":
            return Stream(x, others=(x,))
        case "begins":
            offset = g.weight(params.vector("pass_offset.weight")) if start.offset else x
            return Stream(g.op.Add(x, offset), others=(x,))
        case "stays":
            return Stream(x, stream.others[0], others=stream.others)
        case "change":
            return Stream(x, stream.others[0], others=(x,))


def of_layer(params: Parameters, config: DecoderConfig, layer: int) -> Parameters:
    """``params`` by the names of a layer, which may compute with another's."""
    if config.layers[layer].repeats is None:
        return params
    own = frozenset(_own_names(config, layer))
    return RenamedParameters(params, partial(_stored_name, f"layers.{layer}.", config.stored(layer), own))


def _own_names(config: DecoderConfig, layer: int) -> Iterator[str]:
    """Tensors and modules that a layer has itself: scales of its KV cache, those of its own components, its norms."""
    own, hidden = config.layers[layer].own, config.hidden_size
    yield from kv_scale_names(layer)
    for one in own:
        found = (one.matrices(hidden), one.kernels(hidden), one.numbers(hidden), one.norms(config.norm, hidden))
        yield from (f"layers.{layer}.{name}" for names in found for name in names)
    if own:
        yield from (f"layers.{layer}.{name}" for name in LAYER_NORMS[config.block_of(layer)])


def _stored_name(layer: str, stored: str, own: frozenset[str], name: str) -> str:
    """``name``, where one that begins with ``layer`` means that of ``stored``, but for those of ``own``: every pass has
    a KV cache, and scales, of its own."""
    inside, module = name.removeprefix(layer), name.removesuffix(".weight")
    return name if own & {name, module} or inside == name else f"{stored}{inside}"
