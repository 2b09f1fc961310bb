"""Granite with sliding windows: attention sinks, and a rotation of its own for each layer, or none."""

from dataclasses import replace
from functools import partial
from typing import cast

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.granite import GRANITE, read_granite
from edgegen_export.families.llama import LLAMA_TENSORS
from edgegen_export.files.fields import is_a
from edgegen_export.reading.layer_types import read_layer_types, read_window, sliding


def read_granite_swa(read: ConfigReader) -> DecoderConfig:
    """``GraniteSWAConfig``: all layers but every fourth, from the first on, have a sliding window."""
    config = read_granite(read).each_attention(lambda own: replace(own, sinks=True))
    which = read_layer_types(read, config.num_layers, [i % 4 != 0 for i in range(config.num_layers)])
    config = sliding(config, read_window(read), which)
    thetas = cast("list[object] | None", read.optional("layer_rope_theta", list))
    return config if thetas is None else _rotated(read, config, thetas)


def _rotated(read: ConfigReader, config: DecoderConfig, thetas: list[object]) -> DecoderConfig:
    """``config`` with these thetas of its layers; 0 stands for no rotation."""
    numbers = [theta for theta in thetas if is_a(theta, float) and (theta == 0 or theta > 1)]
    if len(numbers) != config.num_layers or len(thetas) != config.num_layers:
        read.problem(
            f"layer_rope_theta: {config.num_layers} numbers expected, each 0 or greater than 1, found {thetas!r}"
        )
        return config
    for i, theta in enumerate(numbers):
        config = config.each_attention(partial(_turned, theta=float(theta)), [i])
    return config


def _turned(own: Attention, theta: float) -> Attention:
    return replace(own, rope=replace(own.rope, theta=theta) if own.rope and theta else None)


GRANITE_SWA = Architecture(
    model_types=("granite_swa",),
    classes=("GraniteSWAForCausalLM",),
    read=read_granite_swa,
    tensors={**LLAMA_TENSORS, "layers.{i}.attn.sinks": "layers.{i}.self_attn.sinks"},
    defaults={
        **GRANITE.defaults,
        "vocab_size": 100352,
        "hidden_size": 2560,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "sliding_window": 128,
        "tie_word_embeddings": True,
    },
)
