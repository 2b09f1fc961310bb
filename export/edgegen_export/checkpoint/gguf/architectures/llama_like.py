"""Llama and its relatives: RMSNorm before attention and MLP or after them, rotary positions, gated MLP."""

import math
from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import (
    LAYER_NORM_EPS,
    NUMBERED,
    PREFIX,
    RMS_NORM_EPS,
    SIZES,
    TOP,
    GgufArchitecture,
    Modules,
    gated,
)
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import Each, Flat, GroupedHeads, RotaryPairs
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader

ATTENTION: Modules = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
GATED_MLP: Modules = gated("mlp")
NORMS: Modules = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
LATE_NORMS: Modules = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"}
"""The same, where files call the second one by its place."""
PAIRED: Modules = {"attn_q": RotaryPairs("self_attn.q_proj"), "attn_k": RotaryPairs("self_attn.k_proj")}
QK_NORMS: Modules = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_ATTENTION_BIAS = rule.bias("attention_bias", "attn_q")
_RULES = (rule.grouped_heads, rule.head_dim_if_own, rule.full_rotary)

LLAMA = GgufArchitecture(
    model_type="llama",
    integers=SIZES,
    reals={RMS_NORM_EPS: "rms_norm_eps"},
    layer={**NORMS, **ATTENTION, **PAIRED, **GATED_MLP},
    rules=(*_RULES, _ATTENTION_BIAS, rule.bias("mlp_bias", "ffn_up")),
)
QWEN2 = replace(
    LLAMA,
    model_type="qwen2",
    layer={**NORMS, **ATTENTION, **GATED_MLP},
    rules=_RULES,
)
QWEN3 = replace(
    QWEN2,
    model_type="qwen3",
    layer={**NORMS, **ATTENTION, **QK_NORMS, **GATED_MLP},
    rules=(*rule.WHOLE_HEADS, _ATTENTION_BIAS),
)


def _passes(read: MetadataReader) -> Entries:
    return {
        "num_loops": read.integer("num_loops", 1),
        "skip_loop_final_norm": read.flag("skip_loop_final_norm", False),
    }


NANBEIGE = replace(LLAMA, model_type="nanbeige", rules=(*LLAMA.rules, _passes))


def _cycles(read: MetadataReader) -> Entries:
    keys = {"layers_per_stack": "num_layers_per_stack", "h_cycles": "H_cycles", "l_cycles": "L_cycles"}
    return {
        **{theirs: read.integer(f"hrm.{ours}") for ours, theirs in keys.items()},
        "embedding_scale": read.real("embedding_scale"),
        "prefix_lm": read.flag("hrm.prefix_lm", False),
    }


HRM_TEXT = replace(
    LLAMA,
    model_type="hrm_text",
    layer={**ATTENTION, "attn_gate": "self_attn.gate_proj", **GATED_MLP},
    top={"token_embd": "model.embed_tokens", "hrm.z_l_init": Flat("model.z_L_init"), "output": "lm_head"},
    prefix="model.{stack}.layers.{i}.",
    rules=(*rule.WHOLE_HEADS, _cycles),
    stacks=("L_module", "H_module"),
)


def _every_fourth_unrotated(read: MetadataReader) -> Entries:
    return {"no_rope_layers": [int((i + 1) % 4 != 0) for i in range(read.layers)]}


SMOLLM3 = replace(
    LLAMA,
    model_type="smollm3",
    rules=(*LLAMA.rules, _every_fourth_unrotated),
)


def _granite(read: MetadataReader) -> Entries:
    """Granite, or a Granite 4 whose layers all have attention: it names the MLP that experts would share, and the sizes
    of recurrent layers that it has not."""
    read.refuse("rope.scaling.finetuned", (True,), "attention without rotary positions is not supported")
    read.ignore(*(f"ssm.{key}" for key in ("conv_kernel", "group_count", "inner_size", "state_size", "time_step_rank")))
    shared = read.integer("expert_shared_feed_forward_length", 0, least=0)
    return ({"intermediate_size": shared} if shared else {}) | {
        "attention_multiplier": read.real("attention.scale", read.heads.size**-0.5),
        "embedding_multiplier": read.real("embedding_scale", 1.0),
        "residual_multiplier": read.real("residual_scale", 1.0),
    }


GRANITE = replace(
    LLAMA,
    model_type="granite",
    reals={RMS_NORM_EPS: "rms_norm_eps", "logit_scale": "logits_scaling"},
    rules=(*LLAMA.rules, _granite),
)


def _minicpm(read: MetadataReader) -> Entries:
    """Its config says as scales what the file has as factors."""
    return {
        "scale_emb": read.real("embedding_scale"),
        "scale_depth": read.real("residual_scale") * math.sqrt(read.layers),
        "dim_model_base": read.hidden_size / (read.real("logit_scale") or 1.0),
    }


MINICPM = replace(LLAMA, model_type="minicpm", rules=(*LLAMA.rules, _minicpm))


def _olmo(read: MetadataReader) -> Entries:
    read.refuse(LAYER_NORM_EPS, (1e-5,), "the norms of this architecture always have 1e-05")
    limit = read.real("attention.clamp_kqv", 0.0)
    return {"clip_qkv": limit} if limit else {}


OLMO = replace(
    LLAMA,
    model_type="olmo",
    reals={},
    layer={**ATTENTION, **PAIRED, **GATED_MLP},
    top={name: theirs for name, theirs in TOP.items() if name != "output_norm"},
    rules=(*_RULES, _ATTENTION_BIAS, _olmo),
)


def _olmo3_windows(read: MetadataReader) -> Entries:
    """Windows, which make an OLMo 3 of an OLMo 2."""
    if not read.integer("attention.sliding_window", 0, least=0):
        return {}
    return {"model_type": "olmo3", **rule.sliding_layers(4)(read)}


OLMO2 = replace(
    LLAMA,
    model_type="olmo2",
    layer={
        **ATTENTION,
        **QK_NORMS,
        "post_attention_norm": "post_attention_layernorm",
        **GATED_MLP,
        "post_ffw_norm": "post_feedforward_layernorm",
    },
    rules=(*_RULES, _ATTENTION_BIAS, _olmo3_windows),
)


COMMAND_R = replace(
    LLAMA,
    model_type="cohere",
    reals={LAYER_NORM_EPS: "layer_norm_eps", "logit_scale": "logit_scale"},
    layer={"attn_norm": "input_layernorm", **ATTENTION, **QK_NORMS, **GATED_MLP},
    rules=(*_RULES, _ATTENTION_BIAS, rule.has("use_qk_norm", "attn_q_norm.weight")),
)

COHERE2 = replace(
    COMMAND_R,
    model_type="cohere2",
    layer={"attn_norm": "input_layernorm", **ATTENTION, **GATED_MLP},
    rules=(*rule.WHOLE_HEADS, _ATTENTION_BIAS, rule.sliding_layers(4)),
)


def _exaone(read: MetadataReader) -> Entries:
    """Its norm's epsilon, which some converters write under the other kind's key, as its config does."""
    other = read.real(LAYER_NORM_EPS, 0.0)
    return {"rms_norm_eps": read.real(RMS_NORM_EPS, other or None)}


EXAONE = replace(
    LLAMA,
    model_type="exaone",
    reals={},
    layer={
        "attn_norm": "ln_1",
        **{f"attn_{x}": f"attn.attention.{x}_proj" for x in "qkv"},
        "attn_output": "attn.attention.out_proj",
        "ffn_norm": "ln_2",
        **gated("mlp", ("c_fc_0", "c_fc_1", "c_proj")),
    },
    top={"token_embd": "transformer.wte", "output_norm": "transformer.ln_f", "output": "lm_head"},
    prefix="transformer.h.{i}.",
    rules=(*_RULES, _exaone),
)

_WQKV = f"{PREFIX}attention.w"
INTERNLM2 = replace(
    LLAMA,
    model_type="internlm2",
    layer={
        "attn_norm": "attention_norm",
        "attn_q": RotaryPairs("attention.wq"),
        "attn_k": RotaryPairs("attention.wk"),
        "attn_v": "attention.wv",
        "attn_output": "attention.wo",
        "ffn_norm": "ffn_norm",
        **gated("feed_forward", NUMBERED),
    },
    top={"token_embd": "model.tok_embeddings", "output_norm": "model.norm", "output": "output"},
    joined=tuple(
        GroupedHeads(tuple(f"{_WQKV}{x}.{kind}" for x in "qkv"), f"{_WQKV}qkv.{kind}") for kind in ("weight", "bias")
    ),
    rules=_RULES,
)


ORION = replace(QWEN2, model_type="orion", reals={LAYER_NORM_EPS: "rms_norm_eps"}, rules=_RULES)


def _of_7b(read: MetadataReader) -> Entries:
    """Only the number of layers tells 13B, by which llama.cpp knows it too."""
    if read.layers == 40:
        read.refuse("block_count", (), "Baichuan of 13B has ALiBi: export its original")
    return {}


BAICHUAN = replace(LLAMA, rules=(*LLAMA.rules, _of_7b))
"""Queries, keys and values apart, and positions rotated, as in Llama; the head of Baichuan 2 was divided before."""


STARCODER2 = replace(
    LLAMA,
    model_type="starcoder2",
    reals={LAYER_NORM_EPS: "norm_epsilon"},
    layer={**NORMS, **ATTENTION, "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    rules=(*_RULES, rule.has("use_bias", "attn_q.bias")),
)


def _stablelm(read: MetadataReader) -> Entries:
    read.ignore("use_parallel_residual")  # older converters wrote true for every model
    return {"use_parallel_residual": not read.has("blk.{i}.ffn_norm.weight")}


STABLELM = replace(
    LLAMA,
    model_type="stablelm",
    reals={LAYER_NORM_EPS: "layer_norm_eps"},
    layer={
        **NORMS,
        **ATTENTION,
        "attn_q_norm": Each("self_attn.q_layernorm.norms.{n}"),
        "attn_k_norm": Each("self_attn.k_layernorm.norms.{n}"),
        **GATED_MLP,
    },
    rules=(
        rule.grouped_heads,
        rule.partial_rotary("partial_rotary_factor"),
        _stablelm,
        rule.has("qk_layernorm", "attn_q_norm.weight"),
        rule.has("use_qkv_bias", "attn_q.bias"),
    ),
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "baichuan": BAICHUAN,
    "cohere2": COHERE2,
    "command-r": COMMAND_R,
    "exaone": EXAONE,
    "granite": GRANITE,
    "hrm_text": HRM_TEXT,
    "internlm2": INTERNLM2,
    "minicpm": MINICPM,
    "nanbeige": NANBEIGE,
    "olmo": OLMO,
    "olmo2": OLMO2,
    "orion": ORION,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "smollm3": SMOLLM3,
    "stablelm": STABLELM,
    "starcoder2": STARCODER2,
    "xverse": LLAMA,
}
