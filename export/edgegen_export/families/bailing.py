"""Ling and Ring 2.0 (BailingMoeV2), and Sarvam: Llama with a norm on each head of q and k, which may rotate in part,
and experts after the first layers, routed as in DeepSeek-V3, with shared ones.

Ling 3.0 (BailingMoeV3): Kimi delta attention with gates of full rank, and latent attention with a gate of each head in
the last layer of each group, with experts after the first layers, routed as in DeepSeek-V3, with shared ones.
"""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Gate
from edgegen_export.architecture.components.kimi_delta_attention import KimiDeltaAttention
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.architecture.draft_head import DraftHead
from edgegen_export.families import glm
from edgegen_export.families.glm import DRAFTS, GLM4_MOE_DEFAULTS
from edgegen_export.families.kimi_linear import KIMI_ALIASES, delta_tensors, sound_net
from edgegen_export.families.latent import LATENT_DEFAULTS, read_latent, tensors_beside_mlp
from edgegen_export.families.llama import LLAMA_TENSORS, read_llama
from edgegen_export.families.qwen import qwen_mlp_tensors
from edgegen_export.families.qwen3_5 import NET_KINDS
from edgegen_export.reading.experts import SHARED_EXPERTS, behind_dense, read_mlp_types, with_deepseek_experts
from edgegen_export.reading.mixers import mixing
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.rope import rope_key
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
_BESIDE_EXPERTS: TensorMap = {
    **SHARED_EXPERTS,
    "layers.{i}.mlp.router.choice_bias": "layers.{i}.mlp.gate.expert_bias",
}


def _moe_tensors(config: DecoderConfig) -> TensorMap:
    return {
        **{ours: theirs for ours, theirs in LLAMA_TENSORS.items() if ".attn." not in ours and ".mlp." not in ours},
        "embed.weight": "word_embeddings.weight",
        **joined_qkv(f"{_ATTENTION}.query_key_value"),
        **named("layers.{i}.attn.o", f"{_ATTENTION}.dense"),
        "layers.{i}.attn.q_norm.weight": f"{_ATTENTION}.query_layernorm.weight",
        "layers.{i}.attn.k_norm.weight": f"{_ATTENTION}.key_layernorm.weight",
        **qwen_mlp_tensors(config, _BESIDE_EXPERTS),
    }


DRAFT_HEAD = DraftHead(glm.DRAFT_HEAD.layer, {**glm.DRAFT_HEAD.around, "final_norm": "layers.{n}.final_layernorm"})

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
    tensors=_moe_tensors,
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
    tensors=_moe_tensors,
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


_LIMITS = ("expert_swiglu_limit_list", "share_expert_swiglu_limit_list")
"""Of what the gates of experts give, by layer; without one it is zero."""


def read_bailing_hybrid(read: ConfigReader) -> DecoderConfig:
    """``BailingHybridConfig``, and the keys of the model's own code."""
    config = read_latent(read, interleaved=True, whole=_rotated_share_of(read))
    _refuse_others(read)
    read.agree("rotary_dim", read.get("qk_rope_head_dim", int, 0), "qk_rope_head_dim")
    config = config.each_attention(lambda own: replace(own, gate=Gate("head")))
    bound = None
    if read.flag("kda_safe_gate"):
        bound = read.number("kda_lower_bound")
        if bound >= 0:
            read.problem(f"kda_lower_bound = {bound:g}: must be less than 0")
    read.ignore("kda_lower_bound")
    # What the file says of the nets itself comes before the names that the layers share.
    sizes = {
        ours: read.positive(ours if read.has(ours) else theirs)
        for ours, theirs in (
            ("linear_num_heads", "num_attention_heads"),
            ("linear_head_dim", "head_dim"),
            ("linear_conv_kernel_dim", "short_conv_kernel_size"),
        )
    }
    read.ignore("head_dim", "short_conv_kernel_size")
    heads, size, width = sizes.values()
    net = sound_net(read, config, KimiDeltaAttention(heads, size, width, config.norm.eps, bound=bound))
    recurrent = read.per_layer("layer_types", NET_KINDS, config.num_layers)
    period, layers = read.positive("layer_group_size"), config.num_layers
    if recurrent is None and layers % period:
        # The model's own code has latent attention in what is left of them, and transformers has not.
        read.problem(f"num_hidden_layers = {layers}: not a multiple of layer_group_size = {period}; name layer_types")
    config = mixing(read, config, net, recurrent or every(period, False, True, config.num_layers))
    sparse = read_mlp_types(read, config.num_layers, behind_dense(read, "first_k_dense_replace", config.num_layers))
    config = with_deepseek_experts(read, config, sparse, count_key="num_experts")
    if config.experts:
        read.agree("moe_shared_expert_intermediate_size", config.experts.shared_width, "moe_intermediate_size")
    return config


def _rotated_share_of(read: ConfigReader) -> int | None:
    """Of how many channels a file says the rotated share, if it does: of a head of the nets."""
    rope = read.inner(rope_key(read))
    said = read.has("partial_rotary_factor") or (rope is not None and rope.has("partial_rotary_factor"))
    return read.positive("linear_head_dim" if read.has("linear_head_dim") else "head_dim") if said else None


def _refuse_others(read: ConfigReader) -> None:
    """Refuse what the model's own code can do besides, and mark as read what changes nothing."""
    read.ignore("num_mtp_layers", "num_nextn_predict_layers", "mtp_loss_scaling_factor")  # of drafts
    read.ignore("mtp_use_kda", "embedding_dropout", "output_dropout", "router_dtype", "use_qkv_bias", "seq_aux")
    read.ignore("max_window_layers")  # no layer has a window
    read.refuse("num_kv_heads_for_linear_attn", (0,), "heads of the nets share no keys in this family")
    read.refuse("rope_interleave", (True,), "adjacent channels are rotated in pairs in this family")
    read.refuse("linear_attention", ("kda",), "linear attention of another kind is not supported")
    read.refuse("no_kda_lora", (True,), "gates of a low rank are not supported")
    read.refuse("use_kda_lora", (False,), "gates of a low rank are not supported")
    read.refuse("linear_silu", (True,), "queries, keys and values pass a SiLU in this family")
    read.refuse("use_qk_norm", (True,), "queries and keys have length one in this family")
    read.refuse("gated_attention_proj_granularity_type", ("head_wise",), "attention has a gate of each head")
    read.refuse("group_norm_size", (1,), "each head is normalized by itself in this family")
    read.refuse("use_mla_nope", (False,), "latent attention rotates in this family")
    for key in (
        "use_nGPT",
        "up_proj_norm",
        "value_norm",
        "scale_router_input",
        "use_bias",
        "norm_head",
        "norm_softmax",
    ):
        read.refuse(key, (False,), "this is not supported")
    for key in ("score_function", "scoring_func"):
        read.refuse(key, ("sigmoid",), "experts are weighed by sigmoids only in this family")
    read.refuse("topk_method", ("noaux_tc",), "experts are chosen with a bias of each in this family")
    read.refuse("moe_router_enable_expert_bias", (True,), "experts are chosen with a bias of each in this family")
    for key in _LIMITS:
        if any(read.get(key, list, [])):
            read.problem(f"{key}: limits of what the gates of experts give are not supported, only 0 for each layer")


def _hybrid_tensors(config: DecoderConfig) -> TensorMap:
    return {
        **tensors_beside_mlp(config, _ATTENTION),
        "embed.weight": "word_embeddings.weight",
        **named("layers.{i}.attn.gate", f"{_ATTENTION}.g_proj"),
        **delta_tensors(config, _ATTENTION, {"dt": "f_proj", "z": "g_proj", "out": "o_proj"}),
        **qwen_mlp_tensors(config, _BESIDE_EXPERTS),
    }


BAILING_HYBRID = Architecture(
    model_types=("bailing_hybrid",),
    classes=("BailingHybridForCausalLM", "BailingMoeV3ForCausalLM"),
    read=read_bailing_hybrid,
    tensors=_hybrid_tensors,
    defaults={
        **LATENT_DEFAULTS,
        "vocab_size": 157184,
        "hidden_size": 2560,
        "intermediate_size": 6144,
        "num_hidden_layers": 42,
        "max_position_embeddings": 262144,
        "rope_theta": 6000000.0,
        "q_lora_rank": None,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
        "layer_group_size": 6,
        "kda_safe_gate": True,
        "kda_lower_bound": -5.0,
        "moe_intermediate_size": 768,
        "num_experts": 512,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "routed_scaling_factor": 2.5,
        "n_group": 8,
        "topk_group": 4,
        "first_k_dense_replace": 2,
        "norm_topk_prob": True,
    },
    renamed={".attention.dense.": ".attention.o_proj."},  # of latent attention, and of all that transformers 5 writes
    drafts=DRAFTS,
    aliases=KIMI_ALIASES,
)
