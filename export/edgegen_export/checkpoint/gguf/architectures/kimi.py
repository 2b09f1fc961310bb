"""Kimi delta attention, among layers of latent attention: Kimi Linear and Ling 3.0."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import NUMBERED, TOP, GgufArchitecture, Modules, gated
from edgegen_export.checkpoint.gguf.architectures.experts import each_expert
from edgegen_export.checkpoint.gguf.architectures.experts_behind_dense import (
    DEEPSEEK_EXPERTS,
    always_normalized,
    as_deepseek,
)
from edgegen_export.checkpoint.gguf.architectures.latent import DEEPSEEK2, LATENT, latent_sizes, per_head
from edgegen_export.checkpoint.gguf.architectures.llama_like import NORMS
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import Kernels, Parameter, Rates
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader


def _delta_attention(read: MetadataReader) -> Entries:
    """Layers without key heads have it, with as many heads as the others."""
    attends = read.layers_with_attention()
    return {
        "linear_attn_config": {
            "head_dim": read.integer("kda.head_dim"),
            "num_heads": read.integer("attention.head_count"),
            "short_conv_kernel_size": read.integer("ssm.conv_kernel"),
            "kda_layers": [i + 1 for i, attending in enumerate(attends) if not attending],
            "full_attn_layers": [i + 1 for i, attending in enumerate(attends) if attending],
        }
    }


def _normalized(read: MetadataReader) -> Entries:
    """Always so in llama.cpp, and nothing in its files says it."""
    return always_normalized(read) | {"norm_topk_prob": True}


def _delta(module: str) -> Modules:
    """Return the modules of delta attention that both models have; the original's name of it is ``module``."""
    return {
        **{f"attn_{x}": f"{module}.{x}_proj" for x in "kv"},
        **{f"ssm_conv1d_{x}": Kernels(f"{module}.{x}_conv1d") for x in "qkv"},
        "ssm_beta": f"{module}.b_proj",
        "ssm_dt": Parameter(f"{module}.dt"),
        "ssm_norm": f"{module}.o_norm",
    }


_MOE = "block_sparse_moe"
KIMI_LINEAR = replace(
    DEEPSEEK2,
    model_type="kimi_linear",
    layer={
        **NORMS,
        **LATENT,
        **_delta("self_attn"),
        **{f"ssm_{x}": f"self_attn.{x}_proj" for x in ("f_a", "f_b", "g_a", "g_b")},
        "ssm_a": Rates("self_attn.A_log", before=2, after=1),
        **gated(_MOE),  # as transformers 5 writes them
        "ffn_gate_inp": f"{_MOE}.gate",
        "exp_probs_b": Parameter(f"{_MOE}.gate.e_score_correction"),
        **each_expert(f"{_MOE}.experts", NUMBERED),
        **gated(f"{_MOE}.shared_experts", kind="_shexp"),
    },
    rules=(_delta_attention, latent_sizes, *as_deepseek("num_experts", "num_shared_experts"), _normalized),
)


def _bounded(read: MetadataReader) -> Entries:
    """Ling 3.0, whose decay has a bound. Layers that propose further tokens are left out."""
    attends, drafts = read.layers_with_attention(), rule.without_drafts(read)
    for key in ("swiglu_clamp_exp", "swiglu_clamp_shexp"):
        if any(read.by_layer(key)):
            read.wrong(key, "limits of what the gates of experts give are not supported, only 0 for each layer")
    kinds = ["full_attention" if attending else "linear_attention" for attending in attends]
    return {
        **drafts,
        "layer_types": kinds[: drafts["num_hidden_layers"]],
        "head_dim": read.integer("kda.head_dim"),
        "short_conv_kernel_size": read.integer("ssm.conv_kernel"),
        "kda_safe_gate": read.flag("kda.safe_gate", True),
        "kda_lower_bound": read.real("kda.gate_lower_bound"),
    }


_LING = "attention"
BAILINGMOE3 = replace(
    DEEPSEEK2,
    model_type="bailing_hybrid",
    layer={
        **NORMS,
        **{ours: str(theirs).replace("self_attn", _LING) for ours, theirs in LATENT.items()},
        "attn_output": f"{_LING}.dense",  # in all layers, as transformers 5 writes it
        "attn_gate": f"{_LING}.g_proj",
        **_delta(_LING),
        "ssm_f_a": f"{_LING}.f_proj",
        "ssm_g_a": f"{_LING}.g_proj",
        "ssm_a": Rates(f"{_LING}.A_log", positive=True),
        **DEEPSEEK_EXPERTS,
        "exp_probs_b": Parameter("mlp.gate.expert"),
    },
    top={**TOP, "token_embd": "model.word_embeddings"},
    rules=(
        _bounded,
        latent_sizes,
        rule.rope_scaling,
        rule.text_only,
        *as_deepseek("num_experts", "num_shared_experts"),
    ),
    joined=(per_head(_LING),),
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "bailingmoe3": BAILINGMOE3,
    "kimi-linear": KIMI_LINEAR,
}
