"""Granite: Llama with multipliers for embedding, attention, residuals and logits."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.parts import with_scale


def read_granite(
    read: ConfigReader, *, inner_key: str = "intermediate_size", scaled: bool = True, partial: bool = False
) -> DecoderConfig:
    """``GraniteConfig``. ``inner_key``: the key of the MLP's width; ``scaled``: the attention's scale is in the config,
    as it is in Granite's; ``partial``: a part of each head may rotate."""
    config = read_llama(read, inner_key=inner_key, partial=partial)
    scale = read.above_zero("attention_multiplier") if scaled else config.attention.head_dim**-0.5
    divisor, embedding = read.number("logits_scaling"), read.number("embedding_multiplier")
    for key, value in (("logits_scaling", divisor), ("embedding_multiplier", embedding)):
        if not value:
            read.problem(f"{key}: must not be zero")
    return replace(
        with_scale(config, scale),
        embedding_multiplier=embedding,
        residual_multiplier=read.number("residual_multiplier"),
        logit_multiplier=1 / (divisor or 1.0),
    )


GRANITE = Architecture(
    model_types=("granite",),
    classes=("GraniteForCausalLM",),
    read=read_granite,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "embedding_multiplier": 1.0,
        "logits_scaling": 1.0,
        "residual_multiplier": 1.0,
        "attention_multiplier": 1.0,
    },
)
