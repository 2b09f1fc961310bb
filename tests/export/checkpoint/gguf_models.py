"""Tiny random models of every architecture, written to GGUF files the way llama.cpp's converter writes them.

transformers makes the model, the ``gguf`` library knows the tensors' names and writes the file; what is rearranged and
which metadata a family gets is written down here a second time, forwards, where the exporter has it backwards.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType, get_tensor_name_map
from gguf.constants import MODEL_ARCH_NAMES
from gguf.quants import quantize
from numpy.typing import NDArray

from tests.oracle import import_torch, import_transformers

Arrays = dict[str, NDArray[np.float32]]
Rearrange = Callable[[Any, Arrays], Arrays]
Describe = Callable[[GGUFWriter, Any], None]

LLAMA = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True, slots=True)
class Case:
    """``arch``: the file's name of the family; ``config`` and ``cls``: what transformers makes the model of.

    ``not_said``: keys of the configuration that no GGUF file has, and that nothing in inference reads.
    ``loader``: whether transformers' own GGUF loader reads such a file rightly.
    """

    arch: str
    config: str
    cls: str
    settings: Mapping[str, Any]
    describe: tuple[Describe, ...] = ()
    rearrange: tuple[Rearrange, ...] = ()
    not_said: frozenset[str] = field(default_factory=frozenset[str])
    loader: bool = False


def _rope(writer: GGUFWriter, config: Any) -> None:
    writer.add_rope_freq_base(config.rope_theta)


def _key_length(writer: GGUFWriter, config: Any) -> None:
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)


def _sizes(writer: GGUFWriter, config: Any) -> None:
    """What nearly every family has."""
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


def _kv_heads(writer: GGUFWriter, config: Any) -> None:
    writer.add_head_count_kv(config.num_key_value_heads)


def _llama(writer: GGUFWriter, config: Any) -> None:
    writer.add_vocab_size(config.vocab_size)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(size)
    scaling: dict[str, Any] = config.rope_scaling or {}
    if scaling.get("rope_type") == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif scaling.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])


def _permuted(config: Any, arrays: Arrays) -> Arrays:
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


def _one_plus(config: Any, arrays: Arrays) -> Arrays:
    return {key: array + 1 if key.endswith("norm.weight") else array for key, array in arrays.items()}


def _llama3_factors(config: Any, arrays: Arrays) -> Arrays:
    scaling: dict[str, Any] = config.rope_scaling or {}
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


def _granite(writer: GGUFWriter, config: Any) -> None:
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)


def _olmo(writer: GGUFWriter, config: Any) -> None:
    writer.add_layer_norm_eps(1e-5)
    writer.add_clamp_kqv(config.clip_qkv)


def _cohere(writer: GGUFWriter, config: Any) -> None:
    writer.add_logit_scale(config.logit_scale)
    writer.add_rope_scaling_type(RopeScalingType.NONE)


def _gemma2(writer: GGUFWriter, config: Any) -> None:
    writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_sliding_window(config.sliding_window)


def _gemma3(writer: GGUFWriter, config: Any) -> None:
    writer.add_sliding_window(config.sliding_window)
    if config.rope_scaling:
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope_scaling["factor"])


def _granite4(writer: GGUFWriter, config: Any) -> None:
    """What the converter adds for a model whose layers could have been recurrent."""
    writer.add_expert_shared_feed_forward_length(config.intermediate_size)
    writer.add_ssm_conv_kernel(4)
    writer.add_ssm_state_size(128)
    writer.add_ssm_group_count(1)
    writer.add_ssm_inner_size(2 * config.hidden_size)
    writer.add_ssm_time_step_rank(4)
    writer.add_head_count_kv([config.num_key_value_heads] * config.num_hidden_layers)
    writer.add_rope_scaling_finetuned(True)
    writer.add_expert_used_count(0)


def _stretched(writer: GGUFWriter, config: Any) -> None:
    writer.add_rope_scaling_type(RopeScalingType.NONE)
    writer.add_rope_scaling_factor(1)
    writer.add_rope_scaling_orig_ctx_len(config.max_position_embeddings)


def _windows(writer: GGUFWriter, config: Any) -> None:
    if config.sliding_window is not None:
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])


def _part_of_head(writer: GGUFWriter, config: Any) -> None:
    writer.add_rope_dimension_count(int(config.partial_rotary_factor * config.head_dim))


_XIELU = ("alpha_p", "alpha_n", "beta", "eps")


def _xielu_apart(config: Any, arrays: Arrays) -> Arrays:
    """The numbers of the activations, which are no tensors, are left where :func:`_xielu` finds them."""
    config.xielu = {
        name: [float(arrays[f"model.layers.{i}.mlp.act_fn.{name}"].item()) for i in range(config.num_hidden_layers)]
        for name in _XIELU
    }
    return {key: array for key, array in arrays.items() if ".act_fn." not in key}


def _xielu(writer: GGUFWriter, config: Any) -> None:
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


def _partial_rotary(writer: GGUFWriter, config: Any) -> None:
    fraction = getattr(config, "rotary_pct", None) or config.partial_rotary_factor
    writer.add_rope_dimension_count(int(fraction * (config.hidden_size // config.num_attention_heads)))


def _nemotron(writer: GGUFWriter, config: Any) -> None:
    writer.add_layer_norm_eps(config.norm_eps)
    writer.add_rope_dimension_count(
        int(config.partial_rotary_factor * config.hidden_size) // config.num_attention_heads
    )


def _stablelm(writer: GGUFWriter, config: Any) -> None:
    writer.add_parallel_residual(config.use_parallel_residual)


def _stacked_norms(config: Any, arrays: Arrays) -> Arrays:
    kept = {key: array for key, array in arrays.items() if ".norms." not in key}
    for i in range(config.num_hidden_layers if config.qk_layernorm else 0):
        for kind, heads in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
            stem = f"model.layers.{i}.self_attn.{kind}_layernorm"
            kept[f"{stem}.weight"] = np.stack([arrays[f"{stem}.norms.{j}.weight"] for j in range(heads)])
    return kept


def _fused(config: Any, arrays: Arrays) -> Arrays:
    kept = {key: array for key, array in arrays.items() if not any(f".{x}_proj." in key for x in "qkv")}
    for i in range(config.num_hidden_layers):
        for kind in ("weight", "bias"):
            parts = [arrays[f"model.layers.{i}.self_attn.{x}_proj.{kind}"] for x in "qkv"]
            kept[f"blk.{i}.attn_qkv.{kind}"] = np.concatenate(parts)
    return kept


def _phi3(writer: GGUFWriter, config: Any) -> None:
    writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
    writer.add_sliding_window(config.sliding_window or 0)
    if config.rope_scaling:
        scale = config.max_position_embeddings / config.original_max_position_embeddings
        writer.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(scale) / math.log(config.original_max_position_embeddings))
        )


def _long_factors(config: Any, arrays: Arrays) -> Arrays:
    scaling: dict[str, Any] = config.rope_scaling or {}
    factors: dict[str, Any] = {f"rope_factors_{k}.weight": scaling.get(f"{k}_factor") for k in ("long", "short")}
    return {**arrays, **{key: np.array(value, np.float32) for key, value in factors.items() if value}}


def _input_last(config: Any, arrays: Arrays) -> Arrays:
    linear = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
    return {key: np.ascontiguousarray(array.T) if key.endswith(linear) else array for key, array in arrays.items()}


def _one_key(writer: GGUFWriter, config: Any) -> None:
    writer.add_head_count_kv(1)


def _ungrouped(config: Any, arrays: Arrays) -> Arrays:
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


def _bare(config: Any, arrays: Arrays) -> Arrays:
    return {key.removeprefix("transformer."): array for key, array in arrays.items()}


def _falcon(writer: GGUFWriter, config: Any) -> None:
    writer.add_tensor_data_layout("jploski")
    writer.add_head_count_kv(config.num_kv_heads if config.new_decoder_architecture else 1)


def _neox(writer: GGUFWriter, config: Any) -> None:
    writer.add_parallel_residual(config.use_parallel_residual)


_LLAMA_STEPS = (_sizes, _kv_heads, _llama, _rope)
_BIGGER_HEADS = {**LLAMA, "head_dim": 16, "tie_word_embeddings": True}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_FALCON = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 40,
    "bias": False,
    "max_position_embeddings": 64,
    "parallel_attn": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

CASES: dict[str, Case] = {
    "arcee": Case("arcee", "ArceeConfig", "ArceeForCausalLM", {**LLAMA, "mlp_bias": True}, _LLAMA_STEPS, (_permuted,)),
    "nemotron": Case(
        "nemotron",
        "NemotronConfig",
        "NemotronForCausalLM",
        {**LLAMA, "head_dim": 8, "attention_bias": True},
        (_sizes, _kv_heads, _rope, _nemotron),
        (_one_plus,),
    ),
    "llama": Case(
        "llama", "LlamaConfig", "LlamaForCausalLM", LLAMA, _LLAMA_STEPS, (_permuted, _llama3_factors), loader=True
    ),
    "llama with biases, tied, linear scaling": Case(
        "llama",
        "LlamaConfig",
        "LlamaForCausalLM",
        {**LLAMA, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
        | {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        _LLAMA_STEPS,
        (_permuted, _llama3_factors),
    ),
    "llama 3": Case(
        "llama",
        "LlamaConfig",
        "LlamaForCausalLM",
        {**LLAMA, "head_dim": 16, "rope_theta": 500000.0, "rope_scaling": _LLAMA3},
        (*_LLAMA_STEPS, _key_length),
        (_permuted, _llama3_factors),
    ),
    "qwen2": Case("qwen2", "Qwen2Config", "Qwen2ForCausalLM", LLAMA, (*_LLAMA_STEPS[:2], _rope), loader=True),
    "qwen2 with yarn": Case(
        "qwen2",
        "Qwen2Config",
        "Qwen2ForCausalLM",
        {**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
        _LLAMA_STEPS,
    ),
    "qwen3": Case("qwen3", "Qwen3Config", "Qwen3ForCausalLM", _BIGGER_HEADS, (_sizes, _kv_heads, _rope, _key_length)),
    "smollm3": Case(
        "smollm3",
        "SmolLM3Config",
        "SmolLM3ForCausalLM",
        {**LLAMA, "num_hidden_layers": 5, "rope_theta": 2000000.0},
        _LLAMA_STEPS,
        (_permuted,),
    ),
    "granite": Case(
        "granite",
        "GraniteConfig",
        "GraniteForCausalLM",
        {**LLAMA, "attention_multiplier": 0.0625, "embedding_multiplier": 12.0, "residual_multiplier": 0.22}
        | {"logits_scaling": 8.0},
        (*_LLAMA_STEPS, _granite),
        (_permuted,),
    ),
    "granite 4": Case(
        "granite",
        "GraniteConfig",
        "GraniteForCausalLM",
        {**LLAMA, "attention_multiplier": 0.0625, "tie_word_embeddings": True},
        (_sizes, _llama, _rope, _granite, _granite4),
        (_permuted,),
    ),
    "mistral 3": Case(
        "mistral3",
        "MistralConfig",
        "MistralForCausalLM",
        {**_BIGGER_HEADS, "sliding_window": None, "rope_theta": 1e6},
        (_sizes, _kv_heads, _rope, _key_length),
        (_permuted,),
    ),
    "ernie4_5": Case(
        "ernie4_5",
        "Ernie4_5Config",
        "Ernie4_5ForCausalLM",
        {**_BIGGER_HEADS, "rope_theta": 500000.0},
        (_sizes, _kv_heads, _rope, _key_length),
    ),
    "ernie4_5 with biases": Case(
        "ernie4_5",
        "Ernie4_5Config",
        "Ernie4_5ForCausalLM",
        {**_BIGGER_HEADS, "use_bias": True, "tie_word_embeddings": False},
        (_sizes, _kv_heads, _rope, _key_length),
    ),
    "hunyuan-dense": Case(
        "hunyuan-dense",
        "HunYuanDenseV1Config",
        "HunYuanDenseV1ForCausalLM",
        {**_BIGGER_HEADS, "rope_theta": 11158840.0},  # 10000 · 1000 ** (128 / 126)
        (_sizes, _kv_heads, _rope, _key_length, _stretched),
        not_said=frozenset({"eod_token_id"}),
    ),
    "exaone4": Case(
        "exaone4",
        "Exaone4Config",
        "Exaone4ForCausalLM",
        {**LLAMA, "num_hidden_layers": 5, "sliding_window": 16, "head_dim": 8, "rope_theta": 1e6}
        | {"rope_scaling": _LLAMA3 | {"factor": 16.0}},
        (_sizes, _kv_heads, _rope, _windows),
        (_llama3_factors,),
    ),
    "exaone4 without windows": Case(
        "exaone4",
        "Exaone4Config",
        "Exaone4ForCausalLM",
        {**_BIGGER_HEADS, "sliding_window": None, "layer_types": ["full_attention"] * 2},
        (_sizes, _kv_heads, _rope, _windows, _key_length),
        not_said=frozenset({"sliding_window_pattern"}),
    ),
    "olmo3": Case(
        "olmo2",
        "Olmo3Config",
        "Olmo3ForCausalLM",
        {**LLAMA, "num_hidden_layers": 5, "sliding_window": 16, "rope_theta": 500000.0}
        | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
        (_sizes, _kv_heads, _llama, _rope, _windows),
    ),
    "glm": Case(
        "chatglm",
        "GlmConfig",
        "GlmForCausalLM",
        {**LLAMA, "head_dim": 8, "attention_bias": True},
        (_sizes, _kv_heads, _rope, _part_of_head),
        (_fused,),
    ),
    "glm of the later converter": Case(
        "chatglm",
        "GlmConfig",
        "GlmForCausalLM",
        {**LLAMA, "head_dim": 8, "attention_bias": False},
        (_sizes, _kv_heads, _rope, _part_of_head),
    ),
    "glm4": Case(
        "glm4",
        "Glm4Config",
        "Glm4ForCausalLM",
        {**_BIGGER_HEADS, "attention_bias": True},
        (_sizes, _kv_heads, _rope, _key_length, _part_of_head),
    ),
    "apertus": Case(
        "apertus",
        "ApertusConfig",
        "ApertusForCausalLM",
        {**LLAMA, "head_dim": 8, "rope_theta": 12e6, "rope_scaling": _LLAMA3},
        (_sizes, _kv_heads, _llama, _rope, _xielu),
        (_llama3_factors, _xielu_apart),
        not_said=frozenset({"xielu"}),
    ),
    "apertus without scaling": Case(
        "apertus",
        "ApertusConfig",
        "ApertusForCausalLM",
        {**LLAMA, "rope_scaling": None},
        (_sizes, _kv_heads, _llama, _rope, _xielu),
        (_xielu_apart,),
        not_said=frozenset({"xielu"}),
    ),
    "seed_oss": Case(
        "seed_oss",
        "SeedOssConfig",
        "SeedOssForCausalLM",
        {**_BIGGER_HEADS, "attention_bias": True, "attention_out_bias": True},
        (_sizes, _kv_heads, _rope, _key_length),
    ),
    "seed_oss without biases": Case(
        "seed_oss",
        "SeedOssConfig",
        "SeedOssForCausalLM",
        {**_BIGGER_HEADS, "attention_bias": False},
        (_sizes, _kv_heads, _rope, _key_length),
    ),
    "olmo": Case(
        "olmo",
        "OlmoConfig",
        "OlmoForCausalLM",
        {**LLAMA, "clip_qkv": 8.0},
        (_sizes, _kv_heads, _rope, _olmo),
        (_permuted,),
    ),
    "olmo2": Case("olmo2", "Olmo2Config", "Olmo2ForCausalLM", LLAMA, (_sizes, _kv_heads, _rope)),
    "command-r": Case(
        "command-r",
        "CohereConfig",
        "CohereForCausalLM",
        {**LLAMA, "use_qk_norm": True, "logit_scale": 0.0625},
        (_sizes, _kv_heads, _rope, _cohere),
    ),
    "gemma": Case(
        "gemma",
        "GemmaConfig",
        "GemmaForCausalLM",
        {**_BIGGER_HEADS, "hidden_activation": "gelu_pytorch_tanh"},
        (_sizes, _kv_heads, _key_length),
        (_one_plus,),
    ),
    "gemma2": Case(
        "gemma2",
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {**_BIGGER_HEADS, "sliding_window": 16, "query_pre_attn_scalar": 16},
        (_sizes, _kv_heads, _key_length, _gemma2),
        (_one_plus,),
        loader=True,
    ),
    "gemma3": Case(
        "gemma3",
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {**_BIGGER_HEADS, "num_hidden_layers": 7, "sliding_window": 16, "query_pre_attn_scalar": 16}
        | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        (_sizes, _kv_heads, _key_length, _rope, _gemma3),
        (_one_plus,),
        not_said=frozenset({"_sliding_window_pattern"}),
        loader=True,
    ),
    "phi2": Case(
        "phi2",
        "PhiConfig",
        "PhiForCausalLM",
        {**LLAMA, "num_key_value_heads": 4, "intermediate_size": 128, "partial_rotary_factor": 0.5},
        (_sizes, _kv_heads, _partial_rotary),
    ),
    "phi2 of an older converter": Case(
        "phi2",
        "PhiConfig",
        "PhiForCausalLM",
        {**LLAMA, "num_key_value_heads": 4, "partial_rotary_factor": 0.5},
        (_sizes, _kv_heads, _partial_rotary),
        (_fused,),
    ),
    "phi3": Case(
        "phi3",
        "Phi3Config",
        "Phi3ForCausalLM",
        {**LLAMA, "sliding_window": 2047, "original_max_position_embeddings": 64},
        (_sizes, _kv_heads, _rope, _phi3),
        (_long_factors,),
        loader=True,
    ),
    "phi3 with long factors": Case(
        "phi3",
        "Phi3Config",
        "Phi3ForCausalLM",
        {**LLAMA, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 16, "hidden_size": 64}
        | {
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 4.0],
                "long_factor": [8.0] * 6,
            }
        },
        (_sizes, _kv_heads, _rope, _partial_rotary, _phi3),
        (_long_factors,),
    ),
    "starcoder2": Case(
        "starcoder2", "Starcoder2Config", "Starcoder2ForCausalLM", LLAMA, (_sizes, _kv_heads, _rope), loader=True
    ),
    "stablelm": Case(
        "stablelm",
        "StableLmConfig",
        "StableLmForCausalLM",
        {**LLAMA, "partial_rotary_factor": 0.25, "use_qkv_bias": True},
        (_sizes, _kv_heads, _partial_rotary, _stablelm),
        (_stacked_norms,),
    ),
    "stablelm 12b": Case(
        "stablelm",
        "StableLmConfig",
        "StableLmForCausalLM",
        {**LLAMA, "partial_rotary_factor": 0.25, "qk_layernorm": True, "use_parallel_residual": True},
        (_sizes, _kv_heads, _partial_rotary, _stablelm),
        (_stacked_norms,),
    ),
    "gpt2": Case(
        "gpt2",
        "GPT2Config",
        "GPT2LMHeadModel",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 1024, "vocab_size": 40, "n_inner": 128}
        | {"bos_token_id": 1, "eos_token_id": 2},
        (_sizes,),
        (_input_last,),
        loader=True,
    ),
    "starcoder": Case(
        "starcoder",
        "GPTBigCodeConfig",
        "GPTBigCodeForCausalLM",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 40, "n_inner": 128}
        | {"bos_token_id": 1, "eos_token_id": 2, "multi_query": True},
        (_sizes, _one_key),
    ),
    "falcon 7b": Case(
        "falcon",
        "FalconConfig",
        "FalconForCausalLM",
        {**_FALCON, "new_decoder_architecture": False, "multi_query": True},
        (_sizes, _falcon, _rope),
        (_ungrouped,),
        not_said=frozenset({"num_kv_heads"}),  # not read, there is one
    ),
    "falcon 40b": Case(
        "falcon",
        "FalconConfig",
        "FalconForCausalLM",
        {**_FALCON, "new_decoder_architecture": True, "multi_query": False, "num_kv_heads": 2},
        (_sizes, _falcon, _rope),
        (_ungrouped,),
        not_said=frozenset({"num_ln_in_parallel_attn"}),  # its default is what the file has
    ),
    "falcon 11b": Case(
        "falcon",
        "FalconConfig",
        "FalconForCausalLM",
        {**_FALCON, "new_decoder_architecture": True, "multi_query": False, "num_kv_heads": 2}
        | {"num_ln_in_parallel_attn": 1},
        (_sizes, _falcon, _rope),
        (_ungrouped,),
    ),
    "bloom": Case(
        "bloom",
        "BloomConfig",
        "BloomForCausalLM",
        {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 40, "seq_length": 64}
        | {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3},
        (_sizes,),
        (_ungrouped, _bare),
        loader=True,
    ),
    "gptneox": Case(
        "gptneox",
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "bos_token_id": 1}
        | {"eos_token_id": 2, "intermediate_size": 48, "max_position_embeddings": 64, "rotary_pct": 0.25},
        (_sizes, _partial_rotary, _neox),
        (_ungrouped,),
    ),
}


def random_model(case: Case) -> Any:
    """The model in float32, every parameter random, on a grid on which adding 1 loses nothing."""
    torch, transformers = import_torch(), import_transformers()
    torch.manual_seed(0)
    with transformers.modeling_utils.no_init_weights():  # StableLM's own initialization fails with norms on heads
        model = getattr(transformers, case.cls)(getattr(transformers, case.config)(**case.settings)).eval()
    model.set_attn_implementation("eager")  # the others leave Gemma 2's limit of attention logits out
    model.tie_weights()
    model.float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-128, 129, parameter.shape) / 512)
    return model


def arrays_of(model: Any) -> Arrays:
    """The state dict, without the head where it is the embedding."""
    tied = model.config.tie_word_embeddings
    return {k: v.numpy() for k, v in model.state_dict().items() if not (tied and k == "lm_head.weight")}


def write_gguf(path: Path, case: Case, model: Any, kind: GGMLQuantizationType | None = None) -> Path:
    """The model as a GGUF file with a vocabulary of made-up tokens: float32, or matrices of another ``kind``."""
    config = model.config
    arrays = arrays_of(model)
    for step in case.rearrange:
        arrays = step(config, arrays)
    arch = {name: number for number, name in MODEL_ARCH_NAMES.items()}[case.arch]
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    writer = GGUFWriter(path, case.arch)
    for describe in case.describe:
        describe(writer, config)
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    if getattr(config, "pad_token_id", None) is not None:
        writer.add_pad_token_id(config.pad_token_id)
    for name, array in arrays.items():
        stored = array if kind is None or array.ndim < 2 else quantize(array, kind)
        writer.add_tensor(
            names.get_name(name, try_suffixes=(".weight", ".bias")) or name,
            stored,
            raw_dtype=None if stored is array else kind,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
