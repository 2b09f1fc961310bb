"""Metadata that llama.cpp's converter writes for families with fixed states and for Gemma 3n and 4, and how it
rearranges their tensors."""

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from gguf import ExpertGatingFuncType, GGUFWriter, RopeScalingType
from numpy.typing import NDArray

from tests.export.checkpoint.gguf_steps import Arrays, merged, permuted, sizes, split


def _layers(config: Any, kinds: Sequence[str], value: int) -> list[int]:
    return [value if kind in ("attention", "full_attention") else 0 for kind in kinds]


def _recurrent(writer: GGUFWriter, kernel: int, state: int, groups: int, inner: int, heads: int) -> None:
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_state_size(state)
    writer.add_ssm_group_count(groups)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_time_step_rank(heads)


# Mamba-2.


def mamba2(groups: Callable[[Any], int]) -> Callable[[Any, Arrays], Arrays]:
    """Rates as they are, numbers of heads as columns, kernels without the axis of one channel, norms by group."""

    def step(config: Any, arrays: Arrays) -> Arrays:
        result: Arrays = {}
        for key, array in arrays.items():
            if key.endswith(".A_log"):
                result[key] = -np.exp(array)[:, None]
            elif key.endswith(".D"):
                result[key] = array[:, None]
            elif key.endswith("conv1d.weight"):
                result[key] = array[:, 0]
            elif key.endswith((".mamba.norm.weight", ".mixer.norm.weight")):
                result[key] = array.reshape(groups(config), -1)
            elif key.endswith(".dt_bias"):
                result[key.replace("dt_bias", "dt_proj.bias")] = array
            else:
                result[key] = array
        return result

    return step


def granitehybrid(writer: GGUFWriter, config: Any) -> None:
    inner = config.mamba_expand * config.hidden_size
    kernel, state, groups = config.mamba_d_conv, config.mamba_d_state, config.mamba_n_groups
    _recurrent(writer, kernel, state, groups, inner, config.mamba_n_heads)
    writer.add_head_count_kv(_layers(config, config.layer_types, config.num_key_value_heads))
    writer.add_vocab_size(config.vocab_size)
    writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_scaling_finetuned(False)
    if not config.num_local_experts:
        writer.add_feed_forward_length(config.shared_intermediate_size)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok if config.num_local_experts else 0)


def split_mlps(config: Any, arrays: Arrays) -> Arrays:
    """Gates and what they are multiplied by apart; beside experts the shared MLP is one of them."""
    if config.num_local_experts:
        return split(config, arrays)
    result: Arrays = {}
    for key, array in arrays.items():
        layer = key.split(".")[2] if ".layers." in key else ""
        if ".shared_mlp.input_linear." in key:
            gate, up = np.split(array, 2)
            result |= {f"blk.{layer}.ffn_gate.weight": gate, f"blk.{layer}.ffn_up.weight": up}
        else:
            result[f"blk.{layer}.ffn_down.weight" if ".shared_mlp." in key else key] = array
    return result


def bamba(writer: GGUFWriter, config: Any) -> None:
    inner = config.mamba_expand * config.hidden_size
    kernel, state, groups = config.mamba_d_conv, config.mamba_d_state, config.mamba_n_groups
    _recurrent(writer, kernel, state, groups, inner, config.mamba_n_heads)
    kinds = ["attention" if i in config.attn_layer_indices else "mamba" for i in range(config.num_hidden_layers)]
    writer.add_head_count_kv(_layers(config, kinds, config.num_key_value_heads))
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads // 2)
    writer.add_rope_scaling_finetuned(True)


def falcon_h1(writer: GGUFWriter, config: Any) -> None:
    kernel, state, groups = config.mamba_d_conv, config.mamba_d_state, config.mamba_n_groups
    inner = config.mamba_d_ssm or config.mamba_expand * config.hidden_size
    _recurrent(writer, kernel, state, groups, inner, config.mamba_n_heads)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(size)
    writer.add_value_length(size)


def multiplied(config: Any, arrays: Arrays) -> Arrays:
    """Falcon-H1's multipliers are in its tensors."""
    mlp, ssm = config.mlp_multipliers or (1.0, 1.0), config.ssm_multipliers or (1.0,) * 5
    factors = {
        ".down_proj.": mlp[1],
        ".gate_proj.": mlp[0],
        ".k_proj.": config.key_multiplier * config.attention_in_multiplier,
        ".q_proj.": config.attention_in_multiplier,
        ".v_proj.": config.attention_in_multiplier,
        ".o_proj.": config.attention_out_multiplier,
        ".out_proj.": config.ssm_out_multiplier,
        "lm_head.": config.lm_head_multiplier,
        ".embed_tokens.": config.embedding_multiplier,
    }
    result = dict(arrays)
    for key, array in arrays.items():
        for part, factor in factors.items():
            if part in key:
                result[key] = array * np.float32(factor)
        if ".in_proj." in key:
            inner = config.mamba_d_ssm or config.mamba_expand * config.hidden_size
            states = config.mamba_n_groups * config.mamba_d_state
            sizes = (inner, inner, states, states, config.mamba_n_heads)
            rows = np.repeat(np.array(ssm, np.float32), sizes)
            result[key] = array * np.float32(config.ssm_in_multiplier) * rows.reshape(-1, *[1] * (array.ndim - 1))
    return result


def _without_attention(writer: GGUFWriter, config: Any) -> None:
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)


def mamba2_alone(writer: GGUFWriter, config: Any) -> None:
    _without_attention(writer, config)
    inner = config.expand * config.hidden_size
    _recurrent(writer, config.conv_kernel, config.state_size, config.n_groups, inner, config.num_heads)


def mamba1_alone(writer: GGUFWriter, config: Any) -> None:
    _without_attention(writer, config)
    writer.add_ssm_conv_kernel(config.conv_kernel)
    writer.add_ssm_inner_size(config.intermediate_size)
    writer.add_ssm_state_size(config.state_size)
    writer.add_ssm_time_step_rank(config.time_step_rank)
    writer.add_ssm_dt_b_c_rms(config.model_type == "falcon_mamba")


def jamba(writer: GGUFWriter, config: Any) -> None:
    attends = [i % config.attn_layer_period == config.attn_layer_offset for i in range(config.num_hidden_layers)]
    writer.add_head_count_kv([config.num_key_value_heads if it else 0 for it in attends])
    writer.add_ssm_conv_kernel(config.mamba_d_conv)
    writer.add_ssm_inner_size(config.mamba_expand * config.hidden_size)
    writer.add_ssm_state_size(config.mamba_d_state)
    writer.add_ssm_time_step_rank(config.mamba_dt_rank)
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)


def merged_in_model(config: Any, arrays: Arrays) -> Arrays:
    """The matrices of all experts on an axis."""
    return {
        f"model.{key}" if key.startswith("layers.") else key: array for key, array in merged(config, arrays).items()
    }


def mamba1(config: Any, arrays: Arrays) -> Arrays:
    """Rates as they are, kernels without the axis of one channel."""
    result: Arrays = {}
    for key, array in arrays.items():
        if key.endswith(".A_log"):
            result[key] = -np.exp(array)
        else:
            result[key] = array[:, 0] if key.endswith("conv1d.weight") else array
    return result


def nemotron_h(writer: GGUFWriter, config: Any) -> None:
    inner = config.mamba_num_heads * config.mamba_head_dim
    _recurrent(writer, config.conv_kernel, config.ssm_state_size, config.n_groups, inner, config.mamba_num_heads)
    kinds = config.layers_block_type
    writer.add_head_count_kv(_layers(config, kinds, config.num_key_value_heads))
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_scaling_finetuned(False)
    writer.add_feed_forward_length([config.intermediate_size if kind == "mlp" else 0 for kind in kinds])
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)


def nemotron_h_moe(writer: GGUFWriter, config: Any) -> None:
    nemotron_h(writer, config)
    wide = {"mlp": config.intermediate_size, "moe": config.moe_intermediate_size}
    writer.add_feed_forward_length([wide.get(kind, 0) for kind in config.layers_block_type])
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_feed_forward_length(config.moe_shared_expert_intermediate_size)
    writer.add_expert_weights_norm(config.norm_topk_prob)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
    writer.add_expert_group_count(config.n_group)
    writer.add_expert_group_used_count(config.topk_group)
    if config.moe_latent_size:
        writer.add_moe_latent_size(config.moe_latent_size)


def stacked_experts(config: Any, arrays: Arrays) -> Arrays:
    """The matrices of all experts on an axis; the bias of the choice has a name of its own."""
    kept = {key: array for key, array in arrays.items() if ".experts." not in key and "e_score" not in key}
    for i, kind in enumerate(config.layers_block_type):
        if kind == "moe":
            mixer = f"backbone.layers.{i}.mixer"
            kept[f"blk.{i}.exp_probs_b.bias"] = arrays[f"{mixer}.gate.e_score_correction_bias"]
            for x in ("up", "down"):
                names = [f"{mixer}.experts.{n}.{x}_proj.weight" for n in range(config.n_routed_experts)]
                kept[f"blk.{i}.ffn_{x}_exps.weight"] = np.stack([arrays[name] for name in names])
    return kept


def of_backbone(config: Any, arrays: Arrays) -> Arrays:
    return {key.replace("model.", "backbone.", 1): array for key, array in arrays.items()}


# Experts that sigmoids weigh.


def lfm2_moe(writer: GGUFWriter, config: Any) -> None:
    writer.add_leading_dense_block_count(config.num_dense_layers)
    writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)


def named_choice_bias(config: Any, arrays: Arrays) -> Arrays:
    return {f"{key}.bias" if key.endswith(".expert_bias") else key: array for key, array in arrays.items()}


# Gated delta nets.


def delta_nets(writer: GGUFWriter, config: Any) -> None:
    inner = config.linear_num_value_heads * config.linear_value_head_dim
    kernel, state, keys = config.linear_conv_kernel_dim, config.linear_key_head_dim, config.linear_num_key_heads
    _recurrent(writer, kernel, state, keys, inner, config.linear_num_value_heads)
    writer.add_full_attention_interval(4)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    fraction = rope.get("partial_rotary_factor") or config.partial_rotary_factor
    writer.add_rope_dimension_count(int(config.head_dim * fraction))


def qwen3_5(writer: GGUFWriter, config: Any) -> None:
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_sections([11, 11, 10, 0])


def one_plus_but_of_nets(config: Any, arrays: Arrays) -> Arrays:
    """Norms as they multiply, and what gated delta nets have as llama.cpp wants it."""
    result: Arrays = {}
    for key, array in arrays.items():
        if key.endswith(".A_log"):
            result[key] = -np.exp(array)
        elif key.endswith(".dt_bias"):
            result[key.replace("dt_bias", "dt_proj.bias")] = array
        elif "conv1d" in key:
            result[key] = array[:, 0]
        elif key.endswith("norm.weight") and not key.endswith("linear_attn.norm.weight"):
            result[key] = array + 1
        else:
            result[key] = array
    return result


def ungrouped_by_key(config: Any, arrays: Arrays) -> Arrays:
    """Queries, keys and values of all heads, one kind after the other, and the gates apart."""
    result: Arrays = {}
    shares = config.linear_num_value_heads // config.linear_num_key_heads
    ends = np.cumsum([config.linear_key_head_dim] * 2 + [shares * config.linear_value_head_dim])
    for key, array in arrays.items():
        if ".in_proj_qkvz." not in key:
            result[key] = array
            continue
        heads = array.reshape(config.linear_num_key_heads, -1, array.shape[-1])
        parts = [part.reshape(-1, array.shape[-1]) for part in np.split(heads, ends, axis=1)]
        layer = key.split(".")[2]
        result[f"blk.{layer}.attn_qkv.weight"] = np.concatenate(parts[:3])
        result[f"blk.{layer}.attn_gate.weight"] = parts[3]
    return result


def tiled_values(config: Any, arrays: Arrays) -> Arrays:
    """Heads of values: the first of every key, then the second of every key."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    key_rows, size = 2 * keys * config.linear_key_head_dim, config.linear_value_head_dim

    def tiled(rows: NDArray[np.float32], width: int) -> NDArray[np.float32]:
        heads = rows.reshape(keys, values // keys, width, *rows.shape[1:])
        return heads.swapaxes(0, 1).reshape(rows.shape)

    result = dict(arrays)
    for key, array in arrays.items():
        if ".linear_attn." not in key or keys == values:
            continue
        if ".in_proj_qkv." in key or ".conv1d." in key:
            result[key] = np.concatenate([array[:key_rows], tiled(array[key_rows:], size)])
        elif ".in_proj_z." in key:
            result[key] = tiled(array, size)
        elif ".in_proj_a." in key or ".in_proj_b." in key or key.endswith((".A_log", ".dt_proj.bias")):
            result[key] = tiled(array, 1)
        elif ".out_proj." in key:
            result[key] = np.ascontiguousarray(tiled(np.ascontiguousarray(array.T), size).T)
    return result


def layers_of(config: Any) -> int:
    return config.num_hidden_layers


def with_drafts(writer: GGUFWriter, config: Any) -> None:
    """A layer that proposes further tokens, counted among the others."""
    writer.add_block_count(config.num_hidden_layers + 1)
    writer.add_nextn_predict_layers(1)


def a_draft_layer(config: Any, arrays: Arrays) -> Arrays:
    last = config.num_hidden_layers
    return {**arrays, f"blk.{last}.nextn.eh_proj.weight": np.ones((4, 4), np.float32)}


# Gemma 3n.


def gemma3n(writer: GGUFWriter, config: Any) -> None:
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    full, local = (config.rope_parameters[f"{kind}_attention"] for kind in ("full", "sliding"))
    writer.add_rope_freq_base(full["rope_theta"])
    writer.add_rope_freq_base_swa(local["rope_theta"])
    if full["rope_type"] == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(full["factor"])
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    writer.add_altup_num_inputs(config.altup_num_inputs)
    writer.add_altup_active_idx(config.altup_active_idx)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    shares = np.array(config.activation_sparsity_pattern, np.float64)
    scales = [NormalDist().inv_cdf(share) if share else -np.inf for share in shares]
    writer.add_activation_sparsity_scale(np.array(scales, np.float32).tolist())


def stacked_streams(config: Any, arrays: Arrays) -> Arrays:
    """The projections of streams in one tensor each, and the vector of every layer with a name's end."""
    named = {f"{key}.weight" if key.endswith("_scale") else key: array for key, array in arrays.items()}
    for name in ("altup_projections", "altup_unembed_projections"):
        parts = [named.pop(f"model.{name}.{k}.weight") for k in range(config.altup_num_inputs - 1)]
        named[f"model.{name}.weight"] = np.stack(parts)
    return named


# Gemma 4.


def gemma4(writer: GGUFWriter, config: Any) -> None:
    slides = [kind == "sliding_attention" for kind in config.layer_types]
    own, whole = config.num_key_value_heads, config.num_global_key_value_heads
    if whole is None or not config.attention_k_eq_v:
        writer.add_head_count_kv(own)
    else:
        writer.add_head_count_kv([own if it else whole for it in slides])
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern(slides)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input or 0)
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    size = config.global_head_dim
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_key_length_swa(config.head_dim)
    writer.add_value_length_swa(config.head_dim)
    writer.add_rope_dimension_count(size)
    writer.add_rope_dimension_count_swa(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    if config.use_double_wide_mlp:
        first = config.num_hidden_layers - config.num_kv_shared_layers
        width = config.intermediate_size
        writer.add_feed_forward_length([width if i < first else 2 * width for i in range(config.num_hidden_layers)])


def proportional(config: Any, arrays: Arrays) -> Arrays:
    """Factors that leave a part of each head where it is, and the factor of every layer with a name's end."""
    half = config.global_head_dim // 2
    turning = int(half * config.rope_parameters["full_attention"]["partial_rotary_factor"])
    factors = np.array([1.0] * turning + [1e30] * (half - turning), np.float32)
    named = {f"{key}.weight" if key.endswith("layer_scalar") else key: array for key, array in arrays.items()}
    return {**named, "rope_freqs.weight": factors}


HYBRID = (mamba2(lambda config: config.mamba_n_groups),)
PERMUTED_HYBRID = (permuted, *HYBRID)


# Kimi delta attention.


def kimi_linear(writer: GGUFWriter, config: Any) -> None:
    """Nothing of groups, nor whether weights of experts add up to one."""
    _delta_attention(writer, config, config.linear_head_dim, config.linear_conv_kernel_dim)


def ling(writer: GGUFWriter, config: Any) -> None:
    """Which is Kimi Linear with a bound, and experts in groups; the library has no names of its keys."""
    _delta_attention(writer, config, config.linear_head_dim, config.short_conv_kernel_size)
    writer.add_expert_group_count(config.num_expert_group)
    writer.add_expert_group_used_count(config.topk_group)
    writer.add_expert_weights_norm(config.moe_renormalize)
    writer.add_expert_shared_feed_forward_length(config.moe_intermediate_size)
    writer.add_bool("bailingmoe3.kda.safe_gate", config.kda_safe_gate)
    writer.add_float32("bailingmoe3.kda.gate_lower_bound", config.kda_lower_bound)


def _delta_attention(writer: GGUFWriter, config: Any, head_dim: int, width: int) -> None:
    """Layers of delta attention have no key heads."""
    sizes(writer, config)
    writer.add_head_count_kv([1 if kind == "full_attention" else 0 for kind in config.layer_types])
    writer.add_ssm_conv_kernel(width)
    writer.add_kda_head_dim(head_dim)
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length_mla(config.v_head_dim)
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_token)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(config.num_shared_experts)
    writer.add_leading_dense_block_count(config.mlp_layer_types.count("dense"))
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)


def of_delta_attention(config: Any, arrays: Arrays) -> Arrays:
    """Kernels with an axis more, rates as they are; dense layers under the names that published files have."""
    kept: Arrays = {}
    for key, array in arrays.items():
        if key.endswith("_conv1d.weight"):
            array = array[None, :, 0, None]
        elif key.endswith(".A_log"):
            array = -np.exp(array) if array.ndim > 1 else np.exp(array)[:, None]  # Ling's are vectors
        dense = any(key.endswith(f".block_sparse_moe.{x}_proj.weight") for x in ("gate", "up", "down"))
        key = key.replace(".dt_bias", ".dt_proj.bias").replace("e_score_correction_bias", "e_score_correction.bias")
        kept[key.replace("block_sparse_moe", "mlp") if dense else key] = array
    return kept


def of_ling(config: Any, arrays: Arrays) -> Arrays:
    """Under the names of Kimi Linear, where these mean the same."""
    names = {
        "word_embeddings": "embed_tokens",
        ".attention.": ".self_attn.",
        ".dense.": ".o_proj.",
        ".f_proj.": ".f_a_proj.",
        ".mlp.gate.expert_bias": ".block_sparse_moe.gate.e_score_correction_bias",
        ".mlp.gate.weight": ".block_sparse_moe.gate.weight",
        ".mlp.shared_experts.": ".block_sparse_moe.shared_experts.",
    }
    kept: Arrays = {}
    for key, array in arrays.items():
        layer = key.split(".")[2] if key.startswith("model.layers.") else ""
        for theirs, other in names.items():
            key = key.replace(theirs, other)
        if key.endswith("self_attn.g_proj.weight"):
            full = config.layer_types[int(layer)] == "full_attention"
            key = f"blk.{layer}.attn_gate.weight" if full else key.replace("g_proj", "g_a_proj")
        elif ".mlp.experts." in key:
            part = next(part for part in ("gate", "up", "down") if f"{part}_proj" in key)
            key = f"blk.{layer}.ffn_{part}_exps.weight"
        kept[key] = array
    return kept
