"""GLM-4: Llama with partial RoPE of adjacent pairs and fused gate and up; the 0414 models also normalize what attention
and MLP add."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Concatenated
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, read_llama

GLM_TENSORS = {
    **BESIDE_MLP,
    ("layers.{i}.mlp.gate.weight", "layers.{i}.mlp.up.weight"): Concatenated("layers.{i}.mlp.gate_up_proj.weight"),
    "layers.{i}.mlp.down.weight": "layers.{i}.mlp.down_proj.weight",
}
GLM_DEFAULTS = {
    **LLAMA_DEFAULTS,
    "vocab_size": 151552,
    "intermediate_size": 13696,
    "num_hidden_layers": 40,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1.5625e-7,
    "partial_rotary_factor": 0.5,
}


def read_glm(read: ConfigReader) -> DecoderConfig:
    """``GlmConfig``."""
    return read_llama(read, interleaved=True, partial=True)


def read_glm4(read: ConfigReader) -> DecoderConfig:
    """``Glm4Config``."""
    return replace(read_glm(read), block="sandwich")


GLM = Architecture(
    model_types=("glm",),
    classes=("GlmForCausalLM",),
    read=read_glm,
    tensors=GLM_TENSORS,
    defaults=GLM_DEFAULTS,
)

GLM4 = Architecture(
    model_types=("glm4",),
    classes=("Glm4ForCausalLM",),
    read=read_glm4,
    tensors={
        **GLM_TENSORS,
        "layers.{i}.attn_post_norm.weight": "layers.{i}.post_self_attn_layernorm.weight",
        "layers.{i}.mlp_post_norm.weight": "layers.{i}.post_mlp_layernorm.weight",
    },
    defaults=GLM_DEFAULTS,
)
