"""StableLM: Llama with LayerNorm and partial RoPE; some models have parallel blocks or QK norm per head."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Stacked
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, NORM_BIASES, read_llama
from edgegen_export.reading.parts import layer_norm, with_qk_norm


def read_stablelm(read: ConfigReader) -> DecoderConfig:
    """``StableLmConfig``."""
    eps = read.number("layer_norm_eps", least=0)
    config = read_llama(read, norm=layer_norm(eps), partial=True)
    read.ignore("use_qkv_bias")
    config = replace(config, block="parallel" if read.flag("use_parallel_residual") else "sequential")
    return with_qk_norm(config, "each_head", Norm("layer", eps)) if read.flag("qk_layernorm") else config


def tensors(config: DecoderConfig) -> TensorMap:
    return {
        **LLAMA_TENSORS,
        **NORM_BIASES,
        "layers.{i}.attn.q_norm.weight": Stacked(
            "layers.{i}.self_attn.q_layernorm.norms.{n}.weight", config.attention.heads
        ),
        "layers.{i}.attn.k_norm.weight": Stacked(
            "layers.{i}.self_attn.k_layernorm.norms.{n}.weight", config.attention.kv_heads
        ),
    }


STABLELM = Architecture(
    model_types=("stablelm",),
    classes=("StableLmForCausalLM",),
    read=read_stablelm,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 50304,
        "hidden_size": 2560,
        "intermediate_size": 6912,
        "num_key_value_heads": 32,
        "max_position_embeddings": 4096,
        "layer_norm_eps": 1e-5,
        "partial_rotary_factor": 0.25,
    },
)
