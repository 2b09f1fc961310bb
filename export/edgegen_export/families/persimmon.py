"""Persimmon: partial RoPE, norms of q and k, QKV fused head by head, an MLP of squared ReLU."""

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, read_llama
from edgegen_export.reading.parts import layer_norm, with_qk_norm, without_gate
from edgegen_export.reading.tensor_names import megatron_layer, named, named_parts


def read_persimmon(read: ConfigReader) -> DecoderConfig:
    """``PersimmonConfig``."""
    norm = layer_norm(read.number("layer_norm_eps", least=0))
    config = without_gate(read_llama(read, norm=norm, partial=True))
    if config.attention.kv_heads != config.attention.heads:
        read.problem("num_key_value_heads: every head has a key of its own in this family")
    return with_qk_norm(config) if read.flag("qk_layernorm") else config


def tensors(config: DecoderConfig) -> TensorMap:
    return {
        "embed.weight": "embed_tokens.weight",
        **megatron_layer("layers.{i}", "self_attn", config.attention.heads),
        **named_parts("layers.{i}.attn", "layers.{i}.self_attn", {f"{x}_norm": f"{x}_layernorm" for x in "qk"}),
        **named("final_norm", "final_layernorm"),
        "head.weight": "lm_head.weight",
    }


PERSIMMON = Architecture(
    model_types=("persimmon",),
    classes=("PersimmonForCausalLM",),
    read=read_persimmon,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 262144,
        "intermediate_size": 16384,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "hidden_act": "relu2",
        "max_position_embeddings": 16384,
        "rope_theta": 25000.0,
        "layer_norm_eps": 1e-5,
        "qk_layernorm": True,
        "partial_rotary_factor": 0.5,
    },
)
