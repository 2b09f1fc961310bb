"""Llama with norms, rotations and windows of their own; Phi; and MLPs without a gate that square their ReLU, or have
xIELU's numbers in the metadata."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import (
    LAYER_NORM_EPS,
    PREFIX,
    TOP,
    GgufArchitecture,
    Modules,
    Vectors,
)
from edgegen_export.checkpoint.gguf.architectures.llama_like import (
    ATTENTION,
    GATED_MLP,
    LATE_NORMS,
    LLAMA,
    NORMS,
    OLMO2,
    PAIRED,
    QK_NORMS,
    QWEN3,
)
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import Fused, OnePlus, RotaryHalves
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader

_HEADS = (rule.grouped_heads, rule.head_dim)
_MLP: Modules = {"ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def _mistral3(read: MetadataReader) -> Entries:
    """A Ministral 3 where queries are scaled by their position, and a Mistral elsewhere."""
    beta = read.real("attention.temperature_scale", 0.0)
    mscale = read.real("rope.scaling.yarn_log_multiplier", 0.0)
    rope = rule.full_rotary(read)
    if not beta:
        return {"model_type": "mistral", "sliding_window": None, **rope}
    scaling = {"rope_type": "default", **rope.get("rope_scaling", {})}
    mscales = {"mscale": 1.0, "mscale_all_dim": mscale} if mscale else {}
    numbers = {"rope_theta": rope["rope_theta"], "llama_4_scaling_beta": beta}
    return {"rope_parameters": {**scaling, **mscales, **numbers}}


MISTRAL3 = replace(LLAMA, model_type="ministral3", rules=(*_HEADS, _mistral3))

ERNIE4_5 = replace(
    LLAMA,
    model_type="ernie4_5",
    layer={**NORMS, **ATTENTION, **GATED_MLP},
    rules=(*rule.WHOLE_HEADS, rule.bias("use_bias", "attn_q")),
)

HUNYUAN_DENSE = replace(
    QWEN3,
    model_type="hunyuan_v1_dense",
    layer={
        **NORMS,
        **ATTENTION,
        "attn_q_norm": "self_attn.query_layernorm",
        "attn_k_norm": "self_attn.key_layernorm",
        **GATED_MLP,
    },
)


def _exaone4(read: MetadataReader) -> Entries:
    """Without a window, all layers attend to everything, and all rotate."""
    if read.integer("attention.sliding_window", 0, least=0):
        return rule.sliding_layers(4)(read)
    return {"sliding_window": None, "layer_types": ["full_attention"] * read.layers}


EXAONE4 = replace(OLMO2, model_type="exaone4", rules=(*rule.WHOLE_HEADS, _exaone4))


_ATTENTION_BIAS = rule.has("attention_bias", "attn_q.bias", "attn_qkv.bias")
"""Said either way, since the class's default is that there is one."""
_GLM_LAYER: Modules = {**NORMS, **ATTENTION, "ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}
_GLM_RULES = (*_HEADS, rule.partial_rotary("partial_rotary_factor"), _ATTENTION_BIAS)
CHATGLM = replace(
    LLAMA,
    model_type="glm",
    layer={**_GLM_LAYER, "attn_qkv": Fused("self_attn.{part}_proj")},
    rules=_GLM_RULES,
)


def _glm4(read: MetadataReader) -> Entries:
    """GLM-4; or the language model of GLM-4.1V or GLM-OCR, whose file has positions of pictures, and what is rotated
    arranged for them."""
    if any(read.numbers("rope.dimension_sections")):
        read.heads = read.heads._replace(halved=read.integer("rope.dimension_count", read.heads.size))
    return rule.without_drafts(read)


GLM4 = replace(
    CHATGLM,
    model_type="glm4",
    layer={
        **_GLM_LAYER,
        "attn_q": RotaryHalves("self_attn.q_proj"),
        "attn_k": RotaryHalves("self_attn.k_proj"),
        "post_attention_norm": "post_self_attn_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
    },
    rules=(*_GLM_RULES, _glm4),
)

_XIELU: Vectors = {
    f"xielu.{name}": (f"{PREFIX}mlp.act_fn.{name}", shape)
    for name, shape in (("alpha_p", (1,)), ("alpha_n", (1,)), ("beta", ()), ("eps", ()))
}
APERTUS = replace(
    QWEN3,
    model_type="apertus",
    layer={
        "attn_norm": "attention_layernorm",
        **ATTENTION,
        **QK_NORMS,
        "ffn_norm": "feedforward_layernorm",
        **_MLP,
    },
    rules=(*QWEN3.rules, rule.no_default_scaling),
    vectors=_XIELU,
)

SEED_OSS = replace(
    LLAMA,
    model_type="seed_oss",
    layer={**LATE_NORMS, **ATTENTION, **GATED_MLP},
    rules=(
        *_HEADS,
        rule.full_rotary,
        _ATTENTION_BIAS,
        rule.bias("attention_out_bias", "attn_output"),
        rule.bias("mlp_bias", "ffn_up"),
    ),
)

_RULES = (rule.grouped_heads, rule.partial_rotary("partial_rotary_factor"))

PHI2 = replace(
    LLAMA,
    model_type="phi",
    reals={LAYER_NORM_EPS: "layer_norm_eps"},
    layer={
        "attn_norm": "input_layernorm",
        **ATTENTION,
        "attn_qkv": Fused("self_attn.{part}_proj"),  # of older conversions
        "attn_output": "self_attn.dense",
        "ffn_up": "mlp.fc1",
        "ffn_down": "mlp.fc2",
    },
    top={**TOP, "output_norm": "model.final_layernorm"},
    rules=_RULES,
)


def _phi3(read: MetadataReader) -> Entries:
    original = read.integer("rope.scaling.original_context_length", 0, least=0)
    entries = {"original_max_position_embeddings": original} if original else {}
    return {"sliding_window": read.integer("attention.sliding_window", 0, least=0) or None, **entries}


PHI3 = replace(
    LLAMA,
    model_type="phi3",
    layer={
        **NORMS,
        "attn_qkv": "self_attn.qkv_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_up": "mlp.gate_up_proj",
        "ffn_down": "mlp.down_proj",
    },
    rules=(*_RULES, _phi3),
)

_BIASES = (rule.bias("attention_bias", "attn_q"), rule.bias("mlp_bias", "ffn_up"))

ARCEE = replace(
    LLAMA,
    model_type="arcee",
    layer={**NORMS, **ATTENTION, **PAIRED, **_MLP},
)
NEMOTRON = replace(
    LLAMA,
    model_type="nemotron",
    reals={LAYER_NORM_EPS: "norm_eps"},
    layer={
        "attn_norm": OnePlus("input_layernorm"),
        "ffn_norm": OnePlus("post_attention_layernorm"),
        **ATTENTION,
        **_MLP,
    },
    top={**TOP, "output_norm": OnePlus("model.norm")},
    rules=(rule.grouped_heads, rule.head_dim_if_own, rule.partial_rotary("partial_rotary_factor"), *_BIASES),
)
JAIS2 = replace(
    LLAMA,
    model_type="jais2",
    reals={LAYER_NORM_EPS: "layer_norm_eps"},
    layer={**NORMS, **ATTENTION, **_MLP},
    rules=(rule.grouped_heads, rule.head_dim_if_own, rule.full_rotary),
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "apertus": APERTUS,
    "arcee": ARCEE,
    "chatglm": CHATGLM,
    "ernie4_5": ERNIE4_5,
    "exaone4": EXAONE4,
    "glm4": GLM4,
    "hunyuan-dense": HUNYUAN_DENSE,
    "jais2": JAIS2,
    "mistral3": MISTRAL3,
    "nemotron": NEMOTRON,
    "phi2": PHI2,
    "phi3": PHI3,
    "seed_oss": SEED_OSS,
}
