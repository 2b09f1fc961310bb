"""The prefill graph and the decode graph of a decoder, built from the same blocks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from edgegen.bundle.layer_state import FixedState
from edgegen.bundle.manifest import (
    DRAFT_STATES,
    WANTED_STATES,
    CacheClass,
    GraphContract,
    KVLayer,
    KVSpec,
    Phase,
    RotaryTable,
    SharedLayer,
)
from edgegen_export.architecture.components.attention import Alibi, QueryScale
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.rope import Rope
from edgegen_export.graph.blocks import decoder_block, embedding, final_hidden, head, projected
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.kept_state import cache_names, past_name
from edgegen_export.graph.layer_graph import LayerGraph, ModelGraph
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.per_layer import of_layers, per_layer_inputs, table_rows
from edgegen_export.graph.step_inputs import CacheLengths, StepInputs, alibi_bias, distances, query_scale
from edgegen_export.graph.stream import Stream, added, pick

HIDDEN_STATES = "hidden_states"
"""The output of the hidden states."""

HIDDEN_SCALE = "hidden_states.scale"
"""The vector [e] that they are multiplied with."""


def kv_spec(config: DecoderConfig) -> KVSpec:
    """The float32 KV cache of ``config``: one class for full attention, and one per sliding window size; and the fixed
    states of layers that have no attention. Layers that have another's cache instead of their own keep nothing."""
    attentions = config.attentions
    names = {i: _class_name(attentions[i].window) for i in config.cached_layers}
    read = {i: layer.source for i, layer in enumerate(config.layers)}
    return KVSpec(
        dtype="float32",
        kind="in_place",
        classes={
            name: CacheClass(attentions[i].window, seqlens=f"seqlens_k.{name}", total=f"total_sequence_length.{name}")
            for i, name in names.items()
        },
        layers=tuple(
            KVLayer(
                name,
                attentions[i].kv_heads,
                attentions[i].head_dim,
                *cache_names(i),
                layer=i if len(names) < config.num_layers or config.sources else None,
                latent=attentions[i].latent,
            )
            for i, name in names.items()
        ),
        shared=tuple(
            SharedLayer(i, source, *cache_names(f"{i}.of_{source}" if i in names else i))
            for i, source in read.items()
            if source is not None
        ),
        fixed=tuple(
            FixedState(i, past_name(name, i), f"present_{name}.{i}", shape)
            for i, layer in enumerate(config.layers)
            for one in layer.components
            for name, shape in one.states(config.hidden_size).items()
        ),
    )


def _class_name(window: int | None) -> str:
    return f"window_{window}" if window else "full"


def rotary_tables(config: DecoderConfig) -> dict[Rope, RotaryTable]:
    """The tables of cosines and sines that the graphs take as inputs, by rope."""
    ropes = list(dict.fromkeys(one.rope for one in config.attentions.values() if one.rope))
    return {
        rope: RotaryTable(
            cos=f"rotary.{k}.cos",
            sin=f"rotary.{k}.sin",
            inverse_frequencies=tuple(rope.inverse_frequencies(config.max_positions).tolist()),
            scale=rope.attention_factor,
        )
        for k, rope in enumerate(ropes)
    }


def build_prefill(config: DecoderConfig, params: Parameters, kv: KVSpec) -> GraphBuilder:
    """ids [b, t] with past → logits [b, n, v] of the n positions per row that ``logits_indices`` names."""
    return _build("prefill", config, params, kv)


def build_decode(config: DecoderConfig, params: Parameters, kv: KVSpec) -> GraphBuilder:
    """ids [b, t] with past → logits [b, t, v] of every new position."""
    return _build("decode", config, params, kv)


def build_states(config: DecoderConfig, params: Parameters, kv: KVSpec) -> GraphBuilder:
    """The prefill graph with the residual stream [b, t, d] after each layer as extra outputs ``states.{i}``."""
    return _build("prefill", config, params, kv, with_states=True)


def build_with_hidden(
    config: DecoderConfig, params: Parameters, kv: KVSpec, *, scaled: bool, of_wanted: bool = False
) -> GraphBuilder:
    """The prefill graph with the hidden states [b, t, e] before the head as one more output, ``hidden_states``.

    ``scaled``: they are multiplied with the vector ``HIDDEN_SCALE``, which undoes what was folded into the final norm.
    ``of_wanted``: those of the positions with logits alone, ``WANTED_STATES`` [b, n, e]: layers that keep nothing run
    for no others.
    """
    hidden = "scaled" if scaled else "as they are"
    return _build("prefill", config, params, kv, hidden=hidden, of_wanted=of_wanted)


def build_with_fused(
    config: DecoderConfig, params: Parameters, kv: KVSpec, layers: Sequence[int], module: str
) -> GraphBuilder:
    """The prefill graph with ``DRAFT_STATES`` [b, t, d] as one more output: what the matrix ``module`` makes of the
    residual streams before ``layers``, side by side."""
    return _build("prefill", config, params, kv, fused=(layers, module))


def _build(
    phase: Phase,
    config: DecoderConfig,
    params: Parameters,
    kv: KVSpec,
    *,
    with_states: bool = False,
    hidden: Literal["scaled", "as they are"] | None = None,
    of_wanted: bool = False,
    fused: tuple[Sequence[int], str] | None = None,
) -> GraphBuilder:
    names, g = GraphContract(), GraphBuilder(phase)
    model = ModelGraph(g, params, config)
    ids = g.input(names.input_ids, "int64", ["batch", "tokens"])
    step = step_inputs(model, kv, ids)

    with g.scope("embed"):
        stream = embedding(model, ids, step.positions)
    with g.scope("per_layer"):
        parts = per_layer_inputs(model, table_rows(model, ids), stream)
    of_all = hidden is not None and not of_wanted
    skips = phase == "prefill" and not of_all and fused is None and not with_states
    of_tokens = step.alibi or step.distances  # and not of those alone that logits are wanted of
    early = config.cached_until if skips and not of_tokens else config.num_layers
    step = replace(step, per_layer=of_layers(model, parts, 0, early))
    before = dict[int, Value]()
    for layer in range(config.num_layers):
        if fused and layer in fused[0]:
            before[layer] = added(g, stream)
        if layer == early:  # later layers append nothing to a KV cache: they run for the tokens with logits only
            with g.scope("wanted"):
                wanted = g.input(names.logits_indices, "int64", ["batch", "wanted"])
                others = tuple(pick(g, x, wanted) for x in stream.others)
                stream = Stream(pick(g, added(g, stream), wanted), others=others)
                step = _picked(g, step, wanted)
                step = replace(step, per_layer=of_layers(model, parts, early, config.num_layers, wanted))
        stream = decoder_block(LayerGraph(g, params, config, layer, kv, step), stream)
        if with_states:
            state = g.op.Identity(added(g, stream))
            g.output(state_name(layer), state, "float32", ["batch", "tokens", config.hidden_size])
    if fused:
        with g.scope("draft"):
            states = model.linear(g.op.Concat(*(before[i] for i in fused[0]), axis=2), fused[1])
            g.output(DRAFT_STATES, states, "float32", ["batch", "tokens", config.hidden_size])
    with g.scope("head"):
        final = final_hidden(model, stream)
        if of_all:
            final = projected(model, final)
            final = _hidden_output(model, final, HIDDEN_STATES, scaled=hidden == "scaled")
        if phase == "prefill" and early == config.num_layers:
            final = pick(g, final, g.input(names.logits_indices, "int64", ["batch", "wanted"]))
        if not of_all:  # after the choice of positions, of which there are fewer
            final = projected(model, final)
        if of_wanted:
            final = _hidden_output(model, final, WANTED_STATES, scaled=hidden == "scaled")
        logits = head(model, final)
    tokens = "wanted" if phase == "prefill" else "tokens"
    g.output(names.logits, logits, "float32", ["batch", tokens, config.vocab_size])
    return g


def _picked(g: GraphBuilder, step: StepInputs, wanted: Value) -> StepInputs:
    """The inputs of layers that run for the ``wanted`` tokens, which are the last ones."""
    kept = {layer: (pick(g, key, wanted), pick(g, value, wanted)) for layer, (key, value) in step.kept.items()}
    scales = {scale: pick(g, value, wanted) for scale, value in step.query_scales.items()}
    return replace(step, positions=pick(g, step.positions, wanted), kept=kept, query_scales=scales)


def _hidden_output(model: ModelGraph, hidden: Value, name: str, *, scaled: bool) -> Value:
    """Declare the output ``name`` of ``hidden`` [b, t, e]; returns what the head is to take."""
    g, config = model.g, model.config
    result = g.op.Mul(hidden, model.weight(HIDDEN_SCALE)) if scaled else hidden
    tokens = "wanted" if name == WANTED_STATES else "tokens"
    g.output(name, result, "float32", ["batch", tokens, config.embedding_size or config.hidden_size])
    return hidden if scaled else Value(name)


def state_name(layer: int) -> str:
    return f"states.{layer}"


def step_inputs(model: ModelGraph, kv: KVSpec, ids: Value) -> StepInputs:
    """Declare the inputs that layers of the cache classes of ``kv`` share; ``ids`` has shape [b, t]."""
    g, config = model.g, model.config
    lengths = {
        name: CacheLengths(g.input(seqlens, "int32", ["batch"]), g.input(total, "int32", []))
        for name, (seqlens, total) in ((name, c.length_inputs) for name, c in kv.classes.items())
    }
    rotary = {
        rope: (
            g.input(table.cos, "float32", ["positions", rope.dim // 2]),
            g.input(table.sin, "float32", ["positions", rope.dim // 2]),
        )
        for rope, table in rotary_tables(config).items()
    }
    alibi = dict[Alibi | None, Value]()
    for own in dict.fromkeys(one.alibi for one in config.attentions.values() if one.alibi):
        with g.scope("alibi"):
            alibi[own] = alibi_bias(g, own, ids, next(iter(lengths.values())).total)
    positions = g.input(GraphContract().position_ids, "int64", ["batch", "tokens"])
    scales = dict[QueryScale, Value]()
    for scale in dict.fromkeys(one.query_scale for one in config.attentions.values() if one.query_scale):
        with g.scope("query_scale"):
            scales[scale] = query_scale(g, scale, positions, config.max_positions)
    apart = dict[tuple[str, int], Value]()
    for name, extent in dict.fromkeys((_class_name(one.window), one.farthest) for one in config.attentions.values()):
        if extent and name in lengths:
            with g.scope("distances"):
                apart[name, extent] = distances(g, ids, lengths[name], extent)
    return StepInputs(positions, lengths, rotary, alibi, kv.dtype, scales, distances=apart)
