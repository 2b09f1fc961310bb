"""Inkling 2: Inkling with residuals that attend to blocks of layers, gates and sinks of queries, dynamic convolutions;
and its kind whose middle layers run several times, each time with messages of the last one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Gate
from edgegen_export.architecture.components.block_residual import BlockResidual
from edgegen_export.architecture.components.experts import Experts, Routing, SwiGLU
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.components.pass_start import HEARERS, PassMessages
from edgegen_export.architecture.components.relative_attention import Limits, RelativeAttention
from edgegen_export.architecture.components.sublayer_convs import SublayerConvs
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.architecture.tensor_layouts import Interleaved, InTurns, Leading, Nested, Stacked
from edgegen_export.families.inkling import (
    INKLING_ALIASES,
    read_conv_width,
    read_inkling_layer_types,
    read_inkling_model,
)
from edgegen_export.reading.experts import check_expert_sizes, limit_apart, read_counts
from edgegen_export.reading.passes import of_layer


def read_inkling2(read: ConfigReader) -> DecoderConfig:
    """``Inkling2TextConfig``."""
    config = _read_layers(read)
    _limit_experts(read, config, config.num_layers)
    return _over_blocks(config, _per_block(read), Loop(0, 0, 1, 1))


def read_inkling2_loop(read: ConfigReader) -> DecoderConfig:
    """``Inkling2LoopTextConfig``."""
    config, per_block = _read_layers(read), _per_block(read)
    loop = _read_loop(read, config.num_layers, per_block)
    _limit_experts(read, config, len(loop.order(config.num_layers)))
    return _over_blocks(config, per_block, loop)


@dataclass(frozen=True, slots=True)
class Loop:
    """The layers from ``start`` to ``end``, which run ``passes`` times; ``rank``: of their messages' gates."""

    start: int
    end: int
    passes: int
    rank: int

    def order(self, layers: int) -> Sequence[int]:
        """The layers as they run."""
        return [*range(self.start), *[*range(self.start, self.end)] * self.passes, *range(self.end, layers)]


def _read_loop(read: ConfigReader, layers: int, per_block: int) -> Loop:
    names = ("loop_layer_index_start", "loop_layer_index_end", "loop_num_passes", "loop_gate_rank")
    said = dict(zip(("core_start", "core_end", "num_passes", "gate_rank"), names, strict=True))
    inner = read.inner("loop_config")
    values = {name: read.count(name) for name in names[:3]} | {names[3]: read.positive(names[3])}
    for key, name in said.items():
        if inner and (value := inner.optional(key, int)) is not None:
            read.agree(name, value, f"loop_config.{key}")
            values[name] = value
    start, end, passes, rank = (values[name] for name in names)
    if not 0 < start < end <= layers or start % per_block or end % per_block or passes < 1 or rank < 1:
        read.problem(
            f"loop_layer_index_start = {start}, loop_layer_index_end = {end}: a range within the "
            f"{layers} layers, of multiples of n_layers_per_attn_res_block = {per_block}, expected"
        )
        return Loop(0, 0, 1, 1)
    return Loop(start, end, passes, rank)


def _limit_experts(read: ConfigReader, config: DecoderConfig, layers: int) -> None:
    """Refuse more experts than a graph can hold where ``layers`` run for a token."""
    assert config.experts, "all layers have experts"
    limit_apart(read, "n_routed_experts", config.experts.count, layers)


def _per_block(read: ConfigReader) -> int:
    return read.count("n_layers_per_attn_res_block")


def _read_layers(read: ConfigReader) -> DecoderConfig:
    """The layers as they are stored, without their residuals."""
    norm = Norm("rms", read.number("rms_norm_eps", least=0))
    limits = Limits(read.above_zero("qk_l2_clip_threshold"), read.above_zero("rel_l2_clip_threshold"))

    def attention(own: RelativeAttention) -> RelativeAttention:
        own = replace(own, limits=limits, gate=Gate("channel"), value_norm=norm, sinks="query", even=True)
        return replace(own, dynamic=own.window is None, apart=own.window is None)

    layers = read.count("num_hidden_layers")
    listed = read_inkling_layer_types(read, layers)
    sliding = every(6, False, True, layers) if listed is None else listed
    config = read_inkling_model(read, norm, sliding, attention)
    read.ignore("hidden_act", "number_of_conv_states")  # experts have an activation of their own
    convs, experts = SublayerConvs(read_conv_width(read), even=True), _experts(read, config.hidden_size)
    return replace(
        config,
        layers=tuple(replace(own, mlp=experts, extras=(convs,)) for own in config.layers),
        logit_softcap=read.above_zero("final_logit_softcapping"),
    )


def _experts(read: ConfigReader, hidden: int) -> Experts:
    count, per_token = read_counts(read, "n_routed_experts")
    width = read.positive("moe_intermediate_size")
    check_expert_sizes(read, {"hidden_size": hidden, "moe_intermediate_size": width})
    read.refuse("scoring_func", ("sigmoid",), "only sigmoids weigh experts")
    softcaps = read.above_zero("mlp_gate_softcap"), read.above_zero("mlp_up_softcap")
    routing = Routing("sigmoid", choice_bias=True, epsilon=1e-20, scaling=read.above_zero("route_scale"))
    return Experts(count, per_token, True, width, glu=SwiGLU(softcaps=softcaps), routing=routing)


def _over_blocks(config: DecoderConfig, per_block: int, loop: Loop) -> DecoderConfig:
    """``config`` with its layers as they run, and with what they attend to of blocks and of earlier passes."""
    layers, first = list[Layer](), dict[int, int]()
    kept, blocks = 0, tuple[int, ...]()  # number of kept streams, and those that are sums of blocks so far
    before, start = blocks, 0  # those before the loop, and the stream that it starts with, after its sum
    heard = blocks
    for at, number in enumerate(loop.order(config.num_layers)):
        own, behind = config.layers[number], kept
        looped, again = loop.start <= number < loop.end, number in first
        restarts, keeps = (
            number == loop.start and again,
            number == loop.start and looped and loop.passes > 1 and not again,
        )
        if restarts:
            heard, blocks, kept = (*blocks[len(before) + 1 :], kept), before, kept + 1
        elif keeps:
            before, start = blocks, kept + 1
        begins = None if number % per_block else start - 1 if restarts else kept
        whole = own.attention is not None and own.attention.window is None
        residual = BlockResidual(0 if number == 0 else 3 if whole else 1, blocks, behind, begins)
        if begins is not None:
            blocks, kept = (*blocks, begins), max(kept, begins + 1) + keeps
        messages = PassMessages(loop.rank, heard if again else (), start if restarts else None, keeps)
        layers.append(
            replace(
                _apart(own) if looped else own,
                extras=(*own.extras, residual, *([messages] if looped else [])),
                block="over_blocks_apart" if whole else "over_blocks",
                repeats=first[number] if again else None,
            )
        )
        first.setdefault(number, at)
    return replace(config, layers=tuple(layers))


def _apart(own: Layer) -> Layer:
    """A layer whose queries, keys and values each take a message of their own in some passes."""
    assert isinstance(own.attention, RelativeAttention), "all layers have it"
    return replace(own, attention=replace(own.attention, apart=True))


_PROJECTED = {"q": "wq_du", "k": "wk_dv", "v": "wv_dv", "relative": "wr_du", "o": "wo_ud"}
_GATES = {"gate": "gate_attn", "sink": "attn_sink_proj"}
_EVERY: TensorMap = {
    **{f"layers.{{i}}.attn.{x}.weight": f"layers.{{i}}.attn.{y}.weight" for x, y in (_PROJECTED | _GATES).items()},
    "layers.{i}.attn.q_gain": "layers.{i}.attn.q_l2_clip.scale",
    "layers.{i}.attn.relative_gain": "layers.{i}.attn.rel_l2_clip.scale",
    "layers.{i}.attn.profiles": "layers.{i}.attn.rel_logits_proj.proj",
    **{f"layers.{{i}}.{x}_conv.weight": f"layers.{{i}}.{x}_sconv.weight" for x in ("attn", "mlp")},
    "layers.{i}.mlp_norm.weight": "layers.{i}.mlp_norm.weight",
    "layers.{i}.mlp.router.weight": "layers.{i}.mlp.gate.weight",
    "layers.{i}.mlp.router.choice_bias": "layers.{i}.mlp.gate.bias",
}
_WINDOWED: TensorMap = {
    "layers.{i}.attn_norm.weight": "layers.{i}.attn_norm.weight",
    **{f"layers.{{i}}.attn.{x}_conv.weight": f"layers.{{i}}.attn.{x}_sconv.weight" for x in "kv"},
}
_WHOLE: TensorMap = {
    **{f"layers.{{i}}.{x}_norm.weight": f"layers.{{i}}.{x[0]}_input_norm.weight" for x in ("query", "key", "value")},
    **{f"layers.{{i}}.attn.{x}_conv.weight": f"layers.{{i}}.attn.{x}_sconv.static_w" for x in "kv"},
    **{f"layers.{{i}}.attn.{x}_taps.weight": f"layers.{{i}}.attn.{x}_sconv.weight_proj" for x in "kv"},
}
_MESSAGES: TensorMap = {
    f"layers.{{i}}.messages.{x}.{matrix}.weight": f"layers.{{i}}.controllers.{y}.{matrix}_weight"
    for x, y in zip(HEARERS, ("attn", "k", "v", "mlp"), strict=True)
    for matrix in ("down", "forget", "gain")
}


def tensors(config: DecoderConfig) -> TensorMap:
    """As published files have them, and transformers writes them."""
    assert config.experts, "all layers have experts"
    count = config.experts.count
    experts: TensorMap = {
        ("layers.{i}.mlp.gate.weight", "layers.{i}.mlp.up.weight"): InTurns("layers.{i}.mlp.experts.w13_weight", count),
        "layers.{i}.mlp.down.weight": Interleaved("layers.{i}.mlp.experts.w2_weight", count, stacked=True),
    }
    found: TensorMap = {
        "embed.weight": Leading("embed.weight"),
        "embed_norm.weight": "embed_norm.weight",
        "final_query.weight": Stacked("attn_res.output_query", 1),
        "final_norm.weight": "norm.weight",
        "head.weight": Leading("unembed.weight"),
    }
    listening = tuple[str, ...]()
    for number, i in enumerate(config.passes):
        layer = config.layers[i]
        residual, messages = layer.first(BlockResidual), layer.first(PassMessages)
        assert residual, "all layers have it"
        whole = config.block_of(i) == "over_blocks_apart"
        own = {**_EVERY, **experts, **(_WHOLE if whole else _WINDOWED), **(_MESSAGES if messages else {})}
        found = {**found, **of_layer(own, i, f"layers.{number}")}
        found = {**found, f"layers.{i}.mlp_query": Stacked(f"attn_res.mlp_queries.{number}", 1)}
        queries = f"attn_res.attn_queries.{number - 1}"
        if residual.queries:
            found = {**found, f"layers.{i}.attn_queries": queries if whole else Stacked(queries, 1)}
        if messages:
            listening = (*listening, f"layers.{i}.messages.queries")
    if not listening:
        return found
    return {**found, listening: Nested("middle_cycle_cross_pass_{n}queries", ("", "kv_"))}


_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 201024,
    "unpadded_vocab_size": 200058,
    "hidden_size": 4608,
    "num_hidden_layers": 48,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "swa_num_attention_heads": 48,
    "swa_num_key_value_heads": 8,
    "swa_head_dim": 128,
    "sliding_window_size": 1024,
    "d_rel": 16,
    "rel_extent": 1024,
    "log_scaling_n_floor": 128000,
    "log_scaling_alpha": 0.1,
    "max_position_embeddings": 1048576,
    "rms_norm_eps": 1e-6,
    "conv_kernel_size": 4,
    "moe_intermediate_size": 2304,
    "n_routed_experts": 384,
    "num_experts_per_tok": 8,
    "route_scale": 8.0,
    "qk_l2_clip_threshold": 22.627416997969522,
    "rel_l2_clip_threshold": 8.0,
    "n_layers_per_attn_res_block": 6,
    "mlp_gate_softcap": 4.0,
    "mlp_up_softcap": 25.0,
    "final_logit_softcapping": 30.0,
}
INKLING2 = Architecture(
    model_types=("inkling2_text",),
    classes=("Inkling2ForCausalLM",),
    read=read_inkling2,
    tensors=tensors,
    defaults=_DEFAULTS,
    prefixes=("", "model.", "model.llm."),
    aliases={**INKLING_ALIASES, "intermediate_size": "moe_intermediate_size", "routed_scaling_factor": "route_scale"},
)

INKLING2_LOOP = replace(
    INKLING2,
    model_types=("inkling2_loop_text",),
    classes=("Inkling2LoopForCausalLM",),
    read=read_inkling2_loop,
    defaults={
        **INKLING2.defaults,
        "hidden_size": 2304,
        "num_hidden_layers": 24,
        "num_attention_heads": 24,
        "swa_num_attention_heads": 24,
        "log_scaling_n_floor": 8192,
        "moe_intermediate_size": 1152,
        "n_routed_experts": 128,
        "loop_layer_index_start": 6,
        "loop_layer_index_end": 18,
        "loop_num_passes": 3,
        "loop_gate_rank": 64,
    },
)
