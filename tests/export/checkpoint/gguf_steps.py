"""Metadata that llama.cpp's converter writes for a family, and how it rearranges its tensors.

A second time, forwards, where the exporter has it backwards.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from gguf import GGUFWriter, RopeScalingType
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.float32]]
Rearrange = Callable[[Any, Arrays], Arrays]
Describe = Callable[[GGUFWriter, Any], None]


def rope(writer: GGUFWriter, config: Any) -> None:
    writer.add_rope_freq_base(config.rope_theta)


def key_length(writer: GGUFWriter, config: Any) -> None:
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)


def sizes(writer: GGUFWriter, config: Any) -> None:
    """Write the metadata that nearly every family has."""
    writer.add_context_length(getattr(config, "max_position_embeddings", None) or config.seq_length)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    inner = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * config.hidden_size
    writer.add_feed_forward_length(inner)
    writer.add_head_count(config.num_attention_heads)
    for key in ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"):
        if getattr(config, key, None) is not None:
            writer.add_layer_norm_eps(getattr(config, key))
    if getattr(config, "rms_norm_eps", None) is not None:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def kv_heads(writer: GGUFWriter, config: Any) -> None:
    writer.add_head_count_kv(config.num_key_value_heads)


def llama(writer: GGUFWriter, config: Any) -> None:
    writer.add_vocab_size(config.vocab_size)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(size)
    scaling: dict[str, Any] = getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type") == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif scaling.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])


def permuted(config: Any, arrays: Arrays) -> Arrays:
    """Halves of a head's rows become neighbours: row j of one half, row j of the other."""
    changed: Arrays = {}
    for name, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
        for key, array in arrays.items():
            if f".{name}." in key:
                size = len(array) // heads
                order = [
                    h * size + half * size // 2 + j for h in range(heads) for j in range(size // 2) for half in (0, 1)
                ]
                changed[key] = array[order]
    return {**arrays, **changed}


def one_plus(config: Any, arrays: Arrays) -> Arrays:
    return {key: array + 1 if key.endswith("norm.weight") else array for key, array in arrays.items()}


def llama3_factors(config: Any, arrays: Arrays) -> Arrays:
    scaling: dict[str, Any] = getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type") != "llama3":
        return arrays
    factors: list[float] = []
    for i in range(0, config.head_dim, 2):
        wavelength = 2 * math.pi * config.rope_theta ** (i / config.head_dim)
        low, high = (
            scaling["original_max_position_embeddings"] / scaling[f"{end}_freq_factor"] for end in ("low", "high")
        )
        if wavelength < high:
            factors.append(1.0)
        elif wavelength > low:
            factors.append(scaling["factor"])
        else:
            turns = scaling["original_max_position_embeddings"] / wavelength
            smooth = (turns - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
            factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return {**arrays, "rope_freqs.weight": np.array(factors, np.float32)}


def mpt(writer: GGUFWriter, config: Any) -> None:
    writer.add_context_length(config.max_seq_len)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.n_layers)
    writer.add_feed_forward_length(4 * config.d_model)
    writer.add_head_count(config.n_heads)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    if config.attn_config.clip_qkv is not None:
        writer.add_clamp_kqv(config.attn_config.clip_qkv)
    writer.add_max_alibi_bias(config.attn_config.alibi_bias_max)


def dbrx(writer: GGUFWriter, config: Any) -> None:
    attention, experts = config.attn_config, config.ffn_config
    writer.add_context_length(config.max_seq_len)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.n_layers)
    writer.add_feed_forward_length(experts.ffn_hidden_size)
    writer.add_head_count(config.n_heads)
    writer.add_head_count_kv(attention.kv_n_heads)
    writer.add_rope_freq_base(attention.rope_theta)
    writer.add_clamp_kqv(attention.clip_qkv)
    writer.add_expert_count(experts.moe_num_experts)
    writer.add_expert_used_count(experts.moe_top_k)
    writer.add_layer_norm_eps(1e-5)


def experts_apart(config: Any, arrays: Arrays) -> Arrays:
    """The matrices of DBRX's experts on an axis of their own, those of what they give the other way round."""
    shape = (config.ffn_config.moe_num_experts, config.ffn_config.ffn_hidden_size, config.d_model)
    changed: Arrays = {}
    for name, array in arrays.items():
        if ".experts.mlp." in name:
            apart = array.reshape(shape)
            changed[f"{name}.weight"] = apart.swapaxes(1, 2).copy() if name.endswith("w2") else apart
        else:
            changed[name] = array
    return changed


def granite(writer: GGUFWriter, config: Any) -> None:
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)


def olmo(writer: GGUFWriter, config: Any) -> None:
    writer.add_layer_norm_eps(1e-5)
    writer.add_clamp_kqv(config.clip_qkv)


def cohere(writer: GGUFWriter, config: Any) -> None:
    writer.add_logit_scale(config.logit_scale)
    writer.add_rope_scaling_type(RopeScalingType.NONE)


def cohere2(writer: GGUFWriter, config: Any) -> None:
    cohere(writer, config)
    writer.add_sliding_window(config.sliding_window)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.head_dim)


def gptj(writer: GGUFWriter, config: Any) -> None:
    writer.add_rope_dimension_count(config.rotary_dim)


def pictures(writer: GGUFWriter, config: Any) -> None:
    """Write a model's metadata for pictures that its language model sees: positions in three dimensions, and layers."""
    writer.add_rope_dimension_sections([2, 1, 1, 0])
    writer.add_num_deepstack_layers(3)


def gemma2(writer: GGUFWriter, config: Any) -> None:
    writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_sliding_window(config.sliding_window)


def gemma3(writer: GGUFWriter, config: Any) -> None:
    writer.add_sliding_window(config.sliding_window)
    if config.rope_scaling:
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope_scaling["factor"])


def granite4(writer: GGUFWriter, config: Any) -> None:
    """Write the metadata that the converter adds for a model whose layers could have been recurrent."""
    writer.add_expert_shared_feed_forward_length(config.intermediate_size)
    writer.add_ssm_conv_kernel(4)
    writer.add_ssm_state_size(128)
    writer.add_ssm_group_count(1)
    writer.add_ssm_inner_size(2 * config.hidden_size)
    writer.add_ssm_time_step_rank(4)
    writer.add_head_count_kv([config.num_key_value_heads] * config.num_hidden_layers)
    writer.add_rope_scaling_finetuned(True)
    writer.add_expert_used_count(0)


def stretched(writer: GGUFWriter, config: Any) -> None:
    writer.add_rope_scaling_type(RopeScalingType.NONE)
    writer.add_rope_scaling_factor(1)
    writer.add_rope_scaling_orig_ctx_len(config.max_position_embeddings)


def alpha(writer: GGUFWriter, config: Any) -> None:
    """The base before it was stretched, and by what."""
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_scaling_type(RopeScalingType.NONE)
    writer.add_float32("hunyuan_vl.rope.scaling.alpha", 1000.0)


def windows(writer: GGUFWriter, config: Any) -> None:
    if config.sliding_window is not None:
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])


def part_of_head(writer: GGUFWriter, config: Any) -> None:
    writer.add_rope_dimension_count(int(config.partial_rotary_factor * config.head_dim))


def experts(writer: GGUFWriter, config: Any) -> None:
    writer.add_expert_count(getattr(config, "num_experts", None) or config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    for key, add in (
        ("moe_intermediate_size", writer.add_expert_feed_forward_length),
        ("shared_expert_intermediate_size", writer.add_expert_shared_feed_forward_length),
        ("shared_intermediate_size", writer.add_expert_shared_feed_forward_length),
    ):
        if getattr(config, key, None):
            add(getattr(config, key))


def lfm2(writer: GGUFWriter, config: Any) -> None:
    attends = [kind == "full_attention" for kind in config.layer_types]
    writer.add_head_count_kv([config.num_key_value_heads if it else 0 for it in attends])
    writer.add_vocab_size(config.vocab_size)
    writer.add_shortconv_l_cache(config.conv_L_cache)
    writer.add_layer_norm_rms_eps(config.norm_eps)


def flat_kernels(config: Any, arrays: Arrays) -> Arrays:
    return {key: array[:, 0] if ".conv.conv." in key else array for key, array in arrays.items()}


def gpt_oss(writer: GGUFWriter, config: Any) -> None:
    writer.add_sliding_window(config.sliding_window)
    writer.add_expert_feed_forward_length(config.intermediate_size)
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(config.rope_scaling["factor"])
    writer.add_rope_scaling_orig_ctx_len(config.rope_scaling["original_max_position_embeddings"])


def merged(config: Any, arrays: Arrays) -> Arrays:
    """The matrices of all experts on an axis."""
    kept = {key: array for key, array in arrays.items() if ".experts." not in key}
    found: dict[str, dict[int, NDArray[np.float32]]] = {}
    for key, array in arrays.items():
        if ".experts." in key:
            before, _, after = key.partition(".experts.")
            before = before.replace("model.layers", "layers").replace("block_sparse_moe", "feed_forward")
            before = before if "feed_forward" in before else f"model.{before}"
            number, _, name = after.partition(".")
            found.setdefault(f"{before}.experts.{name}", {})[int(number)] = array
    return kept | {key: np.stack([parts[n] for n in range(len(parts))]) for key, parts in found.items()}


def split(config: Any, arrays: Arrays) -> Arrays:
    """Granite's gates, and what they are multiplied by, apart; a shared expert's gate is a vector in Qwen2 MoE."""
    kept = {key: array for key, array in arrays.items() if "input_linear" not in key}
    for i in range(config.num_hidden_layers):
        for module, name in (("block_sparse_moe", "exps"), ("shared_mlp", "shexp")):
            whole = arrays.get(f"model.layers.{i}.{module}.input_linear.weight")
            if whole is not None:
                gate, up = np.split(whole, 2, axis=-2)
                kept |= {f"blk.{i}.ffn_gate_{name}.weight": gate, f"blk.{i}.ffn_up_{name}.weight": up}
            if name == "exps":
                kept[f"blk.{i}.ffn_down_exps.weight"] = kept.pop(
                    f"model.layers.{i}.block_sparse_moe.output_linear.weight"
                )
    return kept


def flat_gate(config: Any, arrays: Arrays) -> Arrays:
    return {key: array[0] if "shared_expert_gate" in key else array for key, array in arrays.items()}


def unstacked_gpt_oss(config: Any, arrays: Arrays) -> Arrays:
    """Rows of gates and of what they are multiplied by apart, matrices as [experts, out, in], and names with an end."""
    result: Arrays = {}
    for key, array in arrays.items():
        layer = key.split(".")[2] if ".layers." in key else ""
        if key.endswith("sinks"):
            result[f"blk.{layer}.attn_sinks.weight"] = array
        elif ".experts." in key:
            kind = "bias" if key.endswith("_bias") else "weight"
            rows = array if kind == "bias" else np.ascontiguousarray(array.swapaxes(1, 2))
            names = ("gate", "up") if "gate_up" in key else ("down",)
            for k, name in enumerate(names):
                result[f"blk.{layer}.ffn_{name}_exps.{kind}"] = np.ascontiguousarray(rows[:, k :: len(names)])
        else:
            result[key] = array
    return result


_XIELU = ("alpha_p", "alpha_n", "beta", "eps")


def xielu_apart(config: Any, arrays: Arrays) -> Arrays:
    """The numbers of the activations, which are no tensors, are left where :func:`xielu` finds them."""
    config.xielu = {
        name: [float(arrays[f"model.layers.{i}.mlp.act_fn.{name}"].item()) for i in range(config.num_hidden_layers)]
        for name in _XIELU
    }
    return {key: array for key, array in arrays.items() if ".act_fn." not in key}


def xielu(writer: GGUFWriter, config: Any) -> None:
    for name, add in zip(
        _XIELU,
        (
            writer.add_xielu_alpha_p,
            writer.add_xielu_alpha_n,
            writer.add_xielu_beta,
            writer.add_xielu_eps,
        ),
        strict=True,
    ):
        add(config.xielu[name])


def partial_rotary(writer: GGUFWriter, config: Any) -> None:
    fraction = getattr(config, "rotary_pct", None) or config.partial_rotary_factor
    writer.add_rope_dimension_count(int(fraction * (config.hidden_size // config.num_attention_heads)))


def nemotron(writer: GGUFWriter, config: Any) -> None:
    writer.add_layer_norm_eps(config.norm_eps)
    writer.add_rope_dimension_count(
        int(config.partial_rotary_factor * config.hidden_size) // config.num_attention_heads
    )


def stablelm(writer: GGUFWriter, config: Any) -> None:
    writer.add_parallel_residual(config.use_parallel_residual)


def stacked_norms(config: Any, arrays: Arrays) -> Arrays:
    kept = {key: array for key, array in arrays.items() if ".norms." not in key}
    for i in range(config.num_hidden_layers if config.qk_layernorm else 0):
        for kind, heads in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
            stem = f"model.layers.{i}.self_attn.{kind}_layernorm"
            kept[f"{stem}.weight"] = np.stack([arrays[f"{stem}.norms.{j}.weight"] for j in range(heads)])
    return kept


def fused(config: Any, arrays: Arrays) -> Arrays:
    kept = {key: array for key, array in arrays.items() if not any(f".{x}_proj." in key for x in "qkv")}
    for i in range(config.num_hidden_layers):
        for kind in ("weight", "bias"):
            parts = [arrays[f"model.layers.{i}.self_attn.{x}_proj.{kind}"] for x in "qkv"]
            kept[f"blk.{i}.attn_qkv.{kind}"] = np.concatenate(parts)
    return kept


def phi3(writer: GGUFWriter, config: Any) -> None:
    writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
    writer.add_sliding_window(config.sliding_window or 0)
    if config.rope_scaling:
        scale = config.max_position_embeddings / config.original_max_position_embeddings
        writer.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(scale) / math.log(config.original_max_position_embeddings))
        )


def long_factors(config: Any, arrays: Arrays) -> Arrays:
    scaling: dict[str, Any] = getattr(config, "rope_scaling", None) or {}
    factors: dict[str, Any] = {f"rope_factors_{k}.weight": scaling.get(f"{k}_factor") for k in ("long", "short")}
    return {**arrays, **{key: np.array(value, np.float32) for key, value in factors.items() if value}}


def input_last(config: Any, arrays: Arrays) -> Arrays:
    linear = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
    return {key: np.ascontiguousarray(array.T) if key.endswith(linear) else array for key, array in arrays.items()}


def one_key(writer: GGUFWriter, config: Any) -> None:
    writer.add_head_count_kv(1)


def ungrouped(config: Any, arrays: Arrays) -> Arrays:
    """Each group's queries, key and value apart: all queries first, then all keys, then all values."""
    heads = config.num_attention_heads
    groups = getattr(config, "num_kv_heads", heads) if getattr(config, "new_decoder_architecture", True) else 1
    size = config.hidden_size // heads
    changed: Arrays = {}
    for key, array in arrays.items():
        if ".query_key_value." in key:
            grouped = array.reshape(groups, heads // groups + 2, size, *array.shape[1:])
            parts = (grouped[:, :-2], grouped[:, -2:-1], grouped[:, -1:])
            changed[key] = np.concatenate([part.reshape(-1, *array.shape[1:]) for part in parts])
    return {**arrays, **changed}


def bare(config: Any, arrays: Arrays) -> Arrays:
    return {key.removeprefix("transformer."): array for key, array in arrays.items()}


def falcon(writer: GGUFWriter, config: Any) -> None:
    writer.add_tensor_data_layout("jploski")
    writer.add_head_count_kv(config.num_kv_heads if config.new_decoder_architecture else 1)


def neox(writer: GGUFWriter, config: Any) -> None:
    writer.add_parallel_residual(config.use_parallel_residual)


def split_heads(config: Any, arrays: Arrays) -> Arrays:
    """A matrix for each head's key, turned, and one for its value."""
    kept: Arrays = {}
    for key, array in arrays.items():
        if ".kv_b_proj." not in key:
            kept[key] = array
            continue
        of_heads = array.reshape(config.num_attention_heads, -1, array.shape[1])
        keys, values = np.split(of_heads, [config.qk_nope_head_dim], axis=1)
        kept[key.replace("kv_b_proj", "k_b_proj")] = np.ascontiguousarray(keys.swapaxes(1, 2))
        kept[key.replace("kv_b_proj", "v_b_proj")] = np.ascontiguousarray(values)
    return kept
