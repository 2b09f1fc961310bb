"""LFM2 and LFM2 MoE: layers with a short convolution, which have no keys, among layers with attention."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import NUMBERED, RMS_NORM_EPS, SIZES, GgufArchitecture, gated
from edgegen_export.checkpoint.gguf.architectures.experts import each_expert
from edgegen_export.checkpoint.gguf.architectures.experts_behind_dense import weights_scale
from edgegen_export.checkpoint.gguf.architectures.llama_like import ATTENTION, LLAMA
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import Parameter, Unsqueezed
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader


def _layer_types(read: MetadataReader) -> Entries:
    return {"layer_types": ["full_attention" if attends else "conv" for attends in read.layers_with_attention()]}


LFM2 = replace(
    LLAMA,
    model_type="lfm2",
    integers={**SIZES, "shortconv.l_cache": "conv_L_cache"},
    reals={RMS_NORM_EPS: "norm_eps"},
    layer={
        "attn_norm": "operator_norm",
        **ATTENTION,
        "attn_output": "self_attn.out_proj",
        "attn_q_norm": "self_attn.q_layernorm",
        "attn_k_norm": "self_attn.k_layernorm",
        "shortconv.conv": Unsqueezed("conv.conv", axis=1),
        "shortconv.in_proj": "conv.in_proj",
        "shortconv.out_proj": "conv.out_proj",
        "ffn_norm": "ffn_norm",
        **gated("feed_forward", NUMBERED),
    },
    top={"token_embd": "model.embed_tokens", "token_embd_norm": "model.embedding_norm", "output": "lm_head"},
    rules=(_layer_types, rule.grouped_heads, rule.full_rotary),
    constants={"block_auto_adjust_ff_dim": False},  # the file has the width that came of it
)


def _experts(read: MetadataReader) -> Entries:
    dense = read.integer("leading_dense_block_count", 0, least=0)
    return {
        "num_experts": read.integer("expert_count"),
        "num_experts_per_tok": read.integer("expert_used_count"),
        "moe_intermediate_size": read.integer("expert_feed_forward_length"),
        "num_dense_layers": dense,
        "use_expert_bias": read.has("blk.{i}.exp_probs_b.bias", dense),
        "norm_topk_prob": read.flag("expert_weights_norm", True),
        "routed_scaling_factor": weights_scale(read),
    }


LFM2MOE = replace(
    LFM2,
    model_type="lfm2_moe",
    layer={
        **LFM2.layer,
        "ffn_gate_inp": "feed_forward.gate",
        "exp_probs_b": Parameter("feed_forward.expert"),
        **each_expert("feed_forward.experts", NUMBERED),
    },
    rules=(_layer_types, _experts, rule.weighed_by_sigmoids(2), rule.grouped_heads, rule.full_rotary),
    constants={},
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "lfm2": LFM2,
    "lfm2moe": LFM2MOE,
}
