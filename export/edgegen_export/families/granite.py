"""Granite: Llama with multipliers for embedding, attention, residuals and logits. Granite SWA: with sliding windows,
attention sinks, and a rotation of its own for each layer, or none. Granite MoE: with a mixture of experts, in some
models also a shared one, or sliding windows and sinks.

Granite 4: with Mamba-2 mixers instead of attention in most layers, a shared MLP, and in some models experts. Models
without mixers or experts are Granite with other names.
"""

from dataclasses import replace
from functools import partial
from typing import cast

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Concatenated
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.families.mamba2 import MIXER_DEFAULTS, mixer_tensors, recurrent_layers, with_mixers
from edgegen_export.files.fields import is_a
from edgegen_export.reading.experts import stacked_expert_tensors, with_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, rotating, sliding
from edgegen_export.reading.parts import with_scale


def read_granite(
    read: ConfigReader, *, inner_key: str = "intermediate_size", scaled: bool = True, partial: bool = False
) -> DecoderConfig:
    """``GraniteConfig``. ``inner_key``: the key of the MLP's width; ``scaled``: the attention's scale is in the config,
    as it is in Granite's; ``partial``: a part of each head may rotate."""
    config = read_llama(read, inner_key=inner_key, partial=partial)
    scale = read.above_zero("attention_multiplier") if scaled else config.attention.head_dim**-0.5
    divisor, embedding = read.number("logits_scaling"), read.number("embedding_multiplier")
    for key, value in (("logits_scaling", divisor), ("embedding_multiplier", embedding)):
        if not value:
            read.problem(f"{key}: must not be zero")
    return replace(
        with_scale(config, scale),
        embedding_multiplier=embedding,
        residual_multiplier=read.number("residual_multiplier"),
        logit_multiplier=1 / (divisor or 1.0),
    )


GRANITE = Architecture(
    model_types=("granite",),
    classes=("GraniteForCausalLM",),
    read=read_granite,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "embedding_multiplier": 1.0,
        "logits_scaling": 1.0,
        "residual_multiplier": 1.0,
        "attention_multiplier": 1.0,
    },
)


def read_granite_swa(read: ConfigReader) -> DecoderConfig:
    """``GraniteSWAConfig``: all layers but every fourth, from the first on, have a sliding window."""
    config = read_granite(read).each_attention(lambda own: replace(own, sinks="head"))
    which = read_layer_types(read, config.num_layers, [i % 4 != 0 for i in range(config.num_layers)])
    config = sliding(config, read_window(read), which)
    thetas = cast("list[object] | None", read.optional("layer_rope_theta", list))
    return config if thetas is None else _rotated(read, config, thetas)


def _rotated(read: ConfigReader, config: DecoderConfig, thetas: list[object]) -> DecoderConfig:
    """``config`` with these thetas of its layers; 0 stands for no rotation."""
    numbers = [theta for theta in thetas if is_a(theta, float) and (theta == 0 or theta > 1)]
    if len(numbers) != config.num_layers or len(thetas) != config.num_layers:
        read.problem(
            f"layer_rope_theta: {config.num_layers} numbers expected, each 0 or greater than 1, found {thetas!r}"
        )
        return config
    for i, theta in enumerate(numbers):
        config = config.each_attention(partial(_turned, theta=float(theta)), [i])
    return config


def _turned(own: Attention, theta: float) -> Attention:
    return replace(own, rope=replace(own.rope, theta=theta) if own.rope and theta else None)


GRANITE_SWA = Architecture(
    model_types=("granite_swa",),
    classes=("GraniteSWAForCausalLM",),
    read=read_granite_swa,
    tensors={**LLAMA_TENSORS, "layers.{i}.attn.sinks": "layers.{i}.self_attn.sinks"},
    defaults={
        **GRANITE.defaults,
        "vocab_size": 100352,
        "hidden_size": 2560,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "sliding_window": 128,
        "tie_word_embeddings": True,
    },
)


def read_granitemoe(read: ConfigReader) -> DecoderConfig:
    """``GraniteMoeConfig``."""
    read.refuse("position_embedding_type", ("rope",), "only rotary positions are supported")
    return with_experts(read, read_granite(read), "num_local_experts", normalized=True)


def read_granitemoe_swa(read: ConfigReader) -> DecoderConfig:
    """``GraniteMoeSWAConfig``."""
    return _with_shared(read, with_experts(read, read_granite_swa(read), "num_local_experts", normalized=True))


def _with_shared(read: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """``config`` with one more expert that every token uses, but for a width of 0."""
    key = "shared_intermediate_size"
    width = read.positive(key) if read.get(key, int, 0) else 0
    return config.each_experts(lambda own: replace(own, shared_width=width))


_MOE = "layers.{i}.block_sparse_moe"


def _moe_tensors(config: DecoderConfig) -> TensorMap:
    names = {"router": "router.layer.weight", "gate_up": "input_linear.weight", "down": "output_linear.weight"}
    return {**BESIDE_MLP, **stacked_expert_tensors(config, _MOE, **names), **SHARED}


def _moe_swa_tensors(config: DecoderConfig) -> TensorMap:
    sinks = {"layers.{i}.attn.sinks": "layers.{i}.self_attn.sinks"}
    return {**BESIDE_MLP, **stacked_expert_tensors(config, _MOE, router="router.weight"), **SHARED, **sinks}


SHARED: TensorMap = {
    ("layers.{i}.shared.gate.weight", "layers.{i}.shared.up.weight"): Concatenated(
        "layers.{i}.shared_mlp.input_linear.weight"
    ),
    "layers.{i}.shared.down.weight": "layers.{i}.shared_mlp.output_linear.weight",
}

GRANITE_MOE = Architecture(
    model_types=("granitemoe",),
    classes=("GraniteMoeForCausalLM",),
    read=read_granitemoe,
    tensors=_moe_tensors,
    defaults={**GRANITE.defaults, "num_local_experts": 8, "num_experts_per_tok": 2},
)
GRANITE_MOE_SHARED = Architecture(
    model_types=("granitemoeshared",),
    classes=("GraniteMoeSharedForCausalLM",),
    read=lambda read: _with_shared(read, read_granitemoe(read)),
    tensors=_moe_tensors,
    defaults={**GRANITE_MOE.defaults, "shared_intermediate_size": 0},
)
GRANITE_MOE_SWA = Architecture(
    model_types=("granitemoe_swa",),
    classes=("GraniteMoeSWAForCausalLM",),
    read=read_granitemoe_swa,
    tensors=_moe_swa_tensors,
    defaults={**GRANITE_MOE_SHARED.defaults, "sliding_window": GRANITE_SWA.defaults["sliding_window"]},
)


def read_granite4(read: ConfigReader) -> DecoderConfig:
    """``GraniteMoeHybridConfig``."""
    config = read_granite(read, inner_key="shared_intermediate_size", partial=True)  # Bamba's in GGUF files
    read.refuse("normalization_function", ("rmsnorm",), "only RMSNorm is known")
    read.ignore("init_method")
    rotates = read.choice("position_embedding_type", {"rope": True, "nope": False}, "nope")
    config = config if rotates else rotating(config, None, [True] * config.num_layers)
    recurrent = recurrent_layers(read, config.num_layers)
    return with_mixers(read, _with_experts(read, config), recurrent, "layer_types")


def _with_experts(read: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """``config`` with experts beside the shared MLP, unless there are none."""
    if read.get("num_local_experts", int, 0) == 0:
        read.ignore("num_experts_per_tok", "output_router_logits", "router_aux_loss_coef")
        read.ignore("intermediate_size")  # of the experts
        return config
    shared, width = config.mlp.width, read.positive("intermediate_size")
    config = with_experts(read, config, "num_local_experts", normalized=True, width=width)
    return config.each_experts(lambda own: replace(own, shared_width=shared))


def _granite4_tensors(config: DecoderConfig) -> TensorMap:
    mixers = mixer_tensors("layers.{i}.mamba")
    if config.experts:
        return {**_moe_tensors(config), **mixers}
    return {
        **BESIDE_MLP,
        ("layers.{i}.mlp.gate.weight", "layers.{i}.mlp.up.weight"): Concatenated(
            "layers.{i}.shared_mlp.input_linear.weight"
        ),
        "layers.{i}.mlp.down.weight": "layers.{i}.shared_mlp.output_linear.weight",
        **mixers,
    }


GRANITE4 = Architecture(
    model_types=("granitemoehybrid",),
    classes=("GraniteMoeHybridForCausalLM",),
    read=read_granite4,
    tensors=_granite4_tensors,
    defaults={
        **GRANITE_MOE.defaults,
        "shared_intermediate_size": 1024,
        **MIXER_DEFAULTS,
    },
)
