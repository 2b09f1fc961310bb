"""Qwen3 MoE: Qwen3 with a mixture of experts."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig, QKNorm
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.experts import expert_tensors, with_experts
from edgegen_export.families.llama import LLAMA_PREFIXES, LLAMA_TENSORS, read_llama
from edgegen_export.families.qwen import QWEN_DEFAULTS
from edgegen_export.families.shared import QK_NORM, read_window, sliding


def read_qwen3_moe(read: ConfigReader) -> DecoderConfig:
    """``Qwen3MoeConfig``: with ``use_sliding_window``, every layer has a sliding window."""
    config = read_llama(read)
    read.ignore("max_window_layers")  # Qwen3's key, which these models' files have too
    used, window = read.flag("use_sliding_window"), read_window(read)
    config = sliding(config, window if used else None, [True] * config.num_layers)
    config = replace(config, qk_norm=QKNorm(config.norm, over="head"))

    dense, step = read.get("mlp_only_layers", list, []), read.positive("decoder_sparse_step")
    sparse = [i not in dense and (i + 1) % step == 0 for i in range(config.num_layers)]
    if not any(sparse):
        read.ignore(
            *("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob"),
            *("output_router_logits", "router_aux_loss_coef"),
        )
        return config
    if not all(sparse):
        read.problem(
            f"mlp_only_layers = {dense!r}, decoder_sparse_step = {step}: some layers have experts and some have none; "
            "that is not supported"
        )
    config = replace(config, intermediate_size=read.positive("moe_intermediate_size"))
    return with_experts(read, config, "num_experts", normalized=read.flag("norm_topk_prob"))


def tensors(config: DecoderConfig) -> TensorMap:
    names = ("gate_proj", "up_proj", "down_proj")
    return {**LLAMA_TENSORS, **QK_NORM, **(expert_tensors(config, "layers.{i}.mlp", names) if config.experts else {})}


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
    prefixes=LLAMA_PREFIXES,
)
