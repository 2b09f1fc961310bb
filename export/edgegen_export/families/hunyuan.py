"""Hunyuan (dense): Llama with QK norm after the rotation, whose base may be stretched once and for all. Hunyuan A13B:
Hunyuan with experts in every layer, and one more that every token uses.

Hunyuan 3: Qwen3 with experts in most layers, weighed by sigmoids and chosen with a bias of each, and shared ones.
"""

from dataclasses import replace
from functools import partial

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.glm import DRAFTS
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.families.qwen import qwen_mlp_tensors
from edgegen_export.reading.experts import expert_tensors, read_mlp_types, with_experts, with_sigmoid_experts
from edgegen_export.reading.layer_types import rotating
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM

NOT_READ = """
    add_classification_head cla_share_factor class_num enable_lm_head_fp32 im_end_id im_newline_id
    im_start_id image_token_id mask_init_id num_media_embeds org_vocab_size pad_id pool_type text_end_id text_start_id
    video_end_id video_start_id
""".split()
"""Keys of published files that the model's own code does not read."""


def read_hunyuan(read: ConfigReader) -> DecoderConfig:
    """``HunYuanDenseV1Config``."""
    config = read_llama(read)
    for key, usual in (("use_qk_norm", True), ("use_rotary_pos_emb", True), ("use_cla", False), ("norm_type", "rms")):
        read.refuse(key, (usual,), f"only {usual!r} is known")
    read.ignore(*NOT_READ)
    read.agree("attention_head_dim", config.attention.head_dim, "head_dim")
    return with_qk_norm(stretched(read, config), after_rotation=True)


def stretched(read: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """``config`` with the base of its rotation times alpha^(d / (d - 2)), where ``alpha`` stands in its RoPE scaling,
    which is called dynamic and is not."""
    inner, rope = read.inner("rope_parameters") or read.inner("rope_scaling"), config.attention.rope
    alpha = inner.limit("alpha") if inner else None
    if inner is None or rope is None or alpha is None:
        return config
    inner.ignore("beta_fast", "beta_slow", "mscale", "mscale_all_dim")
    if config.attention.head_dim <= 2 or inner.get("rope_type", str, inner.get("type", str, "")) != "dynamic":
        return config
    rope = replace(rope, theta=rope.theta * alpha ** (rope.dim / (rope.dim - 2)), scaling=None)
    return replace(rotating(config, rope, [True] * config.num_layers), longest_context=config.max_positions)


HUNYUAN_TENSORS = {
    **LLAMA_TENSORS,
    "layers.{i}.attn.q_norm.weight": "layers.{i}.self_attn.query_layernorm.weight",
    "layers.{i}.attn.k_norm.weight": "layers.{i}.self_attn.key_layernorm.weight",
}

HUNYUAN = Architecture(
    model_types=("hunyuan_v1_dense",),
    classes=("HunYuanDenseV1ForCausalLM",),
    read=read_hunyuan,
    tensors=HUNYUAN_TENSORS,
    defaults={**LLAMA_DEFAULTS, "vocab_size": 290943, "rms_norm_eps": 1e-5},
)


_LATENT = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
"""Keys of latent attention, which published files have and do not use."""


def read_hunyuan_moe(read: ConfigReader) -> DecoderConfig:
    """``HunYuanMoEV1Config``: some keys may have a value for each layer."""
    config = read_hunyuan(read)
    read.refuse("use_mla", (False,), "latent attention is not supported")
    read.ignore(*_LATENT)
    read.refuse("group_limited_greedy", (False,), "experts are in one group in this family")
    read.ignore("n_group", "topk_group")
    read.refuse("norm_topk_prob", (True,), "the weights of experts add up to one in this family")
    read.refuse("routed_scaling_factor", (1, False), "experts are not scaled in this family")
    read.refuse("use_mixed_mlp_moe", (True,), "an expert is shared in this family")
    read.refuse("moe_layer_num_skipped", (0,), "every layer has experts in this family")
    read.ignore("moe_drop_tokens", "moe_random_routing_dropped_token", "capacity_factor")  # of the training
    _same(read, "num_shared_expert", config.num_layers, 1)
    _same(read, "moe_intermediate_size", config.num_layers, config.mlp.width)
    per_token = read.sizes("num_experts_per_tok", config.num_layers)
    config = with_experts(read, config, "num_experts", normalized=True, per_token=max(per_token))
    config = config.each_experts(lambda own: replace(own, shared_width=own.width))
    for i, used in enumerate(per_token):
        config = config.each_layer(partial(_using, used=used), [i])
    return config


def _using(layer: Layer, used: int) -> Layer:
    assert layer.experts
    return replace(layer, mlp=replace(layer.experts, per_token=used))


def _same(read: ConfigReader, key: str, layers: int, value: int) -> None:
    """Record a problem where ``key`` is said to be anything but ``value``."""
    if read.has(key) and set(read.sizes(key, layers)) != {value} and read.sound(key):
        read.problem(f"{key}: {value} expected in every layer")


_MLP = "layers.{i}.mlp"


def _moe_tensors(config: DecoderConfig) -> TensorMap:
    return {
        **{ours: theirs for ours, theirs in HUNYUAN_TENSORS.items() if ".mlp." not in ours},
        **expert_tensors(config, _MLP, router="gate.wg"),
        **{f"layers.{{i}}.shared.{x}.weight": f"{_MLP}.shared_mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
    }


HUNYUAN_MOE = Architecture(
    model_types=("hunyuan_v1_moe",),
    classes=("HunYuanMoEV1ForCausalLM",),
    read=read_hunyuan_moe,
    tensors=_moe_tensors,
    defaults={**HUNYUAN.defaults, "num_experts": 1, "num_experts_per_tok": 1},
    aliases={"moe_topk": "num_experts_per_tok", "num_local_experts": "num_experts"},
)


def read_hy_v3(read: ConfigReader) -> DecoderConfig:
    """``HYV3Config``."""
    config = read_llama(read)
    read.ignore("enable_moe_fp32_combine")  # how sums are rounded in half precision
    config = with_qk_norm(config)
    sparse = read_mlp_types(read, config.num_layers, range(1, config.num_layers))
    return with_sigmoid_experts(read, config, sparse, "num_experts", "num_shared_experts", "router_scaling_factor")


def _hy_v3_tensors(config: DecoderConfig) -> TensorMap:
    module = "layers.{i}.mlp"
    beside: TensorMap = {
        "layers.{i}.mlp.router.choice_bias": f"{module}.expert_bias",
        **{f"layers.{{i}}.shared.{x}.weight": f"{module}.shared_mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
    }
    return {**BESIDE_MLP, **QK_NORM, **qwen_mlp_tensors(config, beside, "router.gate")}


HY_V3 = Architecture(
    model_types=("hy_v3",),
    classes=("HYV3ForCausalLM",),
    read=read_hy_v3,
    tensors=_hy_v3_tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 120832,
        "intermediate_size": 13312,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 11158840.0,
        "num_experts": 192,
        "num_experts_per_tok": 8,
        "num_shared_experts": 1,
        "moe_intermediate_size": 1536,
        "router_scaling_factor": 2.826,
    },
    drafts=DRAFTS,
    aliases={"num_local_experts": "num_experts"},
)
