"""What llama.cpp's converter says of the mixtures of experts of 2025, and how it renames their tensors."""

from typing import Any

from gguf import ExpertGatingFuncType, GGUFWriter, RopeScalingType

from tests.export.checkpoint.gguf_hybrids import Family
from tests.export.checkpoint.gguf_steps import Arrays, key_length, kv_heads, merged, rope, sizes


def of_experts(writer: GGUFWriter, config: Any) -> None:
    """What it says of every family, experts included."""
    for describe in (sizes, kv_heads, rope):
        describe(writer, config)
    if getattr(config, "head_dim", None):
        key_length(writer, config)
    for names, add in (
        (("n_routed_experts", "num_experts", "num_local_experts"), writer.add_expert_count),
        (("num_experts_per_tok",), writer.add_expert_used_count),
        (("n_group",), writer.add_expert_group_count),
        (("topk_group",), writer.add_expert_group_used_count),
    ):
        for value in [getattr(config, name) for name in names if getattr(config, name, None) is not None][:1]:
            add(value)


def sigmoid(writer: GGUFWriter, config: Any) -> None:
    writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)


def as_deepseek(writer: GGUFWriter, config: Any) -> None:
    """What it says of experts that are routed as in DeepSeek-V3."""
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(getattr(config, "n_shared_experts", None) or config.num_shared_experts)
    writer.add_leading_dense_block_count(getattr(config, "first_k_dense_replace", 0))
    writer.add_expert_weights_norm(config.norm_topk_prob)
    writer.add_expert_weights_scale(config.routed_scaling_factor)


def part_of_head(writer: GGUFWriter, config: Any) -> None:
    fraction = config.rope_parameters.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", 1.0)
    writer.add_rope_dimension_count(int(config.head_dim * fraction))


def named_choice_bias(config: Any, arrays: Arrays) -> Arrays:
    """With a name of a parameter of its own."""
    return {
        f"{key.removesuffix('_bias')}.bias"
        if key.endswith("e_score_correction_bias")
        else f"{key}.bias"
        if key.endswith(".expert_bias")
        else key: array
        for key, array in arrays.items()
    }


def scaling(writer: GGUFWriter, config: Any) -> None:
    given = config.rope_parameters
    if given["rope_type"] == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(given["factor"])
        writer.add_rope_scaling_orig_ctx_len(given["original_max_position_embeddings"])


FAMILIES_OF_EXPERTS = {
    "glm4_moe": Family("glm4moe", (of_experts, sigmoid, as_deepseek, part_of_head), (merged, named_choice_bias)),
    "solar_open": Family(
        "glm4moe", (of_experts, sigmoid, as_deepseek, part_of_head, scaling), (merged, named_choice_bias)
    ),
}
"""How checkpoints of a family become files, and which variants llama.cpp's format cannot say."""
