"""Qwen3 MoE: Qwen3 with a mixture of experts. Qwen2 MoE (Qwen 1.5 MoE): Qwen2 with experts, and one more that every
token uses."""

from collections.abc import Collection
from dataclasses import replace
from types import MappingProxyType

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import BESIDE_MLP, DENSE_MLP, read_llama
from edgegen_export.families.qwen import QWEN_DEFAULTS
from edgegen_export.reading.experts import by_layer, expert_tensors, read_sparse_layers, with_experts, without_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, sliding
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM


def read_qwen3_moe(read: ConfigReader) -> DecoderConfig:
    """``Qwen3MoeConfig``: with ``use_sliding_window``, every layer has a sliding window."""
    config = read_llama(read)
    read.ignore("max_window_layers")  # Qwen3's key, which these models' files have too
    used, window = read.flag("use_sliding_window"), read_window(read)
    config = sliding(config, window if used else None, [True] * config.num_layers)
    config = with_qk_norm(config)

    return read_qwen_experts(read, config)


def read_qwen_experts(
    read: ConfigReader, config: DecoderConfig, layers: Collection[int] | None = None
) -> DecoderConfig:
    """``config`` with experts in ``layers``, or else in those that the file says as Qwen's files do."""
    sparse = read_sparse_layers(read, config.num_layers) if layers is None else layers
    if not sparse:
        without_experts(read)
        return config
    width, normalized = read.positive("moe_intermediate_size"), read.flag("norm_topk_prob")
    return with_experts(read, config, "num_experts", normalized=normalized, width=width, layers=sparse)


def tensors(config: DecoderConfig) -> TensorMap:
    return {**BESIDE_MLP, **QK_NORM, **qwen_mlp_tensors(config)}


def qwen_mlp_tensors(
    config: DecoderConfig, shared: TensorMap = MappingProxyType({}), router: str = "gate"
) -> TensorMap:
    """The names of the MLPs, dense or of experts; ``shared``: those of a shared expert, beside the others."""
    names = ("gate_proj", "up_proj", "down_proj")
    if config.experts is None:
        return DENSE_MLP
    return by_layer(config, {**expert_tensors(config, "layers.{i}.mlp", names, router), **shared}, DENSE_MLP)


QWEN3_MOE = Architecture(
    model_types=("qwen3_moe",),
    classes=("Qwen3MoeForCausalLM",),
    read=read_qwen3_moe,
    tensors=tensors,
    defaults={
        **QWEN_DEFAULTS,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 24,
        "num_key_value_heads": 4,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
    },
    aliases={"num_local_experts": "num_experts"},  # as transformers 5 writes it
)


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


def _qwen2_moe_tensors(config: DecoderConfig) -> TensorMap:
    return {**BESIDE_MLP, **qwen_mlp_tensors(config, SHARED)}


QWEN2_MOE = Architecture(
    model_types=("qwen2_moe",),
    classes=("Qwen2MoeForCausalLM",),
    read=read_qwen2_moe,
    tensors=_qwen2_moe_tensors,
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
