"""LFM2 MoE: LFM2 with a mixture of experts in all but the first layers, chosen and weighed by sigmoids."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.experts import Routing
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.lfm2 import (
    LFM2,
    LFM2_ATTENTION,
    LFM2_KINDS,
    LFM_MLP,
    LFM_TENSORS,
    read_lfm,
    with_convolutions,
)
from edgegen_export.reading.experts import behind_dense, by_layer, expert_tensors, with_experts, without_experts

_EPSILON = 1e-6
"""Added to the sum of weights that they are divided by, as transformers does."""


def read_lfm2_moe(read: ConfigReader) -> DecoderConfig:
    """``Lfm2MoeConfig``."""
    config = read_lfm(read)
    convolves = read.per_layer("layer_types", LFM2_KINDS, config.num_layers)
    if convolves is None and read.sound("layer_types"):
        read.problem("layer_types: missing, so it is unknown which layers have convolutions")
    config = with_convolutions(read, config, convolves or [False] * config.num_layers)
    read.ignore("num_heads")  # another name of a size, not read
    return _with_experts(read, config)


def _with_experts(read: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """``config`` with experts in the layers after the first dense ones."""
    sparse = behind_dense(read, "num_dense_layers", config.num_layers)
    if not sparse:
        without_experts(read)
        read.ignore("use_expert_bias", "routed_scaling_factor")
        return config
    normalized, biased = read.flag("norm_topk_prob"), read.flag("use_expert_bias")
    scale, width = read.above_zero("routed_scaling_factor"), read.positive("moe_intermediate_size")
    config = with_experts(read, config, "num_experts", normalized=normalized, width=width, layers=sparse)
    routing = Routing("sigmoid", biased, epsilon=_EPSILON, scaling=scale)
    return config.each_experts(lambda own: replace(own, routing=routing))


def tensors(config: DecoderConfig) -> TensorMap:
    beside = {**LFM_TENSORS, **LFM2_ATTENTION}
    if config.experts is None:
        return {**beside, **LFM_MLP}
    module = "layers.{i}.feed_forward"
    experts = expert_tensors(config, module, ("w1", "w3", "w2"))
    bias: TensorMap = {"layers.{i}.mlp.router.choice_bias": f"{module}.expert_bias"}
    return {**beside, **by_layer(config, {**experts, **bias}, LFM_MLP)}


LFM2_MOE = Architecture(
    model_types=("lfm2_moe",),
    classes=("Lfm2MoeForCausalLM",),
    read=read_lfm2_moe,
    tensors=tensors,
    defaults={
        **{key: value for key, value in LFM2.defaults.items() if not key.startswith("block_")},
        "hidden_size": 2048,
        "intermediate_size": 7168,
        "moe_intermediate_size": 1792,
        "num_dense_layers": 2,
        "num_experts": 32,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
        "use_expert_bias": True,
        "routed_scaling_factor": 1.0,
    },
    aliases={"tie_embedding": "tie_word_embeddings", "num_local_experts": "num_experts"},
)
