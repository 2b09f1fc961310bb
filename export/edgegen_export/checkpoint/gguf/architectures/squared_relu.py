"""Arcee, Nemotron and Jais 2: relatives of Llama whose MLP has no gate and squares its ReLU."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import LAYER_NORM_EPS, TOP, GgufArchitecture, Modules, modules
from edgegen_export.checkpoint.gguf.architectures.llama_like import ATTENTION, LLAMA, NORMS, PAIRED
from edgegen_export.checkpoint.gguf.layouts import OnePlus

_MLP: Modules = {"ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_BIASES = (rule.bias("attention_bias", "attn_q"), rule.bias("mlp_bias", "ffn_up"))

ARCEE = replace(
    LLAMA,
    model_type="arcee",
    modules=modules({**NORMS, **ATTENTION, **PAIRED, **_MLP}),
)
NEMOTRON = replace(
    LLAMA,
    model_type="nemotron",
    reals={LAYER_NORM_EPS: "norm_eps"},
    modules=modules(
        {
            "attn_norm": OnePlus("input_layernorm"),
            "ffn_norm": OnePlus("post_attention_layernorm"),
            **ATTENTION,
            **_MLP,
        },
        {**TOP, "output_norm": OnePlus("model.norm")},
    ),
    rules=(rule.grouped_heads, rule.head_dim_if_own, rule.partial_rotary("partial_rotary_factor"), *_BIASES),
)
JAIS2 = replace(
    LLAMA,
    model_type="jais2",
    reals={LAYER_NORM_EPS: "layer_norm_eps"},
    modules=modules({**NORMS, **ATTENTION, **_MLP}),
    rules=(rule.grouped_heads, rule.head_dim_if_own, rule.full_rotary),
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "arcee": ARCEE,
    "jais2": JAIS2,
    "nemotron": NEMOTRON,
}
