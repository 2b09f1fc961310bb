"""Phi 1.5 and 2: parallel blocks with one LayerNorm, partial RoPE, head with a bias. Phi 3 and Phi-4-mini: Llama with
fused projections and LongRoPE."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Concatenated
from edgegen_export.families.llama import LLAMA_DEFAULTS, read_llama
from edgegen_export.reading.layer_types import read_window, sliding
from edgegen_export.reading.parts import layer_norm, with_qk_norm, without_gate
from edgegen_export.reading.tensor_names import named, named_parts


def read_phi(read: ConfigReader) -> DecoderConfig:
    """``PhiConfig``."""
    norm = layer_norm(read.number("layer_norm_eps", least=0))
    config = without_gate(replace(read_llama(read, norm=norm, partial=True), block="parallel"))
    return with_qk_norm(config) if read.flag("qk_layernorm") else config


def read_phi3(read: ConfigReader) -> DecoderConfig:
    """``Phi3Config``."""
    config = read_llama(read, partial=True)
    read.ignore("original_max_position_embeddings", "lm_head_bias")
    for key in ("full_attn_mod", "interpolate_factor"):  # of Phi-4-mini's own code
        read.refuse(key, (1,), "only 1 is known")
    return sliding(config, read_window(read), [True] * config.num_layers)


PHI = Architecture(
    model_types=("phi",),
    classes=("PhiForCausalLM",),
    read=read_phi,
    tensors={
        "embed.weight": "embed_tokens.weight",
        **named("layers.{i}.attn_norm", "layers.{i}.input_layernorm"),
        **named_parts("layers.{i}.attn", "layers.{i}.self_attn", {x: f"{x}_proj" for x in "qkv"}),
        **named("layers.{i}.attn.o", "layers.{i}.self_attn.dense"),
        **named_parts("layers.{i}.attn", "layers.{i}.self_attn", {f"{x}_norm": f"{x}_layernorm" for x in "qk"}),
        **named("layers.{i}.mlp.up", "layers.{i}.mlp.fc1"),
        **named("layers.{i}.mlp.down", "layers.{i}.mlp.fc2"),
        **named("final_norm", "final_layernorm"),
        **named("head", "lm_head"),
    },
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 51200,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
    },
)

PHI3 = Architecture(
    model_types=("phi3",),
    classes=("Phi3ForCausalLM",),
    read=read_phi3,
    tensors={
        "embed.weight": "embed_tokens.weight",
        "layers.{i}.attn_norm.weight": "layers.{i}.input_layernorm.weight",
        tuple(f"layers.{{i}}.attn.{x}.weight" for x in "qkv"): Concatenated("layers.{i}.self_attn.qkv_proj.weight"),
        "layers.{i}.attn.o.weight": "layers.{i}.self_attn.o_proj.weight",
        "layers.{i}.mlp_norm.weight": "layers.{i}.post_attention_layernorm.weight",
        ("layers.{i}.mlp.gate.weight", "layers.{i}.mlp.up.weight"): Concatenated("layers.{i}.mlp.gate_up_proj.weight"),
        "layers.{i}.mlp.down.weight": "layers.{i}.mlp.down_proj.weight",
        "final_norm.weight": "norm.weight",
        "head.weight": "lm_head.weight",
    },
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 32064,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
    },
)
