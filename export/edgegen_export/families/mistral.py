"""Mistral: Llama with sliding window attention on every layer. Ministral: on those layers that the file says. Ministral
3: Mistral with a scale of queries that grows with their position. Of a Mistral 3 with vision, the language model is
exported, be it a Mistral or a Ministral 3.

Mixtral: Mistral with a mixture of experts.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.attention import QueryScale
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.experts import expert_tensors, with_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, sliding
from edgegen_export.reading.rope import rope_key


def read_mistral(read: ConfigReader) -> DecoderConfig:
    """``MistralConfig``."""
    config = read_llama(read)
    return sliding(config, read_window(read), [True] * config.num_layers)


def read_ministral(read: ConfigReader) -> DecoderConfig:
    """``MinistralConfig``: Mistral whose layers may have a window each."""
    config = read_llama(read)
    window = read_window(read)
    windowed = read_layer_types(read, config.num_layers, [window is not None] * config.num_layers)
    return sliding(config, window, windowed)


MISTRAL = Architecture(
    model_types=("mistral",),
    classes=("MistralForCausalLM",),
    read=read_mistral,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096 * 32,
        "sliding_window": 4096,
    },
)

MINISTRAL = replace(MISTRAL, model_types=("ministral",), classes=("MinistralForCausalLM",), read=read_ministral)


MINISTRAL3_DEFAULTS: Mapping[str, Any] = {
    **LLAMA_DEFAULTS,
    "vocab_size": 131072,
    "intermediate_size": 14336,
    "num_hidden_layers": 34,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1000000.0,
        "factor": 16.0,
        "original_max_position_embeddings": 16384,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
    },
}


def read_ministral3(read: ConfigReader) -> DecoderConfig:
    """``Ministral3Config``."""
    return with_query_scale(read, read_mistral(read))


def with_query_scale(read: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """``config`` with the scale of queries that the settings of RoPE have."""
    rope = read.inner(rope_key(read))
    if rope is None:
        return config
    rope.ignore("max_position_embeddings")
    beta = rope.number("llama_4_scaling_beta", 0.0)
    original = rope.positive("original_max_position_embeddings", read.positive("max_position_embeddings"))
    scale = QueryScale(beta, original) if beta else None
    return config.each_attention(lambda own: replace(own, query_scale=scale))


Reader = Callable[[ConfigReader], DecoderConfig]
TEXT_MODELS: Mapping[str, tuple[Reader, Mapping[str, Any]]] = {
    "mistral": (read_mistral, MISTRAL.defaults),
    "ministral3": (read_ministral3, MINISTRAL3_DEFAULTS),
}


def read_mistral3(read: ConfigReader) -> DecoderConfig:
    """``Mistral3Config``: reads the language model's config in ``text_config``; the vision settings are ignored."""
    read.ignore("vision_config", "image_token_index", "image_token_id", "projector_hidden_act", "vision_feature_layer")
    read.ignore("multimodal_projector_bias", "spatial_merge_size")
    inner = read.inner("text_config", {"model_type": "mistral"})
    if inner is None:
        read.problem("text_config: missing, so the language model is unknown")
        inner = ConfigReader({})
    reader, defaults = inner.choice("model_type", TEXT_MODELS, "mistral")
    config = reader(inner.with_defaults(defaults))
    return replace(config, tied_head=read.flag("tie_word_embeddings", config.tied_head))


MINISTRAL3 = Architecture(
    model_types=("ministral3",),
    classes=("Ministral3ForCausalLM",),
    read=read_ministral3,
    tensors=LLAMA_TENSORS,
    defaults=MINISTRAL3_DEFAULTS,
)

MISTRAL3_WITH_VISION = Architecture(
    model_types=("mistral3",),
    classes=("Mistral3ForConditionalGeneration",),
    read=read_mistral3,
    tensors=LLAMA_TENSORS,
    prefixes=("", "language_model.model.", "language_model.", "model.language_model."),
    ignored=(r"(model\.)?(vision_tower|multi_modal_projector)\..*",),
)


def read_mixtral(read: ConfigReader) -> DecoderConfig:
    """``MixtralConfig``."""
    read.ignore("router_jitter_noise")  # in training only
    return with_experts(read, read_mistral(read), "num_local_experts", normalized=True)


MIXTRAL = Architecture(
    model_types=("mixtral",),
    classes=("MixtralForCausalLM",),
    read=read_mixtral,
    tensors=lambda config: {
        **LLAMA_TENSORS,
        **expert_tensors(config, "layers.{i}.block_sparse_moe", ("w1", "w3", "w2")),
    },
    defaults={
        **MISTRAL.defaults,
        "sliding_window": None,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
)
