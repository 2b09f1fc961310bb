"""LFM3: LFM2 with windows in half of the layers with attention, a gate for each head, and norms after each sublayer.

Of an LFM3 with vision, the language model is exported.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Gate
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.rope import Rope
from edgegen_export.families.lfm2 import LFM_MLP, LFM_TENSORS, read_lfm, with_convolutions
from edgegen_export.reading.layer_types import read_window, rotating, sliding
from edgegen_export.reading.rope import read_rope, rope_key
from edgegen_export.reading.tensor_names import QK_NORM

_KINDS = ("conv", "full_attention", "sliding_attention")


def read_lfm3(read: ConfigReader) -> DecoderConfig:
    """``Lfm3Config``."""
    config = read_lfm(read, proportional=True)
    kinds = read.per_layer("layer_types", {kind: kind for kind in _KINDS}, config.num_layers)
    kinds = kinds or tuple(map(_usual_kind, range(config.num_layers)))
    windowed = [kind == "sliding_attention" for kind in kinds]
    if any(windowed):
        positions = read.positive("max_position_embeddings")
        local = read_rope(read, config.attention.head_dim, positions, layer_type="sliding_attention", proportional=True)
        config = sliding(rotating(config, local, windowed), read_window(read), windowed)
    else:
        read.ignore("sliding_window")
        if (rope := read.inner(rope_key(read))) is not None:
            rope.ignore("sliding_attention")
    for own in dict.fromkeys(own.rope for own in config.attentions.values()):
        _whole_heads(read, config, own)
    config = with_convolutions(read, config, [kind == "conv" for kind in kinds])
    if read.flag("use_attention_gate"):
        config = config.each_attention(lambda own: replace(own, gate=Gate("head")))
    return replace(config, block="sandwich" if read.flag("use_sandwich_norm") else "sequential")


def _usual_kind(layer: int) -> str:
    """Of a layer, where the file does not say it."""
    if layer % 4 == 2:
        return "full_attention"
    return "sliding_attention" if layer > 0 and layer % 4 == 0 else "conv"


def _whole_heads(read: ConfigReader, config: DecoderConfig, rope: Rope | None) -> None:
    """Record a problem where a plain rotation leaves a part of a head out, which the model's own code does not."""
    if rope and rope.scaling is None and rope.dim != config.attention.head_dim and read.sound("head_dim"):
        read.problem("partial_rotary_factor: understood with rope_type = 'proportional' only")


def read_lfm3_with_vision(read: ConfigReader) -> DecoderConfig:
    """``Lfm3VlConfig``: reads the language model's config in ``text_config``; the vision settings are ignored."""
    read.ignore("vision_config", "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    read.ignore("projector_hidden_act", "projector_hidden_size", "projector_bias")
    inner = read.inner("text_config", DEFAULTS) or ConfigReader({}, DEFAULTS)
    inner.choice("model_type", {"lfm3": True}, "lfm3")
    config = read_lfm3(inner)
    return replace(config, tied_head=read.flag("tie_word_embeddings", config.tied_head))


TENSORS: TensorMap = {
    **LFM_TENSORS,
    **QK_NORM,
    "layers.{i}.attn.gate.weight": "layers.{i}.self_attn.gate_proj.weight",
    "layers.{i}.attn_post_norm.weight": "layers.{i}.post_operator_norm.weight",
    **LFM_MLP,
    "layers.{i}.mlp_post_norm.weight": "layers.{i}.post_ffn_norm.weight",
}

DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 128000,
    "hidden_size": 2048,
    "intermediate_size": 7680,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 128000,
    "norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "conv_L_cache": 7,
    "sliding_window": 256,
    "use_sandwich_norm": True,
    "use_attention_gate": True,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.5},
    },
}

LFM3 = Architecture(
    model_types=("lfm3",),
    classes=("Lfm3ForCausalLM",),
    read=read_lfm3,
    tensors=TENSORS,
    defaults=DEFAULTS,
    aliases={"rms_norm_eps": "norm_eps"},
)

LFM3_WITH_VISION = Architecture(
    model_types=("lfm3_vl",),
    classes=("Lfm3VlForConditionalGeneration",),
    read=read_lfm3_with_vision,
    tensors=TENSORS,
    prefixes=("", "model.language_model.", "language_model.model.", "model."),
    ignored=(r"(model\.)?(vision_tower|multi_modal_projector)\..*",),
)
