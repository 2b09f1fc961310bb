"""LFM2: layers with a short convolution, which have no keys, among layers with attention."""

from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import RMS_NORM_EPS, SIZES, modules
from edgegen_export.checkpoint.gguf.architectures.llama_like import LLAMA, PREFIX
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import Unsqueezed
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader


def _layer_types(read: MetadataReader) -> Entries:
    kinds = ["full_attention" if attends else "conv" for attends in read.layers_with_attention()]
    return {"layer_types": kinds, "block_auto_adjust_ff_dim": False}  # the file has the width that came of it


LFM2 = replace(
    LLAMA,
    model_type="lfm2",
    hf_class="Lfm2ForCausalLM",
    integers={**SIZES, "shortconv.l_cache": "conv_L_cache"},
    reals={RMS_NORM_EPS: "norm_eps"},
    modules=modules(
        {"token_embd": "model.embed_tokens", "token_embd_norm": "model.embedding_norm", "output": "lm_head"},
        {
            "attn_norm": "operator_norm",
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.out_proj",
            "attn_q_norm": "self_attn.q_layernorm",
            "attn_k_norm": "self_attn.k_layernorm",
            "shortconv.conv": Unsqueezed("conv.conv", axis=1),
            "shortconv.in_proj": "conv.in_proj",
            "shortconv.out_proj": "conv.out_proj",
            "ffn_norm": "ffn_norm",
            "ffn_gate": "feed_forward.w1",
            "ffn_up": "feed_forward.w3",
            "ffn_down": "feed_forward.w2",
        },
        PREFIX,
    ),
    rules=(_layer_types, rule.grouped_heads, rule.full_rotary),
)
