"""Hunyuan (dense): Llama with QK norm after the rotation, whose base may be stretched once and for all."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.attention import QKNorm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.layer_types import rotating
from edgegen_export.reading.parts import with_qk_norm

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
    return with_qk_norm(stretched(read, config), QKNorm(config.norm, over="head", after_rotation=True))


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
