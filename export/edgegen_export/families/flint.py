"""Flint: Qwen3 MoE with attention sinks, sigmoids that weigh experts, and one that every token uses; layers whose
attention has a window rotate, the others do not."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.experts import Routing
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, read_llama
from edgegen_export.families.qwen import UNGATED, qwen_mlp_tensors, read_qwen_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, rotating, sliding
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM


def read_flint(read: ConfigReader) -> DecoderConfig:
    """``FlintConfig``: the first two layers, every fourth after them and the last one have full attention."""
    config = read_llama(read)
    last = config.num_layers - 1
    windowed = [not (i < 2 or i % 4 == 1 or i == last) for i in range(config.num_layers)]
    windowed = read_layer_types(read, config.num_layers, windowed)
    config = sliding(rotating(config, None, [not slides for slides in windowed]), read_window(read), windowed)
    config = with_qk_norm(config)
    config = config.each_attention(lambda own: replace(own, sinks="head"))
    shared = read.positive("shared_expert_intermediate_size")
    config = read_qwen_experts(read, config)
    return config.each_experts(lambda own: replace(own, routing=Routing("sigmoid"), shared_width=shared))


def tensors(config: DecoderConfig) -> TensorMap:
    sinks: TensorMap = {"layers.{i}.attn.sinks": "layers.{i}.self_attn.softmax_offset"}
    return {**BESIDE_MLP, **QK_NORM, **sinks, **qwen_mlp_tensors(config, UNGATED)}


FLINT = Architecture(
    model_types=("flint",),
    classes=("FlintForCausalLM",),
    read=read_flint,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 150144,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 49,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "max_position_embeddings": 262144,
        "sliding_window": 513,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [0, 1],
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 1024,
        "num_experts_per_tok": 6,
        "num_experts": 256,
        "norm_topk_prob": True,
    },
    aliases={"num_local_experts": "num_experts"},
)
