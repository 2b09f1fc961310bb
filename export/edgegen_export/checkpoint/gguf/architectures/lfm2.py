"""LFM2: short convolutions in the layers that have no key heads."""

from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import RMS_NORM_EPS, SIZES, modules
from edgegen_export.checkpoint.gguf.architectures.llama_like import LLAMA, PREFIX
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import OneChannel
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader


def _layers(read: MetadataReader) -> Entries:
    return {
        "num_key_value_heads": read.heads.keys,
        "layer_types": ["full_attention" if attends else "conv" for attends in read.attending],
        "block_auto_adjust_ff_dim": False,  # the file has the width that came of it
        "conv_bias": read.has_anywhere("shortconv.conv.bias"),
    }


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
            "ffn_norm": "ffn_norm",
            **{f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"},
            "attn_output": "self_attn.out_proj",
            **{f"attn_{x}_norm": f"self_attn.{x}_layernorm" for x in "qk"},
            "shortconv.conv": OneChannel("conv.conv"),
            "shortconv.in_proj": "conv.in_proj",
            "shortconv.out_proj": "conv.out_proj",
            "ffn_gate": "feed_forward.w1",
            "ffn_up": "feed_forward.w3",
            "ffn_down": "feed_forward.w2",
        },
        PREFIX,
    ),
    rules=(rule.full_rotary, _layers),
)
