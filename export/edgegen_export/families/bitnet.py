"""BitNet b1.58: Llama with a norm before each output projection and a squared ReLU, trained with ternary matrices."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama


def read_bitnet(read: ConfigReader) -> DecoderConfig:
    """``BitNetConfig``. Its code has a norm of the hidden size for the output of all heads together."""
    config = read_llama(read)
    if config.attention.width != config.hidden_size:
        read.problem(
            f"head_dim: {config.attention.heads} heads of {config.attention.head_dim} are normalized together, and "
            f"hidden_size is {config.hidden_size}",
            "head_dim",
        )
    config = config.each_attention(lambda own: replace(own, sub_norm=config.norm))
    return config.each_mlp(lambda own: replace(own, sub_norm=config.norm))


BITNET = Architecture(
    model_types=("bitnet",),
    classes=("BitNetForCausalLM",),
    read=read_bitnet,
    tensors={
        **LLAMA_TENSORS,
        "layers.{i}.attn.sub_norm.weight": "layers.{i}.self_attn.attn_sub_norm.weight",
        "layers.{i}.mlp.sub_norm.weight": "layers.{i}.mlp.ffn_sub_norm.weight",
    },
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 128256,
        "hidden_size": 2560,
        "intermediate_size": 6912,
        "num_hidden_layers": 30,
        "num_attention_heads": 20,
        "num_key_value_heads": 5,
        "hidden_act": "relu2",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
    },
)
