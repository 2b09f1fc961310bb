"""Ling and Ring 2.0 (BailingMoeV2), and Sarvam: Llama with a norm on each head of q and k, which may rotate in part,
and experts after the first layers, routed as in DeepSeek-V3, with shared ones."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.draft_head import DraftHead
from edgegen_export.families.glm4_moe import DRAFTS, GLM4_MOE_DEFAULTS
from edgegen_export.families.llama import LLAMA_TENSORS, read_llama
from edgegen_export.families.qwen_moe import qwen_mlp_tensors
from edgegen_export.reading.experts import SHARED_EXPERTS, behind_dense, with_deepseek_experts
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import joined_qkv, named


def read_sarvam_moe(read: ConfigReader) -> DecoderConfig:
    """``SarvamMoEConfig``."""
    config = read_llama(read, partial=True)
    config = with_qk_norm(config) if read.flag("use_qk_norm") else config
    sparse = behind_dense(read, "first_k_dense_replace", config.num_layers)
    return with_deepseek_experts(read, config, sparse, count_key="num_experts", shared_key="num_shared_experts")


def read_bailing_moe(read: ConfigReader) -> DecoderConfig:
    """``BailingMoeV2Config``, of the model's own code, which makes a single expert's weight not one."""
    config = read_sarvam_moe(read)
    read.ignore("embedding_dropout", "output_dropout", "router_dtype")
    read.refuse("norm_head", (False,), "the head is used as it is stored")
    read.refuse("norm_softmax", (False,), "logits are used as the head gives them")
    read.refuse("norm_topk_prob", (True,), "the weights of experts add up to one in this family")
    read.refuse("use_rmsnorm", (True,), "norms are RMSNorm in this family")
    read.refuse("score_function", ("sigmoid",), "experts are weighed by sigmoids only in this family")
    read.refuse("moe_router_enable_expert_bias", (True,), "experts are chosen with a bias of each in this family")
    if config.experts:
        read.agree("moe_shared_expert_intermediate_size", config.experts.width, "moe_intermediate_size")
    return config.each_experts(lambda own: replace(own, normalized=own.per_token > 1))


_ATTENTION = "layers.{i}.attention"


def tensors(config: DecoderConfig) -> TensorMap:
    bias: TensorMap = {"layers.{i}.mlp.router.choice_bias": "layers.{i}.mlp.gate.expert_bias"}
    return {
        **{ours: theirs for ours, theirs in LLAMA_TENSORS.items() if ".attn." not in ours and ".mlp." not in ours},
        "embed.weight": "word_embeddings.weight",
        **joined_qkv(f"{_ATTENTION}.query_key_value"),
        **named("layers.{i}.attn.o", f"{_ATTENTION}.dense"),
        "layers.{i}.attn.q_norm.weight": f"{_ATTENTION}.query_layernorm.weight",
        "layers.{i}.attn.k_norm.weight": f"{_ATTENTION}.key_layernorm.weight",
        **qwen_mlp_tensors(config, {**SHARED_EXPERTS, **bias}),
    }


DRAFT_HEAD = DraftHead(
    "layers.{n}.",
    {
        "draft_in": "layers.{n}.eh_proj",
        "draft_embed_norm": "layers.{n}.enorm",
        "draft_hidden_norm": "layers.{n}.hnorm",
        "final_norm": "layers.{n}.final_layernorm",
    },
)

_ALIASES = {
    "n_routed_experts": "num_experts",
    "num_local_experts": "num_experts",
    "n_shared_experts": "num_shared_experts",
    "use_qkv_bias": "attention_bias",
}
_DEFAULTS = {
    **{key: value for key, value in GLM4_MOE_DEFAULTS.items() if key not in _ALIASES},
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "partial_rotary_factor": 1.0,
    "num_shared_experts": 1,
    "use_qk_norm": True,
}

BAILING_MOE = Architecture(
    model_types=("bailing_moe",),
    classes=("BailingMoeV2ForCausalLM",),
    read=read_bailing_moe,
    tensors=tensors,
    defaults={
        **_DEFAULTS,
        "vocab_size": 157184,
        "hidden_size": 2048,
        "intermediate_size": 5120,
        "num_hidden_layers": 20,
        "num_attention_heads": 16,
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "rope_theta": 600000.0,
        "num_experts": 256,
        "n_group": 8,
        "topk_group": 4,
        "moe_intermediate_size": 512,
    },
    drafts=DRAFTS,
    draft_head=DRAFT_HEAD,
    aliases=_ALIASES,
)

SARVAM_MOE = Architecture(
    model_types=("sarvam_moe",),
    classes=("SarvamMoEForCausalLM", "Glm4MoeForCausalLM"),
    read=read_sarvam_moe,
    tensors=tensors,
    defaults={
        **_DEFAULTS,
        "vocab_size": 262144,
        "intermediate_size": 8192,
        "num_hidden_layers": 19,
        "num_attention_heads": 64,
        "head_dim": 64,
        "rope_theta": 8000000.0,
        "num_experts": 128,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1024,
        "routed_scaling_factor": 2.5,
    },
    aliases=_ALIASES,
)
