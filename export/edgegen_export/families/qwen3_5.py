"""Qwen3.5: Qwen3 with gated attention in every fourth layer, and gated delta nets in the others. Qwen3.5 MoE and
Qwen3-Next: with a mixture of experts in every layer, and one more that every token uses."""

from dataclasses import replace
from functools import partial

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Gate, QKNorm
from edgegen_export.architecture.components.gated_delta_net import GatedDeltaNet
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.draft_head import DraftHead
from edgegen_export.architecture.tensor_layouts import Interleaved, Shape
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.families.qwen import SHARED, qwen_mlp_tensors, read_qwen_experts
from edgegen_export.reading.experts import stacked_expert_tensors, with_experts
from edgegen_export.reading.mixers import mixing, sound_width
from edgegen_export.reading.tensor_names import QK_NORM, fused, joined, named_parts

NET_KINDS = {"linear_attention": True, "full_attention": False}
"""Whether layers of a type have a gated delta net."""

DEFAULTS = {
    **LLAMA_DEFAULTS,
    "vocab_size": 248320,
    "intermediate_size": 12288,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "head_dim": 256,
    "partial_rotary_factor": 0.25,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}


def read_qwen3_5(read: ConfigReader) -> DecoderConfig:
    """``Qwen3_5TextConfig``. Without pictures, its positions in three dimensions are one."""
    config = read_llama(read, partial=True)
    read.ignore("mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mlp_only_layers")  # of drafts; of experts
    read.refuse("attn_output_gate", (True,), "attention without a gate is not supported")
    read.refuse("output_gate_type", ("swish", "silu"), "gated delta nets have a gate of SiLU")
    read.ignore("mamba_ssm_dtype")  # states are float32
    config = replace(config, norm=replace(config.norm, offset=1.0))
    qk_norm = QKNorm(config.norm, over="head")
    config = config.each_attention(lambda own: replace(own, gate=Gate("channel"), qk_norm=qk_norm))
    recurrent = read.per_layer("layer_types", NET_KINDS, config.num_layers)
    interval = read.positive("full_attention_interval")
    if recurrent is None:
        recurrent = tuple((i + 1) % interval != 0 for i in range(config.num_layers))
    if config.mlp.activation != "silu":
        read.problem("hidden_act: gated delta nets are supported with silu only")
    return mixing(read, config, read_net(read, config), recurrent)


def read_net(read: ConfigReader, config: DecoderConfig) -> GatedDeltaNet:
    """The gated delta net that the file describes."""
    keys, values = read.count("linear_num_key_heads"), read.count("linear_num_value_heads")
    if read.sound("linear_num_key_heads", "linear_num_value_heads") and values % keys:
        read.problem(f"linear_num_key_heads = {keys}: must divide linear_num_value_heads = {values}")
    width = sound_width(read, "linear_conv_kernel_dim")
    key_dim, value_dim = read.positive("linear_key_head_dim"), read.positive("linear_value_head_dim")
    return GatedDeltaNet(keys, values, key_dim, value_dim, width, config.norm.eps)


def tensors(config: DecoderConfig) -> TensorMap:
    return {
        **{name: stored for name, stored in LLAMA_TENSORS.items() if ".attn.q." not in name},
        **fused("layers.{i}.self_attn.q_proj", ("layers.{i}.attn.q", "layers.{i}.attn.gate"), config.attention.heads),
        **QK_NORM,
        **net_tensors(),
    }


def net_tensors() -> TensorMap:
    """Return the tensors of a gated delta net."""
    ours, theirs = "layers.{i}.delta", "layers.{i}.linear_attn"
    projections = {"z": "in_proj_z", "dt": "in_proj_a", "beta": "in_proj_b", "kernel": "conv1d", "out": "out_proj"}
    return {
        **joined(f"{theirs}.in_proj_qkv", [f"{ours}.{name}" for name in "qkv"]),
        **named_parts(ours, theirs, projections),
        f"{ours}.dt_offset": f"{theirs}.dt_bias",
        f"{ours}.rate": f"{theirs}.A_log",
        f"{ours}.norm.weight": f"{theirs}.norm.weight",
    }


def _seeing(text: Architecture, model_type: str, name: str) -> Architecture:
    """``text`` as the language model of a class ``name`` that sees."""
    return replace(
        text,
        model_types=(model_type,),
        classes=(name,),
        read=partial(_read_inside, text=text),
        defaults={},
        prefixes=("", "model.language_model.", "language_model.model.", "model."),
        ignored=(r"(model\.)?visual\..*",),
    )


def _read_inside(read: ConfigReader, text: Architecture) -> DecoderConfig:
    """The language model's config in ``text_config``; the vision settings are ignored."""
    read.ignore("vision_config", "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    inner = read.inner("text_config", {"model_type": ""})
    if inner is None:
        read.problem("text_config: missing, so the language model is unknown")
        inner = ConfigReader({})
    inner.ignore("model_type")
    config = text.read(inner.with_defaults(text.defaults))
    return replace(config, tied_head=read.flag("tie_word_embeddings", config.tied_head))


HEADS = (r"mtp\..*",)
"""Layers that propose further tokens."""

DRAFT_HEAD = DraftHead(
    "mtp.layers.0.",
    {
        "draft_in": "mtp.fc",
        "draft_embed_norm": "mtp.pre_fc_norm_embedding",
        "draft_hidden_norm": "mtp.pre_fc_norm_hidden",
        "final_norm": "mtp.norm",
    },
    shared={"embed": "mtp.embed_tokens", "head": "mtp.shared_head.head"},
)
"""The first of them."""

QWEN3_5 = Architecture(
    model_types=("qwen3_5_text",),
    classes=("Qwen3_5ForCausalLM",),
    read=read_qwen3_5,
    tensors=tensors,
    defaults=DEFAULTS,
    heads=HEADS,
    draft_head=DRAFT_HEAD,
)

QWEN3_5_WITH_VISION = _seeing(QWEN3_5, "qwen3_5", "Qwen3_5ForConditionalGeneration")


def read_qwen3_5_moe(read: ConfigReader) -> DecoderConfig:
    """``Qwen3_5MoeTextConfig``."""
    config = read_qwen3_5(read)
    read.refuse("norm_topk_prob", (True,), "the weights of the chosen experts must sum to one")
    width, shared = read.positive("moe_intermediate_size"), read.positive("shared_expert_intermediate_size")
    config = with_experts(read, config, "num_experts", normalized=True, width=width)
    return config.each_experts(lambda own: replace(own, shared_width=shared, shared_gated=True))


def _qwen3_5_moe_tensors(config: DecoderConfig) -> TensorMap:
    """Each expert has matrices of its own, as transformers writes them."""
    return {**_beside_experts(config), **qwen_mlp_tensors(config, SHARED)}


def stacked_tensors(config: DecoderConfig, _: Shape) -> TensorMap:
    """All experts are in one tensor, as in the published files."""
    return {**_beside_experts(config), **SHARED, **stacked_expert_tensors(config, "layers.{i}.mlp")}


def _beside_experts(config: DecoderConfig) -> TensorMap:
    return {ours: theirs for ours, theirs in tensors(config).items() if ".mlp." not in str(ours)}


QWEN3_5_MOE = replace(
    QWEN3_5,
    model_types=("qwen3_5_moe_text",),
    classes=("Qwen3_5MoeForCausalLM",),
    read=read_qwen3_5_moe,
    tensors=_qwen3_5_moe_tensors,
    defaults={
        **DEFAULTS,
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "num_key_value_heads": 2,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts": 256,
        "num_experts_per_tok": 8,
    },
    aliases={"num_local_experts": "num_experts"},
    variant=("experts.gate_up_proj", stacked_tensors),
)

QWEN3_5_MOE_WITH_VISION = _seeing(QWEN3_5_MOE, "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration")


def read_qwen3_next(read: ConfigReader) -> DecoderConfig:
    """``Qwen3NextConfig``."""
    config = read_qwen_experts(read, read_qwen3_5(read))
    shared = read.positive("shared_expert_intermediate_size")
    return config.each_experts(lambda own: replace(own, shared_width=shared, shared_gated=True))


def _qwen3_next_tensors(config: DecoderConfig) -> TensorMap:
    """Return the tensors of Qwen3.5, but with the projections of a gated delta net fused key head by key head."""
    ours, theirs = "layers.{i}.delta", "layers.{i}.linear_attn"
    net = config.first(GatedDeltaNet)
    key_heads = net.key_heads if net else 1
    fused = {("q", "k", "v", "z"): "in_proj_qkvz", ("beta", "dt"): "in_proj_ba"}
    return {
        **{ours: stored for ours, stored in _beside_experts(config).items() if not is_projected(ours)},
        **{
            tuple(f"{ours}.{name}.weight" for name in names): Interleaved(f"{theirs}.{stored}.weight", key_heads)
            for names, stored in fused.items()
        },
        **qwen_mlp_tensors(config, SHARED),
    }


def is_projected(name: str | tuple[str, ...]) -> bool:
    """Whether a tensor of ours is of what a gated delta net projects of its input."""
    first = name if isinstance(name, str) else name[0]
    return any(f".delta.{part}." in first for part in ("q", "z", "dt", "beta"))


QWEN3_NEXT = replace(
    QWEN3_5_MOE,
    model_types=("qwen3_next",),
    classes=("Qwen3NextForCausalLM",),
    read=read_qwen3_next,
    tensors=_qwen3_next_tensors,
    defaults={
        **QWEN3_5_MOE.defaults,
        "vocab_size": 151936,
        "intermediate_size": 5632,
        "num_hidden_layers": 48,
        "decoder_sparse_step": 1,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "norm_topk_prob": True,
    },
    variant=None,
)
