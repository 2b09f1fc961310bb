"""DeepSeekMoE, and Ling of the first generation: Llama with experts after the first layers, weighed by a softmax, with
shared ones. transformers does not have it: its checkpoints bring code of their own, which is never run.

DeepSeek-V2: latent attention that rotates adjacent channels of a part of each head, and experts after the first
layers, weighed by a softmax that need not add up to one, with shared ones. DeepSeek-V3 and R1, Moonlight and Kimi K2:
experts are chosen from the best groups by sigmoids and a bias of each.
"""

from dataclasses import replace
from functools import partial

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.experts import Routing
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.glm import DRAFT_HEAD, DRAFTS
from edgegen_export.families.latent import LATENT_DEFAULTS, latent_tensors, read_latent
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, read_llama
from edgegen_export.families.qwen import qwen_mlp_tensors
from edgegen_export.reading.experts import (
    DEEPSEEK_EXPERTS,
    SHARED_EXPERTS,
    behind_dense,
    read_groups,
    with_deepseek_experts,
    with_experts,
    without_experts,
)


def read_deepseek(read: ConfigReader) -> DecoderConfig:
    """``DeepseekConfig``."""
    config = read_llama(read)
    read.ignore("ep_size", "seq_aux", "aux_loss_alpha")  # of training and serving
    read.refuse("moe_layer_freq", (1,), "all layers behind the dense ones have experts in this family")
    read.refuse("scoring_func", ("softmax",), "experts are weighed by a softmax only in this family")
    layers = behind_dense(read, "first_k_dense_replace", config.num_layers)
    if not layers:
        without_experts(read, "n_routed_experts", "n_shared_experts")
        return config
    width, normalized = read.positive("moe_intermediate_size"), read.flag("norm_topk_prob")
    config = with_experts(read, config, "n_routed_experts", normalized=normalized, width=width, layers=layers)
    routing = Routing(epsilon=1e-20 if normalized else 0.0)
    shared = width * read.count("n_shared_experts")
    return config.each_experts(lambda own: replace(own, routing=routing, shared_width=shared))


DEEPSEEK = Architecture(
    model_types=("deepseek",),
    classes=("DeepseekForCausalLM",),
    read=read_deepseek,
    tensors=lambda config: {**BESIDE_MLP, **qwen_mlp_tensors(config, SHARED_EXPERTS)},
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 102400,
        "moe_intermediate_size": 1407,
        "num_key_value_heads": 32,
    },
    aliases={"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"},
)


def read_deepseek_v2(read: ConfigReader) -> DecoderConfig:
    """``DeepseekV2Config``, and the keys of the model's own code."""
    config = read_latent(read, interleaved=True)
    read.ignore("ep_size", "seq_aux", "aux_loss_alpha")  # of training and serving
    read.refuse("moe_layer_freq", (1,), "all layers behind the dense ones have experts in this family")
    read.refuse("scoring_func", ("softmax",), "experts are weighed by a softmax only in this family")
    read.refuse("norm_topk_prob", (False,), "the weights of experts are not normalized in this family")
    layers = behind_dense(read, "first_k_dense_replace", config.num_layers)
    grouped = read.choice("topk_method", {"greedy": False, "group_limited_greedy": True}, "greedy")
    if not layers:
        without_experts(read, "n_routed_experts", "n_shared_experts", "n_group", "topk_group", "routed_scaling_factor")
        return config
    width = read.positive("moe_intermediate_size")
    config = with_experts(read, config, "n_routed_experts", normalized=False, width=width, layers=layers)
    routing = Routing(scaling=read.above_zero("routed_scaling_factor"), best_of_group=1)
    if grouped and config.experts:
        groups, chosen = read_groups(read, "n_routed_experts", config.experts.count, config.experts.per_token)
        routing = replace(routing, groups=groups, chosen_groups=chosen)
    read.ignore("n_group", "topk_group")
    shared = width * read.count("n_shared_experts")
    return config.each_experts(lambda own: replace(own, routing=routing, shared_width=shared))


DEEPSEEK_V2 = Architecture(
    model_types=("deepseek_v2",),
    classes=("DeepseekV2ForCausalLM",),
    read=read_deepseek_v2,
    tensors=partial(latent_tensors, shared=SHARED_EXPERTS),
    defaults={
        **LATENT_DEFAULTS,
        "vocab_size": 102400,
        "moe_intermediate_size": 1407,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "routed_scaling_factor": 1.0,
    },
    drafts=DRAFTS,
    aliases={"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"},
)


def read_deepseek_v3(read: ConfigReader) -> DecoderConfig:
    """``DeepseekV3Config``, and the keys of the model's own code."""
    config = read_latent(read, interleaved=read.flag("rope_interleave"))
    read.ignore("ep_size", "seq_aux", "aux_loss_alpha")  # of training and serving
    read.refuse("moe_layer_freq", (1,), "all layers behind the dense ones have experts in this family")
    read.refuse("scoring_func", ("sigmoid",), "experts are weighed by sigmoids only in this family")
    read.refuse("topk_method", ("noaux_tc",), "experts are chosen with a bias of each in this family")
    return with_deepseek_experts(read, config, behind_dense(read, "first_k_dense_replace", config.num_layers))


DEEPSEEK_V3 = Architecture(
    model_types=("deepseek_v3", "kimi_k2"),
    classes=("DeepseekV3ForCausalLM",),
    read=read_deepseek_v3,
    tensors=partial(latent_tensors, shared=DEEPSEEK_EXPERTS),
    defaults={
        **LATENT_DEFAULTS,
        "vocab_size": 129280,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "max_position_embeddings": 4096,
        "rope_interleave": True,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "routed_scaling_factor": 2.5,
        "n_group": 8,
        "topk_group": 4,
        "first_k_dense_replace": 3,
        "norm_topk_prob": True,
    },
    drafts=DRAFTS,
    draft_head=DRAFT_HEAD,
    aliases={"num_local_experts": "n_routed_experts"},
)
