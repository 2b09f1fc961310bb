"""gpt-oss: attention sinks, a window in every second layer, experts with a clipped SwiGLU and biases, in MXFP4."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.experts import SwiGLU
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.architecture.tensor_layouts import ExpertStack
from edgegen_export.families.llama import BESIDE_MLP, read_llama
from edgegen_export.reading.experts import with_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, sliding
from edgegen_export.reading.tensor_names import named


def read_gpt_oss(read: ConfigReader) -> DecoderConfig:
    """``GptOssConfig``."""
    config = with_experts(read, read_llama(read), "num_local_experts", normalized=True)
    read.ignore("initial_context_length")  # what YaRN's scaling says too
    which = read_layer_types(read, config.num_layers, every(2, False, True, config.num_layers))
    config = sliding(config, read_window(read), which).each_attention(lambda own: replace(own, sinks="head"))
    glu = SwiGLU(alpha=read.above_zero("swiglu_alpha"), offset=1.0, limit=read.above_zero("swiglu_limit"))
    return config.each_experts(lambda own: replace(own, glu=glu))


def tensors(config: DecoderConfig) -> TensorMap:
    assert config.experts
    count, theirs = config.experts.count, "layers.{i}.mlp.experts"
    layer = "layers.{i}.mlp"
    return {
        **BESIDE_MLP,
        "layers.{i}.attn.sinks": "layers.{i}.self_attn.sinks",
        **named(f"{layer}.router", "layers.{i}.mlp.router"),
        (f"{layer}.gate.weight", f"{layer}.up.weight"): ExpertStack(f"{theirs}.gate_up_proj", count),
        (f"{layer}.gate.bias", f"{layer}.up.bias"): ExpertStack(f"{theirs}.gate_up_proj_bias", count),
        f"{layer}.down.weight": ExpertStack(f"{theirs}.down_proj", count),
        f"{layer}.down.bias": ExpertStack(f"{theirs}.down_proj_bias", count),
    }


GPT_OSS = Architecture(
    model_types=("gpt_oss",),
    classes=("GptOssForCausalLM",),
    read=read_gpt_oss,
    tensors=tensors,
    defaults={
        "vocab_size": 201088,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "hidden_act": "silu",
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 150000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
        "sliding_window": 128,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
    },
    aliases={"experts_per_token": "num_experts_per_tok", "num_experts": "num_local_experts"},
)
