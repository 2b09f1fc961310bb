"""Gemma, 1 to 3: norms that store 1 + w, a head of their own width, then norms on both sides and sliding windows."""

from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import Modules, modules
from edgegen_export.checkpoint.gguf.architectures.llama_like import ATTENTION, GATED_MLP, LLAMA, PREFIX, TOP
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import OnePlus
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader

_TOP: Modules = {**TOP, "output_norm": OnePlus("model.norm")}
_RULES = (rule.grouped_heads, rule.head_dim, rule.full_rotary)
_LAYER: Modules = {
    "attn_norm": OnePlus("input_layernorm"),
    **ATTENTION,
    "ffn_norm": OnePlus("post_attention_layernorm"),
    **GATED_MLP,
}
_SANDWICH: Modules = {
    **_LAYER,
    "post_attention_norm": OnePlus("post_attention_layernorm"),
    "ffn_norm": OnePlus("pre_feedforward_layernorm"),
    "post_ffw_norm": OnePlus("post_feedforward_layernorm"),
}
_QK_NORMS: Modules = {"attn_q_norm": OnePlus("self_attn.q_norm"), "attn_k_norm": OnePlus("self_attn.k_norm")}

GEMMA = replace(
    LLAMA,
    model_type="gemma",
    hf_class="GemmaForCausalLM",
    modules=modules(_TOP, _LAYER, PREFIX),
    rules=_RULES,
    constants={"hidden_activation": "gelu_pytorch_tanh"},
)


def _softcaps(read: MetadataReader) -> Entries:
    keys = ("attn_logit_softcapping", "final_logit_softcapping")
    return {key: read.real(key, 0.0) or None for key in keys}


GEMMA2 = replace(
    GEMMA,
    model_type="gemma2",
    hf_class="Gemma2ForCausalLM",
    modules=modules(_TOP, _SANDWICH, PREFIX),
    rules=(*_RULES, rule.sliding_layers(2, 4096), rule.gemma_attention_scale(46), _softcaps),
)


def _local_rope_theta(read: MetadataReader) -> Entries:
    return {"rope_local_base_freq": read.real("rope.freq_base_swa", 10000.0)}


GEMMA3 = replace(
    GEMMA2,
    model_type="gemma3_text",
    hf_class="Gemma3ForCausalLM",
    modules=modules(_TOP, {**_SANDWICH, **_QK_NORMS}, PREFIX),
    rules=(*_RULES, rule.sliding_layers(6), rule.gemma_attention_scale(62), _softcaps, _local_rope_theta),
)
