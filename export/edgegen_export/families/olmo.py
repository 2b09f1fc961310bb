"""OLMo: Llama with a LayerNorm without weights. OLMo 2: norms after attention and MLP, and QK norm."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.attention import QKNorm
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.parts import with_qk_norm
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
    return with_qk_norm(replace(config, block="post_norm"), QKNorm(config.norm, over="all"))


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
