"""The prefill graph and the decode graph of a decoder, built from the same blocks."""

from collections.abc import Mapping

from edgegen.bundle.manifest import CacheClass, GraphContract, KVDtype, KVLayer, KVSpec, Phase, RotaryTable
from edgegen_export.architecture.config import Alibi, DecoderConfig
from edgegen_export.architecture.rope import Rope
from edgegen_export.graph.blocks import (
    CacheLengths,
    StepInputs,
    added,
    alibi_bias,
    decoder_block,
    embedding,
    final_hidden,
    head,
)
from edgegen_export.graph.builder import NONE, GraphBuilder, Value
from edgegen_export.graph.parameters import Parameters


def kv_spec(config: DecoderConfig) -> KVSpec:
    """The float32 KV cache of ``config``: one class for full attention, and one per sliding window size."""
    names = [_class_name(layer.window) for layer in config.layers]
    return KVSpec(
        dtype="float32",
        kind="in_place",
        classes={
            name: CacheClass(layer.window, seqlens=f"seqlens_k.{name}", total=f"total_sequence_length.{name}")
            for name, layer in zip(names, config.layers, strict=True)
        },
        layers=tuple(
            KVLayer(
                cache_class=name,
                kv_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                past_key=f"past_key_values.{i}.key",
                past_value=f"past_key_values.{i}.value",
                present_key=f"present.{i}.key",
                present_value=f"present.{i}.value",
            )
            for i, name in enumerate(names)
        ),
    )


def _class_name(window: int | None) -> str:
    return f"window_{window}" if window else "full"


def rotary_tables(config: DecoderConfig) -> dict[Rope, RotaryTable]:
    """The tables of cosines and sines that the graphs take as inputs, by rope."""
    ropes = list(dict.fromkeys(layer.rope for layer in config.layers if layer.rope))
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


def _build(
    phase: Phase, config: DecoderConfig, params: Parameters, kv: KVSpec, *, with_states: bool = False
) -> GraphBuilder:
    names = GraphContract()
    g = GraphBuilder(phase)
    ids = g.input(names.input_ids, "int64", ["batch", "tokens"])
    step = step_inputs(g, config, kv.dtype, kv.classes, rotary_tables(config), ids)

    with g.scope("embed"):
        stream = embedding(g, params, config, ids, step.positions)
    for layer, cache in enumerate(kv.layers):
        stream = decoder_block(g, params, config, layer, stream, cache, step)
        if with_states:
            state = g.op.Identity(added(g, stream))
            g.output(state_name(layer), state, "float32", ["batch", "tokens", config.hidden_size])
    with g.scope("head"):
        hidden = final_hidden(g, params, config, stream)
        wanted = "tokens"
        if phase == "prefill":
            wanted = "wanted"
            hidden = pick(g, hidden, g.input(names.logits_indices, "int64", ["batch", wanted]))
        logits = head(g, params, config, hidden)
    g.output(names.logits, logits, "float32", ["batch", wanted, config.vocab_size])
    return g


def state_name(layer: int) -> str:
    return f"states.{layer}"


def step_inputs(
    g: GraphBuilder,
    config: DecoderConfig,
    kv_dtype: KVDtype,
    classes: Mapping[str, CacheClass],
    tables: Mapping[Rope, RotaryTable],
    ids: Value,
) -> StepInputs:
    """Declare the inputs that layers of these cache classes and ropes share; ``ids`` has shape [b, t]."""
    lengths = {
        name: CacheLengths(g.input(seqlens, "int32", ["batch"]), g.input(total, "int32", []))
        for name, (seqlens, total) in ((name, c.length_inputs) for name, c in classes.items())
    }
    rotary = {
        rope: (
            g.input(table.cos, "float32", ["positions", rope.dim // 2]),
            g.input(table.sin, "float32", ["positions", rope.dim // 2]),
        )
        for rope, table in tables.items()
    }
    alibi = NONE
    if isinstance(config.positions, Alibi):
        with g.scope("alibi"):
            alibi = alibi_bias(g, config.positions, ids, next(iter(lengths.values())).total)
    positions = g.input(GraphContract().position_ids, "int64", ["batch", "tokens"])
    return StepInputs(positions, lengths, rotary, alibi, kv_dtype)


def pick(g: GraphBuilder, hidden: Value, indices: Value) -> Value:
    """Selected positions of each row: hidden [b, t, d], indices [b, n] → [b, n, d]."""
    return g.op.GatherND(hidden, g.op.Unsqueeze(indices, g.axes(2)), batch_dims=1)
