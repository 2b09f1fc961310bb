"""The graph of a draft head that reads the model's KV cache: a hidden state and the next token → logits."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from edgegen.bundle.manifest import GraphContract, KVLayer, KVSpec, SharedLayer
from edgegen_export.architecture.components.draft_input import AssistantInput
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.graph.attention import kv_scale_names
from edgegen_export.graph.blocks import decoder_block, embedding, final_hidden, head
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.decoder import HIDDEN_STATES, step_inputs
from edgegen_export.graph.draft_head import CUT_HEAD, HIDDEN_INPUT, MODULE
from edgegen_export.graph.kept_state import cache_names
from edgegen_export.graph.layer_graph import LayerGraph, ModelGraph
from edgegen_export.graph.matrices import rows
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.renamed import RenamedParameters
from edgegen_export.graph.stream import Stream, added, pick

_UNSEEN = np.float32(-1e9)
"""Added to a score, it leaves nothing of the weight."""


def build_cache_head(
    config: DecoderConfig,
    own: AssistantInput,
    model: DecoderConfig,
    params: Parameters,
    kv: KVSpec,
    ordering: NDArray[np.int32] | None,
) -> GraphBuilder:
    """ids [b, 1] and the hidden states [b, 1, backbone] before them, over the model's KV cache → logits [b, n, v] and
    hidden states [b, 1, backbone] to go on from.

    ``config``: a decoder of the head's layers, which read layers of the ``model`` (:func:`read_layers`); ``kv``: what
    :func:`cache_read` gives. ``ordering``: the ids [clusters, size] of each cluster of the vocabulary, where there are
    any: logits of others than the chosen clusters are -inf.
    """
    names = GraphContract()
    g, of_head = GraphBuilder(MODULE), RenamedParameters(params, cache_head_name(config))
    graph = ModelGraph(g, of_head, config)
    ids = g.input(names.input_ids, "int64", ["batch", "tokens"])
    previous = g.input(HIDDEN_INPUT, "float32", ["batch", "tokens", own.backbone])
    step = step_inputs(graph, kv, ids)
    with g.scope("unseen"):
        # The operator always appends: what it appends is where the model's next token will be, and is not read.
        unseen = {name: _last_unseen(g, lengths.total) for name, lengths in step.lengths.items()}
        widths = {one.source: one.kv_width for one in config.attentions.values() if one.source is not None}
        kept = {layer: (_zeros(g, ids, width),) * 2 for layer, width in widths.items()}
    step = replace(step, unseen=unseen, kept=kept)
    with g.scope("embed"):
        token = added(g, embedding(ModelGraph(g, params, model), ids, step.positions))
        stream = Stream(graph.linear(g.op.Concat(token, previous, axis=2), "draft_in"))
    for layer in range(config.num_layers):
        stream = decoder_block(LayerGraph(g, of_head, config, layer, kv, step), stream)
    with g.scope("head"):
        final = final_hidden(graph, stream)
        result = graph.linear(final, "draft_out")
        g.output(HIDDEN_STATES, result, "float32", ["batch", "tokens", own.backbone])
        wanted = pick(g, final, g.input(names.logits_indices, "int64", ["batch", "wanted"]))
        logits = head(graph, wanted) if ordering is None else _chosen_logits(graph, own.chosen, wanted, ordering)
    g.output(names.logits, logits, "float32", ["batch", "wanted", config.vocab_size])
    return g


def read_layers(config: DecoderConfig) -> list[int]:
    """Which layer of the model each layer of the head reads: sources are numbered on from its own layers."""
    return [one.source - config.num_layers for one in config.attentions.values() if one.source is not None]


def cache_read(config: DecoderConfig, model: KVSpec) -> tuple[KVSpec, tuple[int, ...]]:
    """Return the part of the ``model``'s KV cache that the head reads, by names of its own; and for each of the layers
    there, which of the model's it is."""
    kept = {n if one.layer is None else one.layer: one for n, one in enumerate(model.layers)}
    first, shared = dict[int, int](), list[SharedLayer]()
    layers = [kept[source] for source in dict.fromkeys(read_layers(config))]
    for layer, source in enumerate(read_layers(config)):
        if source in first:
            shared.append(SharedLayer(layer, first[source], *cache_names(layer)))
            continue
        at = len(first)
        first[source], own = layer, layers[at]
        names = cache_names(layer)
        layers[at] = KVLayer(own.cache_class, own.kv_heads, own.head_dim, *names, layer=layer, latent=own.latent)
    used = {one.cache_class for one in layers}
    classes = {name: one for name, one in model.classes.items() if name in used}
    return replace(model, classes=classes, layers=tuple(layers), shared=tuple(shared), fixed=()), tuple(first)


def cache_head_name(config: DecoderConfig) -> Callable[[str], str]:
    """The name of a module or a tensor of the head, as it is stored; the scales of the KV cache are the model's."""
    scales = {
        theirs: ours
        for layer in read_layers(config)
        for theirs, ours in zip(kv_scale_names(config.num_layers + layer), kv_scale_names(layer), strict=True)
    }

    def stored(name: str) -> str:
        module, _, rest = name.partition(".")
        of_head = f"{CUT_HEAD}.{rest}".rstrip(".") if module in ("embed", "head") else f"{MODULE}.{name}"
        return scales.get(name, of_head)

    return stored


def _last_unseen(g: GraphBuilder, total: Value) -> Value:
    """Return the mask [1, 1, 1, total] that is added to the scores, so that the last key is not read."""
    before = g.op.Reshape(g.op.Sub(g.op.Cast(total, to=TensorProto.INT64), g.constant(np.array(1))), g.axes(1))
    seen = g.op.Expand(g.constant(np.zeros(1, np.float32)), g.op.Concat(g.axes(1, 1, 1), before, axis=0))
    return g.op.Concat(seen, g.constant(np.full((1, 1, 1, 1), _UNSEEN)), axis=3)


def _zeros(g: GraphBuilder, ids: Value, width: int) -> Value:
    """[b, t, width] of zeros."""
    return g.op.Expand(g.constant(np.zeros(1, np.float32)), g.op.Concat(g.op.Shape(ids), g.axes(width), axis=0))


def _chosen_logits(graph: ModelGraph, chosen: int, hidden: Value, ordering: NDArray[np.int32]) -> Value:
    """The logits [b, n, v] of hidden [b, n, d]: of the ``chosen`` clusters whose centroids are nearest, the others'
    being -inf. The rows of the head are looked up for them alone."""
    g, config = graph.g, graph.config
    near = graph.linear(hidden, "centroids")
    _, clusters = g.node("TopK", [near, g.axes(chosen)], 2, attributes={"axis": -1})
    found = g.op.Gather(g.constant(ordering, "ids of clusters"), clusters, axis=0)
    found = g.op.Cast(g.op.Reshape(found, g.axes(0, 0, ordering.shape[1] * chosen)), to=TensorProto.INT64)
    table = rows(g, graph.matrix("embed" if config.tied_head else "head"), g.op.Reshape(found, g.axes(0, -1)))
    shape = g.op.Concat(g.op.Shape(found), g.axes(config.hidden_size), axis=0)
    logits = g.op.MatMul(g.op.Reshape(table, shape), g.op.Unsqueeze(hidden, g.axes(-1)))
    logits = g.op.Squeeze(logits, g.axes(-1))
    whole = g.op.Concat(g.op.Shape(hidden, end=2), g.axes(config.vocab_size), axis=0)
    nothing = g.op.Expand(g.constant(np.array([-np.inf], np.float32)), whole)
    return g.op.ScatterElements(nothing, found, logits, axis=2)
