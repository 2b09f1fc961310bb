"""OLMoE: Llama with QK norm and a mixture of experts. FlexOlmo has the norms after its sublayers, as OLMo 2."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import QKNorm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.families.olmo import OLMO2_TENSORS
from edgegen_export.reading.experts import expert_tensors, with_experts
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM

_EXPERT = ("gate_proj", "up_proj", "down_proj")


def read_olmoe(read: ConfigReader) -> DecoderConfig:
    """``OlmoeConfig``."""
    config = read_llama(read)
    read.refuse("clip_qkv", (), "queries and keys clamped after their norms are not supported")
    config = with_qk_norm(config, QKNorm(config.norm, over="all"))
    return with_experts(read, config, "num_experts", normalized=read.flag("norm_topk_prob"))


def read_flex_olmo(read: ConfigReader) -> DecoderConfig:
    """``FlexOlmoConfig``."""
    return replace(read_olmoe(read), block="post_norm")


def tensors(config: DecoderConfig) -> TensorMap:
    return {**LLAMA_TENSORS, **QK_NORM, **expert_tensors(config, "layers.{i}.mlp", _EXPERT)}


def flex_olmo_tensors(config: DecoderConfig) -> TensorMap:
    return {**OLMO2_TENSORS, **expert_tensors(config, "layers.{i}.mlp", _EXPERT)}


OLMOE = Architecture(
    model_types=("olmoe",),
    classes=("OlmoeForCausalLM",),
    read=read_olmoe,
    tensors=tensors,
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
    tensors=flex_olmo_tensors,
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
