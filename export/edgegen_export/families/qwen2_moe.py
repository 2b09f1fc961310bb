"""Qwen2 MoE (Qwen 1.5 MoE): Qwen2 with experts, and one more that every token uses."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import read_llama
from edgegen_export.families.qwen import QWEN_DEFAULTS
from edgegen_export.families.qwen3_moe import BESIDE_MLP, qwen_mlp_tensors, read_qwen_experts
from edgegen_export.reading.layer_types import read_layer_types

UNGATED: TensorMap = {
    f"layers.{{i}}.shared.{x}.weight": f"layers.{{i}}.mlp.shared_expert.{x}_proj.weight" for x in ("gate", "up", "down")
}
"""A shared expert without a gate of its own."""
SHARED: TensorMap = {**UNGATED, "layers.{i}.shared_gate.weight": "layers.{i}.mlp.shared_expert_gate.weight"}


def read_qwen2_moe(read: ConfigReader) -> DecoderConfig:
    """``Qwen2MoeConfig``."""
    config = read_llama(read)
    read.ignore("qkv_bias", "max_window_layers", "sliding_window")
    # transformers 4 and 5 take different layers.
    read.refuse("use_sliding_window", (False,), "which layers have a sliding window is not settled")
    if any(read_layer_types(read, config.num_layers, [])):
        read.problem("layer_types: sliding windows are not supported in this family")
    config = read_qwen_experts(read, config)
    shared = read.positive("shared_expert_intermediate_size")
    return config.each_experts(lambda own: replace(own, shared_width=shared, shared_gated=True))


def tensors(config: DecoderConfig) -> TensorMap:
    return {**BESIDE_MLP, **qwen_mlp_tensors(config, SHARED)}


QWEN2_MOE = Architecture(
    model_types=("qwen2_moe",),
    classes=("Qwen2MoeForCausalLM",),
    read=read_qwen2_moe,
    tensors=tensors,
    defaults={
        **QWEN_DEFAULTS,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "norm_topk_prob": False,
    },
    aliases={"num_local_experts": "num_experts"},
)
