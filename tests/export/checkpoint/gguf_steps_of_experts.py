"""Metadata that llama.cpp's converter writes for the mixtures of experts of 2025, and how it renames their tensors."""

from typing import Any

import numpy as np
from gguf import ExpertGatingFuncType, GGUFWriter, RopeScalingType

from tests.export.checkpoint.gguf_hybrids import Family
from tests.export.checkpoint.gguf_steps import Arrays, key_length, kv_heads, merged, rope, sizes, split_heads, stretched


def of_experts(writer: GGUFWriter, config: Any) -> None:
    """Write the metadata of every family, experts included."""
    for describe in (sizes, kv_heads, rope):
        describe(writer, config)
    if getattr(config, "head_dim", None):
        key_length(writer, config)
    for names, add in (
        (("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"), writer.add_expert_count),
        (("num_experts_per_tok", "moe_topk", "moe_k"), writer.add_expert_used_count),
        (("n_group",), writer.add_expert_group_count),
        (("topk_group",), writer.add_expert_group_used_count),
    ):
        for value in [getattr(config, name) for name in names if getattr(config, name, None) is not None][:1]:
            add(value)


def sigmoid(writer: GGUFWriter, config: Any) -> None:
    writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)


def _shared(config: Any) -> int:
    return getattr(config, "n_shared_experts", None) or config.num_shared_experts


def as_deepseek(writer: GGUFWriter, config: Any) -> None:
    """Write the metadata of experts that are routed as in DeepSeek-V3."""
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(_shared(config))
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


def flat_choice_bias(config: Any, arrays: Arrays) -> Arrays:
    """Without the axis that has one row."""
    return {key: array.ravel() if key.endswith("e_score_correction.bias") else array for key, array in arrays.items()}


def scaling(writer: GGUFWriter, config: Any) -> None:
    given = config.rope_parameters
    if given["rope_type"] == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(given["factor"])
        writer.add_rope_scaling_orig_ctx_len(given["original_max_position_embeddings"])


def whole_widths(writer: GGUFWriter, config: Any) -> None:
    """The width of all shared experts together."""
    writer.add_expert_shared_feed_forward_length(config.moe_intermediate_size * _shared(config))


def windows(writer: GGUFWriter, config: Any) -> None:
    writer.add_vocab_size(config.vocab_size)
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])


def exaone_moe(writer: GGUFWriter, config: Any) -> None:
    writer.add_nextn_predict_layers(0)
    writer.add_rope_scaling_type(RopeScalingType.NONE)


def afmoe(writer: GGUFWriter, config: Any) -> None:
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(config.num_shared_experts)
    writer.add_leading_dense_block_count(config.num_dense_layers)
    writer.add_expert_weights_norm(True)
    writer.add_expert_weights_scale(config.route_scale)
    writer.add_sliding_window(config.sliding_window)


def minimax_m2(writer: GGUFWriter, config: Any) -> None:
    writer.add_expert_feed_forward_length(config.intermediate_size)


def hunyuan_moe(writer: GGUFWriter, config: Any) -> None:
    """Published files say ``false`` for the groups, which is written as zero."""
    writer.add_expert_shared_feed_forward_length(config.intermediate_size)
    writer.add_expert_feed_forward_length(config.intermediate_size)
    writer.add_expert_shared_count(1)
    writer.add_expert_group_count(0)
    writer.add_expert_group_used_count(0)
    stretched(writer, config)


def ernie_moe(writer: GGUFWriter, config: Any) -> None:
    writer.add_interleave_moe_layer_step(config.moe_layer_interval)
    writer.add_leading_dense_block_count(config.moe_layer_start_index)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(config.moe_num_shared_experts)
    if config.moe_num_shared_experts:
        writer.add_expert_shared_feed_forward_length(config.intermediate_size // config.num_key_value_heads)


def latent(writer: GGUFWriter, config: Any) -> None:
    """Write the metadata of latent attention: as sizes of keys and values those of the KV cache, and their own
    apart."""
    sizes(writer, config)
    rope(writer, config)
    _ranks(writer, config)
    writer.add_head_count_kv(1)
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_value_length(config.kv_lora_rank)
    writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length_mla(config.v_head_dim)


def old_latent(writer: GGUFWriter, config: Any) -> None:
    """The same in files whose heads' matrices are whole."""
    sizes(writer, config)
    rope(writer, config)
    _ranks(writer, config)
    kv_heads(writer, config)
    writer.add_key_length(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length(config.v_head_dim)


def minicpm3(writer: GGUFWriter, config: Any) -> None:
    """Neither the size of values nor any multiplier."""
    sizes(writer, config)
    rope(writer, config)
    _ranks(writer, config)
    kv_heads(writer, config)
    writer.add_key_length(config.qk_nope_head_dim + config.qk_rope_head_dim)


def _ranks(writer: GGUFWriter, config: Any) -> None:
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    scaling(writer, config)
    if share := config.rope_parameters.get("mscale_all_dim"):
        writer.add_rope_scaling_yarn_log_mul(0.1 * share)


def latent_experts(writer: GGUFWriter, config: Any) -> None:
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    if config.n_group:
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
    as_deepseek(writer, config)


def one_dense_layer(writer: GGUFWriter, config: Any) -> None:
    writer.add_leading_dense_block_count(config.mlp_layer_types.count("dense"))


def without_experts(writer: GGUFWriter, config: Any) -> None:
    writer.add_leading_dense_block_count(config.num_hidden_layers)
    writer.add_expert_feed_forward_length(config.intermediate_size)
    writer.add_expert_shared_count(0)


def softmax(writer: GGUFWriter, config: Any) -> None:
    writer.add_expert_gating_func(ExpertGatingFuncType.SOFTMAX)


def growing_queries(writer: GGUFWriter, config: Any) -> None:
    writer.add_attn_temperature_scale(config.rope_parameters["llama_4_scaling_beta"])


def stacked(config: Any, arrays: Arrays) -> Arrays:
    """Experts on an axis are weights in files."""
    return {
        f"{key}.weight" if key.endswith(("gate_up_proj", "experts.down_proj")) else key: array
        for key, array in arrays.items()
    }


def gates_apart(config: Any, arrays: Arrays) -> Arrays:
    """The gates of stacked experts, and what they are multiplied by."""
    found = dict(arrays)
    for key in [key for key in arrays if key.endswith("gate_up_proj.weight")]:
        gate, up = np.split(found.pop(key), 2, axis=1)
        found |= {key.replace("gate_up", "gate"): gate, key.replace("gate_up", "up"): up}
    return found


_DEEPSEEK = (of_experts, sigmoid, as_deepseek)
_RENAMED = (merged, named_choice_bias)
FAMILIES_OF_EXPERTS = {
    "afmoe": Family("afmoe", (of_experts, sigmoid, afmoe), _RENAMED, ("plain embeddings", "full attention", "listed")),
    "deepseek_v2": Family("deepseek2", (old_latent, latent_experts, softmax), (merged,), ("no experts",)),
    "deepseek_v3": Family(
        "deepseek2",
        (latent, latent_experts, sigmoid),
        (*_RENAMED, split_heads),
        ("halves rotate", "no experts", "yarn"),
    ),
    "dots1": Family("dots1", _DEEPSEEK, _RENAMED, ("windows",)),
    "ernie4_5_moe": Family(
        "ernie4_5-moe",
        (of_experts, ernie_moe),
        (*_RENAMED, flat_choice_bias),
        ("biases", "least sum", "experts in one layer"),
    ),
    "exaone_moe": Family("exaone-moe", (*_DEEPSEEK, whole_widths, windows, exaone_moe), _RENAMED, ("listed experts",)),
    "glm4_moe": Family("glm4moe", (*_DEEPSEEK, part_of_head), _RENAMED),
    "glm4_moe_lite": Family(
        "deepseek2",
        (latent, latent_experts, one_dense_layer, sigmoid),
        (*_RENAMED, split_heads),
        ("halves rotate", "no experts", "listed layers"),
    ),
    "hunyuan_v1_moe": Family("hunyuan-moe", (of_experts, hunyuan_moe), (merged,), ("by layer", "stretched base")),
    "minicpm3": Family(
        "minicpm3",
        (minicpm3,),
        (),
        ("base", "queries", "values of", "bias", "no multipliers", "untied", "theta", "yarn"),
    ),
    "minimax_m2": Family("minimax-m2", (of_experts, sigmoid, minimax_m2, part_of_head), _RENAMED),
    "mistral4": Family(
        "mistral4",
        (latent, latent_experts, growing_queries),
        (stacked, split_heads),
        ("halves rotate", "no experts", "other shares"),
    ),
    "sarvam_moe": Family("bailingmoe2", (*_DEEPSEEK, whole_widths, part_of_head), _RENAMED, ("need not add up",)),
    "youtu": Family("deepseek2", (latent, without_experts), (split_heads,), ("halves rotate",)),
    "solar_open": Family("glm4moe", (*_DEEPSEEK, part_of_head, scaling), _RENAMED),
}
"""How checkpoints of a family become files, and which variants llama.cpp's format cannot say."""
