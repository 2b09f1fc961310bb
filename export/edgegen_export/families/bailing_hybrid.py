"""Ling 3.0 (BailingMoeV3): Kimi delta attention with gates of full rank, and latent attention with a gate of each head
in the last layer of each group, with experts after the first layers, routed as in DeepSeek-V3, with shared ones."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Gate
from edgegen_export.architecture.components.kimi_delta_attention import KimiDeltaAttention
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.families.glm4_moe import DRAFTS
from edgegen_export.families.kimi_linear import KIMI_ALIASES, delta_tensors, sound_net, with_delta_attention
from edgegen_export.families.latent import LATENT_DEFAULTS, read_latent, tensors_beside_mlp
from edgegen_export.families.qwen3_5 import NET_KINDS
from edgegen_export.families.qwen_moe import qwen_mlp_tensors
from edgegen_export.reading.experts import SHARED_EXPERTS, behind_dense, read_mlp_types, with_deepseek_experts
from edgegen_export.reading.rope import rope_key
from edgegen_export.reading.tensor_names import named

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
    config = with_delta_attention(read, config, net, recurrent or every(period, False, True, config.num_layers))
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


_ATTENTION = "layers.{i}.attention"


def tensors(config: DecoderConfig) -> TensorMap:
    bias: TensorMap = {"layers.{i}.mlp.router.choice_bias": "layers.{i}.mlp.gate.expert_bias"}
    return {
        **tensors_beside_mlp(config, _ATTENTION),
        "embed.weight": "word_embeddings.weight",
        **named("layers.{i}.attn.gate", f"{_ATTENTION}.g_proj"),
        **delta_tensors(config, _ATTENTION, {"dt": "f_proj", "z": "g_proj", "out": "o_proj"}),
        **qwen_mlp_tensors(config, {**SHARED_EXPERTS, **bias}),
    }


BAILING_HYBRID = Architecture(
    model_types=("bailing_hybrid",),
    classes=("BailingHybridForCausalLM", "BailingMoeV3ForCausalLM"),
    read=read_bailing_hybrid,
    tensors=tensors,
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
