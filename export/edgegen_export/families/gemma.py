"""Gemma, Gemma 2 and Gemma 3: scaled embeddings, RMSNorm with an offset of one; Gemma 2 and 3 add norms after attention
and MLP and sliding window attention. Of a Gemma 3 with vision, the language model is exported."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.layer_types import read_layer_types, read_window, read_window_pattern, rotating, sliding
from edgegen_export.reading.parts import with_qk_norm, with_scale
from edgegen_export.reading.rope import read_rope
from edgegen_export.reading.tensor_names import QK_NORM

GEMMA_DEFAULTS = {
    **LLAMA_DEFAULTS,
    "vocab_size": 256000,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
GEMMA2_DEFAULTS = {
    **GEMMA_DEFAULTS,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}

SANDWICH_TENSORS = {
    **LLAMA_TENSORS,
    "layers.{i}.attn_post_norm.weight": "layers.{i}.post_attention_layernorm.weight",
    "layers.{i}.mlp_norm.weight": "layers.{i}.pre_feedforward_layernorm.weight",
    "layers.{i}.mlp_post_norm.weight": "layers.{i}.post_feedforward_layernorm.weight",
}


def read_gemma(read: ConfigReader, activation_key: str = "hidden_act") -> DecoderConfig:
    """``GemmaConfig``."""
    config = read_llama(read, activation_key=activation_key)
    if activation_key == "hidden_act":
        read.ignore("hidden_activation")  # the model's own code does not read it
    else:
        read.ignore("hidden_act")
    return replace(config, norm=replace(config.norm, offset=1.0), embedding_multiplier=config.hidden_size**0.5)


def read_sandwich(read: ConfigReader) -> DecoderConfig:
    """The settings that ``Gemma2Config`` and ``Gemma3TextConfig`` share."""
    config = read_gemma(read, "hidden_activation")
    scale = read.above_zero("query_pre_attn_scalar") ** -0.5
    return replace(with_scale(config, scale), block="sandwich", logit_softcap=read.limit("final_logit_softcapping"))


def read_gemma2(read: ConfigReader) -> DecoderConfig:
    """``Gemma2Config``: the first, third, … layers have a sliding window."""
    softcap = read.limit("attn_logit_softcapping")
    config = read_sandwich(read).each_attention(lambda own: replace(own, softcap=softcap))
    windowed = every(2, False, True, config.num_layers)
    return sliding(config, read_window(read), read_layer_types(read, config.num_layers, windowed))


def read_gemma3(read: ConfigReader) -> DecoderConfig:
    """``Gemma3TextConfig``: layers with a sliding window use ``rope_local_base_freq`` and no RoPE scaling."""
    config = read_sandwich(read)
    read.ignore("attn_logit_softcapping")  # the model's own code does not read it
    windowed = read_window_pattern(read, config.num_layers, period=6)
    read.refuse("use_bidirectional_attention", (False,), "attention to later positions is not causal")
    local = read_rope(
        read,
        config.attention.head_dim,
        read.positive("max_position_embeddings"),
        theta_key="rope_local_base_freq",
        layer_type="sliding_attention",
    )
    config = with_qk_norm(rotating(config, local, windowed))
    return sliding(config, read_window(read), windowed)


GEMMA = Architecture(
    model_types=("gemma",),
    classes=("GemmaForCausalLM",),
    read=read_gemma,
    tensors=LLAMA_TENSORS,
    defaults={
        **GEMMA_DEFAULTS,
        "hidden_size": 3072,
        "intermediate_size": 24576,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "hidden_act": "gelu_pytorch_tanh",
    },
)

GEMMA2 = Architecture(
    model_types=("gemma2",),
    classes=("Gemma2ForCausalLM",),
    read=read_gemma2,
    tensors=SANDWICH_TENSORS,
    defaults={**GEMMA2_DEFAULTS, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
)


_SIGHT_AND_HEARING = """
    vision_config audio_config vision_soft_tokens_per_image audio_soft_tokens_per_image boi_token_id eoi_token_id
    image_token_id video_token_id audio_token_id boa_token_id eoa_token_id eoa_token_index
""".split()
"""The settings of what Gemma 3n and 4 see and hear."""


def seeing(
    text: Architecture,
    model_type: str,
    name: str,
    beside: Sequence[str] = _SIGHT_AND_HEARING,
    ignored: str = "vision_tower|audio_tower|embed_vision|embed_audio",
) -> Architecture:
    """``text`` as the language model of a class ``name`` that sees: its config is in ``text_config``, and without one
    that of the defaults. ``beside``: the settings beside it; ``ignored``: the modules."""
    return replace(
        text,
        model_types=(model_type,),
        classes=(name,),
        read=partial(_read_inside, text=text, beside=beside),
        defaults={},
        prefixes=("", "language_model.model.", "language_model.", "model.language_model."),
        ignored=(rf"(model\.)?({ignored})\..*",),
        variant=None,
    )


def _read_inside(read: ConfigReader, text: Architecture, beside: Sequence[str]) -> DecoderConfig:
    read.ignore(*beside)
    config = text.read(read.inner("text_config", text.defaults) or ConfigReader({}, text.defaults))
    read.agree("tie_word_embeddings", config.tied_head, "text_config.tie_word_embeddings")
    return config


GEMMA3_DEFAULTS = {
    **GEMMA2_DEFAULTS,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
}

GEMMA3 = Architecture(
    model_types=("gemma3_text",),
    classes=("Gemma3ForCausalLM",),
    read=read_gemma3,
    tensors=SANDWICH_TENSORS | QK_NORM,
    defaults=GEMMA3_DEFAULTS,
)

GEMMA3_WITH_VISION = seeing(
    GEMMA3,
    "gemma3",
    "Gemma3ForConditionalGeneration",
    ("vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index", "image_token_index"),
    "vision_tower|multi_modal_projector",
)

VAULTGEMMA = Architecture(
    model_types=("vaultgemma",),
    classes=("VaultGemmaForCausalLM",),
    read=lambda read: replace(read_gemma2(read), block="sequential"),  # without norms after attention and MLP
    tensors={**LLAMA_TENSORS, "layers.{i}.mlp_norm.weight": "layers.{i}.pre_feedforward_layernorm.weight"},
    defaults=GEMMA2.defaults,
)
