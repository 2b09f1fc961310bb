"""GLM-4: Llama with partial RoPE of adjacent pairs and fused gate and up; the 0414 models also normalize what attention
and MLP add.

GLM-4.5 to 4.7: Llama that rotates half of each head, with experts after the first layers, routed as in DeepSeek-V3, and
shared ones.
"""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.draft_input import DraftInput
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.draft_head import DraftHead
from edgegen_export.architecture.tensor_layouts import Concatenated
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, read_llama
from edgegen_export.families.qwen import qwen_mlp_tensors
from edgegen_export.reading.experts import DEEPSEEK_EXPERTS, behind_dense, with_deepseek_experts
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM

GLM_TENSORS = {
    **BESIDE_MLP,
    ("layers.{i}.mlp.gate.weight", "layers.{i}.mlp.up.weight"): Concatenated("layers.{i}.mlp.gate_up_proj.weight"),
    "layers.{i}.mlp.down.weight": "layers.{i}.mlp.down_proj.weight",
}
GLM_DEFAULTS = {
    **LLAMA_DEFAULTS,
    "vocab_size": 151552,
    "intermediate_size": 13696,
    "num_hidden_layers": 40,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1.5625e-7,
    "partial_rotary_factor": 0.5,
}


def read_glm(read: ConfigReader) -> DecoderConfig:
    """``GlmConfig``."""
    return read_llama(read, interleaved=True, partial=True)


GLM = Architecture(
    model_types=("glm",),
    classes=("GlmForCausalLM",),
    read=read_glm,
    tensors=GLM_TENSORS,
    defaults=GLM_DEFAULTS,
)

GLM4 = Architecture(
    model_types=("glm4",),
    classes=("Glm4ForCausalLM",),
    read=lambda read: replace(read_glm(read), block="sandwich"),
    tensors={
        **GLM_TENSORS,
        "layers.{i}.attn_post_norm.weight": "layers.{i}.post_self_attn_layernorm.weight",
        "layers.{i}.mlp_post_norm.weight": "layers.{i}.post_mlp_layernorm.weight",
    },
    defaults=GLM_DEFAULTS,
)


DRAFTS = "layers.{i}.eh_proj.weight"
"""Name of a tensor that layers that propose further tokens have."""

DRAFT_HEAD = DraftHead(
    "layers.{n}.",
    {
        "draft_in": "layers.{n}.eh_proj",
        "draft_embed_norm": "layers.{n}.enorm",
        "draft_hidden_norm": "layers.{n}.hnorm",
        "final_norm": "layers.{n}.shared_head.norm",
    },
    shared={"embed": "layers.{n}.embed_tokens", "head": "layers.{n}.shared_head.head"},
    takes=DraftInput(normed_output=False),
)
"""The first of them."""

GLM4_MOE_DEFAULTS = {
    **LLAMA_DEFAULTS,
    "vocab_size": 151552,
    "intermediate_size": 10944,
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "partial_rotary_factor": 0.5,
    "moe_intermediate_size": 1408,
    "num_experts_per_tok": 8,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
}


def read_glm4_moe(read: ConfigReader) -> DecoderConfig:
    """``Glm4MoeConfig``."""
    config = read_llama(read, partial=True)
    config = with_qk_norm(config) if read.flag("use_qk_norm") else config
    return with_deepseek_experts(read, config, behind_dense(read, "first_k_dense_replace", config.num_layers))


def glm4_moe_tensors(config: DecoderConfig) -> TensorMap:
    return {**BESIDE_MLP, **QK_NORM, **qwen_mlp_tensors(config, DEEPSEEK_EXPERTS)}


GLM4_MOE = Architecture(
    model_types=("glm4_moe",),
    classes=("Glm4MoeForCausalLM",),
    read=read_glm4_moe,
    tensors=glm4_moe_tensors,
    defaults=GLM4_MOE_DEFAULTS,
    drafts=DRAFTS,
    draft_head=DRAFT_HEAD,
    aliases={"num_local_experts": "n_routed_experts"},
)
