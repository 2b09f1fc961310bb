"""Llama: RMSNorm, RoPE, GQA and a gated MLP; many families are variants of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.mlp import MLP, Activation
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.parts import ACTIVATIONS
from edgegen_export.reading.rope import YARN, read_rope
from edgegen_export.reading.tensor_names import GATED, named_parts

LLAMA_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}

LLAMA3_SCALING: Mapping[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
"""How Llama 3.1 scales its rotations."""

LLAMA_TENSORS = {
    "embed.weight": "embed_tokens.weight",
    "layers.{i}.attn_norm.weight": "layers.{i}.input_layernorm.weight",
    **named_parts("layers.{i}.attn", "layers.{i}.self_attn", {x: f"{x}_proj" for x in "qkvo"}),
    "layers.{i}.mlp_norm.weight": "layers.{i}.post_attention_layernorm.weight",
    **named_parts("layers.{i}.mlp", "layers.{i}.mlp", GATED),
    "final_norm.weight": "norm.weight",
    "head.weight": "lm_head.weight",
}
NORM_BIASES: TensorMap = {
    "layers.{i}.attn_norm.bias": "layers.{i}.input_layernorm.bias",
    "layers.{i}.mlp_norm.bias": "layers.{i}.post_attention_layernorm.bias",
    "final_norm.bias": "norm.bias",
}
"""Of models like it with LayerNorm."""
BESIDE_MLP: TensorMap = {name: tensor for name, tensor in LLAMA_TENSORS.items() if ".mlp." not in name}
DENSE_MLP: TensorMap = {name: tensor for name, tensor in LLAMA_TENSORS.items() if ".mlp." in name}


def read_llama(
    read: ConfigReader,
    *,
    norm: Norm | None = None,
    activation_key: str = "hidden_act",
    activations: Mapping[str, Activation] = ACTIVATIONS,
    interleaved: bool = False,
    partial: bool = False,
    proportional: bool = False,
    yarn: Mapping[str, float] = YARN,
    inner_key: str = "intermediate_size",
) -> DecoderConfig:
    """``LlamaConfig`` and configs like it. ``norm``: a norm to use instead of RMSNorm; ``partial``,
    ``proportional``, ``yarn``: as in :func:`read_rope`; ``inner_key``: the key of the MLP's width."""
    attention = read_heads(read, size_key="head_dim", kv_key="num_key_value_heads")
    rope = read_rope(
        read,
        attention.head_dim,
        read.positive("max_position_embeddings"),
        interleaved=interleaved,
        partial=partial,
        proportional=proportional,
        yarn=yarn,
    )
    # The checkpoint's tensors show whether a bias exists.
    read.ignore("attention_bias", "mlp_bias")
    # SmolLM 2's trainer wrote these.
    read.ignore("is_llama_config")
    read.refuse("rope_interleaved", (False,), "adjacent pairs are rotated in other families only")
    mlp = MLP(read.positive(inner_key), read.choice(activation_key, activations, "silu"), gated=True)
    layers = [Layer(replace(attention, rope=rope), mlp)] * read.count("num_hidden_layers")
    return read_decoder(read, layers, norm or Norm("rms", read.number("rms_norm_eps", least=0)), rope)


LLAMA = Architecture(
    model_types=("llama",),
    classes=("LlamaForCausalLM",),
    read=read_llama,
    tensors=LLAMA_TENSORS,
    defaults=LLAMA_DEFAULTS,
)
