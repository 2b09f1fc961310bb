"""Arcee, Nemotron and Jais 2: relatives of Llama whose MLP has no gate and squares its ReLU."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import LAYER_NORM_EPS, GgufArchitecture, Modules, modules
from edgegen_export.checkpoint.gguf.architectures.llama_like import ATTENTION, LLAMA, NORMS, PREFIX, TOP
from edgegen_export.checkpoint.gguf.layouts import OnePlus, RotaryPairs

_MLP: Modules = {"ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_PAIRED: Modules = {"attn_q": RotaryPairs("self_attn.q_proj"), "attn_k": RotaryPairs("self_attn.k_proj")}
_BIASES = (rule.bias("attention_bias", "attn_q"), rule.bias("mlp_bias", "ffn_up"))

ARCEE = replace(
    LLAMA,
    model_type="arcee",
    hf_class="ArceeForCausalLM",
    modules=modules(TOP, {**NORMS, **ATTENTION, **_PAIRED, **_MLP}, PREFIX),
)
NEMOTRON = replace(
    LLAMA,
    model_type="nemotron",
    hf_class="NemotronForCausalLM",
    reals={LAYER_NORM_EPS: "norm_eps"},
    modules=modules(
        {**TOP, "output_norm": OnePlus("model.norm")},
        {
            "attn_norm": OnePlus("input_layernorm"),
            "ffn_norm": OnePlus("post_attention_layernorm"),
            **ATTENTION,
            **_MLP,
        },
        PREFIX,
    ),
    rules=(rule.grouped_heads, rule.head_dim_if_own, rule.partial_rotary("partial_rotary_factor"), *_BIASES),
)
JAIS2 = replace(
    LLAMA,
    model_type="jais2",
    hf_class="Jais2ForCausalLM",
    reals={LAYER_NORM_EPS: "layer_norm_eps"},
    modules=modules(TOP, {**NORMS, **ATTENTION, **_MLP}, PREFIX),
    rules=(rule.grouped_heads, rule.head_dim_if_own, rule.full_rotary),
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "arcee": ARCEE,
    "jais2": JAIS2,
    "nemotron": NEMOTRON,
}
