"""build_prefill, build_decode: the two graphs of a decoder, from the same blocks."""

from edgegen.manifest import CacheClass, GraphContract, KVLayer, KVSpec, Phase
from edgegen_export.blocks import CacheLengths, embedding, linear, norm, sequential_block
from edgegen_export.config import DecoderConfig
from edgegen_export.graph import GraphBuilder, Value
from edgegen_export.parameters import Parameters

FULL = "full"


def kv_spec(config: DecoderConfig) -> KVSpec:
    """The cache of ``config``: one full-length class."""
    return KVSpec(
        dtype="float32",
        kind="in_place",
        classes={FULL: CacheClass(window=None, seqlens=f"seqlens_k.{FULL}", total=f"total_sequence_length.{FULL}")},
        layers=tuple(
            KVLayer(
                cache_class=FULL,
                kv_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                past_key=f"past_key_values.{i}.key",
                past_value=f"past_key_values.{i}.value",
                present_key=f"present.{i}.key",
                present_value=f"present.{i}.value",
            )
            for i in range(config.num_layers)
        ),
    )


def build_prefill(config: DecoderConfig, params: Parameters, kv: KVSpec, prefix: str = "") -> GraphBuilder:
    """ids [b, t] with past → logits [b, 1, v] of the one position per row that ``logits_indices`` names."""
    return _build("prefill", config, params, kv, prefix)


def build_decode(config: DecoderConfig, params: Parameters, kv: KVSpec, prefix: str = "") -> GraphBuilder:
    """ids [b, t] with past → logits [b, t, v] of every new position."""
    return _build("decode", config, params, kv, prefix)


def _build(phase: Phase, config: DecoderConfig, params: Parameters, kv: KVSpec, prefix: str) -> GraphBuilder:
    names = GraphContract()
    g = GraphBuilder(phase, prefix)
    ids = g.input(names.input_ids, "int64", ["batch", "tokens"])
    positions = g.input(names.position_ids, "int64", ["batch", "tokens"])
    lengths = {key: cache_lengths(g, kv_class) for key, kv_class in kv.classes.items()}

    with g.scope("embed"):
        stream = embedding(g, params, config, ids, positions)
    for layer, cache in enumerate(kv.layers):
        stream = sequential_block(g, params, config, layer, stream, cache, lengths[cache.cache_class])
    with g.scope("head"):
        hidden, _ = norm(g, params, config, stream, "final_norm")
        wanted = "tokens"
        if phase == "prefill":
            hidden, wanted = pick(g, hidden, g.input(names.logits_indices, "int64", ["batch"])), 1
        logits = linear(g, params.matrix("embed" if config.tied_head else "head"), hidden)
    g.output(names.logits, logits, "float32", ["batch", wanted, config.vocab_size])
    return g


def cache_lengths(g: GraphBuilder, kv_class: CacheClass) -> CacheLengths:
    seqlens, total = kv_class.length_inputs
    return CacheLengths(g.input(seqlens, "int32", ["batch"]), g.input(total, "int32", []))


def pick(g: GraphBuilder, hidden: Value, indices: Value) -> Value:
    """One position per row: hidden [b, t, d], indices [b] → [b, 1, d]."""
    per_row = g.op.Unsqueeze(indices, g.axes(1, 2))
    return g.op.GatherND(hidden, per_row, batch_dims=1)
