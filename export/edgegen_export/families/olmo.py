"""OLMo: Llama with a LayerNorm without weights. OLMo 2: norms after attention and MLP, and QK norm. OLMo 3: OLMo 2 with
a sliding window in three of four layers, which take no part in RoPE scaling. OLMoE: Llama with QK norm and a mixture of
experts. FlexOlmo has the norms after its sublayers, as OLMo 2."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.experts import expert_tensors, with_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, rotating, sliding
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.rope import read_rope
from edgegen_export.reading.tensor_names import QK_NORM

OLMO_DEFAULTS = {**LLAMA_DEFAULTS, "vocab_size": 50304}


def read_olmo(read: ConfigReader) -> DecoderConfig:
    """``OlmoConfig``."""
    config = read_llama(read, norm=Norm("layer", 1e-5, weight=False))
    limit = read.limit("clip_qkv")
    return config.each_attention(lambda own: replace(own, clip=limit))


def read_olmo2(read: ConfigReader) -> DecoderConfig:
    """``Olmo2Config``."""
    config = read_llama(read)
    return with_qk_norm(replace(config, block="post_norm"), "all")


OLMO2_TENSORS = {
    **LLAMA_TENSORS,
    **QK_NORM,
    "layers.{i}.attn_post_norm.weight": "layers.{i}.post_attention_layernorm.weight",
    "layers.{i}.mlp_post_norm.weight": "layers.{i}.post_feedforward_layernorm.weight",
}

OLMO = Architecture(
    model_types=("olmo",),
    classes=("OlmoForCausalLM",),
    read=read_olmo,
    tensors={ours: theirs for ours, theirs in LLAMA_TENSORS.items() if "norm" not in ours},
    defaults=OLMO_DEFAULTS,
)

OLMO2 = Architecture(
    model_types=("olmo2",),
    classes=("Olmo2ForCausalLM",),
    read=read_olmo2,
    tensors=OLMO2_TENSORS,
    defaults={**OLMO_DEFAULTS, "rms_norm_eps": 1e-5},
)


def read_olmo3(read: ConfigReader) -> DecoderConfig:
    """``Olmo3Config``."""
    config = read_olmo2(read)
    windowed = read_layer_types(read, config.num_layers, every(4, False, True, config.num_layers))
    positions = read.positive("max_position_embeddings")
    local = read_rope(read, config.attention.head_dim, positions, layer_type="sliding_attention")
    return sliding(rotating(config, local, windowed), read_window(read), windowed)


OLMO3 = Architecture(
    model_types=("olmo3",),
    classes=("Olmo3ForCausalLM",),
    read=read_olmo3,
    tensors=OLMO2_TENSORS,
    defaults={**OLMO2.defaults, "sliding_window": 4096},
)


_EXPERT = ("gate_proj", "up_proj", "down_proj")


def read_olmoe(read: ConfigReader) -> DecoderConfig:
    """``OlmoeConfig``."""
    config = read_llama(read)
    read.refuse("clip_qkv", (), "queries and keys clamped after their norms are not supported")
    config = with_qk_norm(config, "all")
    return with_experts(read, config, "num_experts", normalized=read.flag("norm_topk_prob"))


def read_flex_olmo(read: ConfigReader) -> DecoderConfig:
    """``FlexOlmoConfig``."""
    return replace(read_olmoe(read), block="post_norm")


def _olmoe_tensors(config: DecoderConfig) -> TensorMap:
    return {**LLAMA_TENSORS, **QK_NORM, **expert_tensors(config, "layers.{i}.mlp", _EXPERT)}


def _flex_olmo_tensors(config: DecoderConfig) -> TensorMap:
    return {**OLMO2_TENSORS, **expert_tensors(config, "layers.{i}.mlp", _EXPERT)}


OLMOE = Architecture(
    model_types=("olmoe",),
    classes=("OlmoeForCausalLM",),
    read=read_olmoe,
    tensors=_olmoe_tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 50304,
        "hidden_size": 2048,
        "intermediate_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "num_experts": 64,
        "num_experts_per_tok": 8,
    },
)


FLEX_OLMO = Architecture(
    model_types=("flex_olmo",),
    classes=("FlexOlmoForCausalLM",),
    read=read_flex_olmo,
    tensors=_flex_olmo_tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 100352,
        "max_position_embeddings": 4096,
        "rope_theta": 500000.0,
        "num_experts": 7,
        "num_experts_per_tok": 5,
    },
    aliases={"num_local_experts": "num_experts"},
)
