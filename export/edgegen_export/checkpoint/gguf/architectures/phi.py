"""Phi-2, with parallel attention and MLP, and Phi-3, with everything fused that can be."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import LAYER_NORM_EPS, TOP, GgufArchitecture, modules
from edgegen_export.checkpoint.gguf.architectures.llama_like import ATTENTION, LLAMA, NORMS
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import Fused
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader

_RULES = (rule.grouped_heads, rule.partial_rotary("partial_rotary_factor"))

PHI2 = replace(
    LLAMA,
    model_type="phi",
    reals={LAYER_NORM_EPS: "layer_norm_eps"},
    modules=modules(
        {
            "attn_norm": "input_layernorm",
            **ATTENTION,
            "attn_qkv": Fused("self_attn.{part}_proj"),  # of older conversions
            "attn_output": "self_attn.dense",
            "ffn_up": "mlp.fc1",
            "ffn_down": "mlp.fc2",
        },
        {**TOP, "output_norm": "model.final_layernorm"},
    ),
    rules=_RULES,
)


def _phi3(read: MetadataReader) -> Entries:
    original = read.integer("rope.scaling.original_context_length", 0, least=0)
    entries = {"original_max_position_embeddings": original} if original else {}
    return {"sliding_window": read.integer("attention.sliding_window", 0, least=0) or None, **entries}


PHI3 = replace(
    LLAMA,
    model_type="phi3",
    modules=modules(
        {
            **NORMS,
            "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_up": "mlp.gate_up_proj",
            "ffn_down": "mlp.down_proj",
        }
    ),
    rules=(*_RULES, _phi3),
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "phi2": PHI2,
    "phi3": PHI3,
}
