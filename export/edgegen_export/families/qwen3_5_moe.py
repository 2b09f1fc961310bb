"""Qwen3.5 MoE: Qwen3.5 with a mixture of experts in every layer, and one more that every token uses."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Shape
from edgegen_export.families import qwen3_5
from edgegen_export.families.qwen2_moe import SHARED
from edgegen_export.families.qwen3_moe import qwen_mlp_tensors
from edgegen_export.reading.experts import stacked_expert_tensors, with_experts


def read_qwen3_5_moe(read: ConfigReader) -> DecoderConfig:
    """``Qwen3_5MoeTextConfig``."""
    config = qwen3_5.read_qwen3_5(read)
    read.refuse("norm_topk_prob", (True,), "the weights of the chosen experts must sum to one")
    width, shared = read.positive("moe_intermediate_size"), read.positive("shared_expert_intermediate_size")
    config = with_experts(read, config, "num_experts", normalized=True, width=width)
    return config.each_experts(lambda own: replace(own, shared_width=shared, shared_gated=True))


def tensors(config: DecoderConfig) -> TensorMap:
    """Each expert has matrices of its own, as transformers writes them."""
    return {**_beside_experts(config), **qwen_mlp_tensors(config, SHARED)}


def stacked_tensors(config: DecoderConfig, _: Shape) -> TensorMap:
    """All experts are in one tensor, as in the published files."""
    return {**_beside_experts(config), **SHARED, **stacked_expert_tensors(config, "layers.{i}.mlp")}


def _beside_experts(config: DecoderConfig) -> TensorMap:
    return {ours: theirs for ours, theirs in qwen3_5.tensors(config).items() if ".mlp." not in str(ours)}


def read_qwen3_5_moe_with_vision(read: ConfigReader) -> DecoderConfig:
    """``Qwen3_5MoeConfig``."""
    return qwen3_5.read_inside_vision(read, read_qwen3_5_moe, QWEN3_5_MOE.defaults)


QWEN3_5_MOE = Architecture(
    model_types=("qwen3_5_moe_text",),
    classes=("Qwen3_5MoeForCausalLM",),
    read=read_qwen3_5_moe,
    tensors=tensors,
    defaults={
        **qwen3_5.DEFAULTS,
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "num_key_value_heads": 2,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts": 256,
        "num_experts_per_tok": 8,
    },
    heads=qwen3_5.HEADS,
    draft_head=qwen3_5.DRAFT_HEAD,
    aliases={"num_local_experts": "num_experts"},
    variant=("experts.gate_up_proj", stacked_tensors),
)

QWEN3_5_MOE_WITH_VISION = replace(
    QWEN3_5_MOE,
    model_types=("qwen3_5_moe",),
    classes=("Qwen3_5MoeForConditionalGeneration",),
    read=read_qwen3_5_moe_with_vision,
    defaults={},
    prefixes=qwen3_5.VISION_PREFIXES,
    ignored=qwen3_5.VISION_IGNORED,
    draft_head=qwen3_5.DRAFT_HEAD,
)
