"""DeepSeek-V2: latent attention that rotates adjacent channels of a part of each head, and experts after the first
layers, weighed by a softmax that need not add up to one, with shared ones."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.experts import Routing
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.glm4_moe import DRAFTS
from edgegen_export.families.latent import LATENT_DEFAULTS, latent_tensors, read_latent
from edgegen_export.reading.experts import SHARED_EXPERTS, behind_dense, read_groups, with_experts, without_experts

_METHODS = {"greedy": False, "group_limited_greedy": True}
"""Whether experts are chosen from the best groups."""


def read_deepseek_v2(read: ConfigReader) -> DecoderConfig:
    """``DeepseekV2Config``, and the keys of the model's own code."""
    config = read_latent(read, interleaved=True)
    read.ignore("ep_size", "seq_aux", "aux_loss_alpha")  # of training and serving
    read.refuse("moe_layer_freq", (1,), "all layers behind the dense ones have experts in this family")
    read.refuse("scoring_func", ("softmax",), "experts are weighed by a softmax only in this family")
    read.refuse("norm_topk_prob", (False,), "the weights of experts are not normalized in this family")
    layers, grouped = behind_dense(read, "first_k_dense_replace", config.num_layers), _method(read)
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


def _method(read: ConfigReader) -> bool:
    return read.choice("topk_method", _METHODS, "greedy")


def tensors(config: DecoderConfig) -> TensorMap:
    return latent_tensors(config, SHARED_EXPERTS)


DEEPSEEK_V2 = Architecture(
    model_types=("deepseek_v2",),
    classes=("DeepseekV2ForCausalLM",),
    read=read_deepseek_v2,
    tensors=tensors,
    defaults={
        **LATENT_DEFAULTS,
        "vocab_size": 102400,
        "moe_intermediate_size": 1407,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "routed_scaling_factor": 1.0,
        "first_k_dense_replace": 0,
    },
    drafts=DRAFTS,
    aliases={"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"},
)
