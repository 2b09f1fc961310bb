"""The parts of a decoder graph in the order of its tokens: embedding, layers, head.

Shapes: b rows (batch), t new tokens per row, d hidden size, e width of the embedding, v vocabulary.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from edgegen_export.architecture.components.altup import AltUp
from edgegen_export.architecture.components.block_residual import BlockResidual
from edgegen_export.architecture.components.component import Component
from edgegen_export.architecture.components.learned_positions import LearnedPositions
from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.architecture.components.per_layer import LayerScale, PerLayerEmbedding
from edgegen_export.architecture.config import LAYER_NORMS, DecoderConfig
from edgegen_export.graph.activations import softcap
from edgegen_export.graph.altup import first_streams, merged, over_streams
from edgegen_export.graph.attention import kv_scale_names
from edgegen_export.graph.block_kinds import BLOCKS
from edgegen_export.graph.block_residual import final_sum
from edgegen_export.graph.builder import Value
from edgegen_export.graph.layer_graph import BlockGraph, LayerGraph, ModelGraph
from edgegen_export.graph.matrices import linear, rows
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.per_layer import with_embedding, with_scale
from edgegen_export.graph.renamed import RenamedParameters
from edgegen_export.graph.stream import Stream, added


def embedding(model: ModelGraph, ids: Value, positions: Value) -> Stream:
    """Token embedding, projected and normalized where the model does so, plus learned positions; both int64 [b, t].
    Where there are several residual streams, all of them."""
    g, config = model.g, model.config
    x = rows(g, model.matrix("embed"), ids)
    if config.embedding_size not in (None, config.hidden_size):
        x = model.linear(x, "embed_in")
    if config.embedding_norm:
        x = model.normalized(x, "embed_norm")
    for kind, begin in FIRST.items():
        if extra := config.first(kind):
            return begin(model, extra, x, positions)
    return Stream(x)


def decoder_block(layer: LayerGraph, stream: Stream) -> Stream:
    """A decoder layer: its kind of block, with what its extras do before it and after it."""
    layer = replace(layer, params=of_layer(layer.params, layer.config, layer.index), others=stream.others)
    block: BlockGraph = _block
    for kind, around in AROUND.items():
        if extra := layer.parts.first(kind):
            block = partial(around, extra, block)
    return block(layer, stream)


def _block(layer: LayerGraph, stream: Stream) -> Stream:
    with layer.g.scope(layer.name):
        result = BLOCKS[layer.config.block_of(layer.index)](layer, stream)
    return result if result.others else replace(result, others=stream.others)


def final_hidden(model: ModelGraph, stream: Stream) -> Value:
    """The stream after the last layer, or all of them together, normalized: [b, t, d]."""
    for kind, merge in LAST.items():
        if extra := model.config.layers[-1].first(kind):
            stream = Stream(merge(model, extra, stream))
    return model.norm(stream, "final_norm")[0] if model.config.final_norm else added(model.g, stream)


def projected(model: ModelGraph, hidden: Value) -> Value:
    """hidden [b, t, d] in the embedding's width, [b, t, e]."""
    unlike = model.config.embedding_size not in (None, model.config.hidden_size)
    return model.linear(hidden, "head_in") if unlike else hidden


def head(model: ModelGraph, hidden: Value) -> Value:
    """The logits [b, t, v] of hidden [b, t, e]."""
    g, config = model.g, model.config
    logits = linear(g, model.matrix("embed" if config.tied_head else "head"), hidden, model.bias("head"))
    return softcap(g, config.logit_softcap, logits) if config.logit_softcap else logits


def from_start(start: PassStart, block: BlockGraph, layer: LayerGraph, stream: Stream) -> Stream:
    """The streams after the first layer of a pass over layers."""
    with layer.g.scope(layer.name), layer.g.scope("start"):
        stream = _started(ModelGraph(layer.g, layer.params, layer.config), start, stream)
    return block(replace(layer, others=stream.others), stream)


def _started(model: ModelGraph, start: PassStart, stream: Stream) -> Stream:
    """The residual streams, each [b, t, d], that the first layer of the pass takes."""
    g = model.g
    x = model.norm(stream, "pass_norm")[0] if start.normed else added(g, stream)
    match start.second:
        case None:
            return Stream(x, others=stream.others)
        case "copy":
            return Stream(x, others=(x,))
        case "begins":
            offset = model.weight("pass_offset.weight") if start.offset else x
            return Stream(g.op.Add(x, offset), others=(x,))
        case "stays":
            return Stream(x, stream.others[0], others=stream.others)
        case "change":
            return Stream(x, stream.others[0], others=(x,))


def with_positions(model: ModelGraph, _table: LearnedPositions, x: Value, positions: Value) -> Stream:
    """The token embedding x [b, t, d] with the rows of ``positions`` [b, t]."""
    return Stream(x, rows(model.g, model.matrix("positions"), positions))


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


FIRST: dict[type[Component], Callable[[ModelGraph, Any, Value, Value], Stream]] = {
    LearnedPositions: with_positions,
    AltUp: first_streams,
}
"""Functions by which extras make the streams before the first layer, of the token embedding and the positions."""

AROUND: dict[type[Component], Callable[[Any, BlockGraph, LayerGraph, Stream], Stream]] = {
    PerLayerEmbedding: with_embedding,
    LayerScale: with_scale,
    AltUp: over_streams,
    PassStart: from_start,
}
"""Work of extras around the block of their layer, the innermost first."""

LAST: dict[type[Component], Callable[[ModelGraph, Any, Stream], Value]] = {AltUp: merged, BlockResidual: final_sum}
"""Functions by which extras of the last layer merge the streams after it, for the final norm."""
