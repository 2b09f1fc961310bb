"""Dory: an nGPT whose middle layers run several times, each time from the output of the first layers."""

import re
from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Attention, Gate, QKNorm
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.normalized import (
    HeadScale,
    Interpolation,
    NormalizedAttention,
    NormalizedMLP,
    unit_norm,
)
from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.architecture.tensor_layouts import Shape
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.layer_types import LAYER_TYPES, read_window, rotating, sliding
from edgegen_export.reading.passes import in_passes, of_layer
from edgegen_export.reading.rope import read_rope
from edgegen_export.reading.tensor_names import named

_BLOCKS: dict[str, bool | None] = {**LAYER_TYPES, "mlp": None}


def read_dory(read: ConfigReader) -> DecoderConfig:
    """``DoryConfig``."""
    config = read_llama(read, norm=unit_norm(read.positive("hidden_size")))
    blocks = read.per_layer("layer_types", _BLOCKS, config.num_layers)
    paired = blocks is not None and None in blocks  # the file counts attention and MLP as a layer each
    kinds = blocks[::2] if blocks and paired else blocks
    if blocks and paired and (None in blocks[::2] or set(blocks[1::2]) != {None}):
        read.problem("layer_types: attention and mlp in turns expected, where there is any mlp")
    config = replace(config, layers=config.layers[: config.num_layers // (2 if paired else 1)])
    count = config.num_layers
    windowed = [bool(it) for it in kinds or every(4, False, True, count)]
    local = read_rope(read, config.attention.head_dim, config.max_positions, layer_type="sliding_attention")
    config = sliding(rotating(config, local, windowed), read_window(read), windowed)
    scale = HeadScale(1 / read.above_zero("initializer_range"), config.vocab_size)
    layers = tuple(_normalized(read, config, own) for own in config.layers)
    config = replace(config, layers=layers, block="interpolated", extras=(scale,))
    if config.tied_head:
        read.problem("tie_word_embeddings = True: the head has a scale for each token, and the embedding has none")
    return _in_passes(read, config, paired=paired)


def _normalized(read: ConfigReader, config: DecoderConfig, layer: Layer) -> Layer:
    """The layer with all trained scales; what they are stored with is the initial deviation of matrices."""
    hidden, stored = config.hidden_size, read.above_zero("initializer_range")
    own, mlp = layer.attention, layer.mlp
    assert isinstance(own, Attention), "all layers have attention"
    assert isinstance(mlp, MLP), "all layers have an MLP"
    attention = NormalizedAttention(
        own.heads,
        own.kv_heads,
        own.head_dim,
        own.scale,
        window=own.window,
        rope=own.rope,
        qk_norm=QKNorm(unit_norm(own.head_dim), over="head", after_rotation=True),
        gate=Gate("channel"),
        sub_norm=unit_norm(own.width),
        query_factor=own.head_dim**0.5 / stored,
        gate_factor=hidden**0.25 / stored,
    )
    norm = unit_norm(mlp.width)
    wide = NormalizedMLP(mlp.width, mlp.activation, gated=True, sub_norm=norm, factor=hidden**0.5)
    return Layer(attention, wide, extras=(Interpolation(read.number("ngpt_alpha_init") / stored),))


def _in_passes(read: ConfigReader, config: DecoderConfig, *, paired: bool) -> DecoderConfig:
    """``config`` with further passes over the layers between the first and the last ones."""

    def count(key: str) -> int | None:
        value = read.optional(key, int)
        return None if value is None else value // (2 if paired else 1)

    before, after, middle = count("n_input_layers") or 0, count("n_output_layers") or 0, count("n_recurrent_layers")
    middle = config.num_layers - before - after if middle is None else middle
    if before + middle + after != config.num_layers or min(before, after) < 0 or middle < 1:
        read.problem(
            f"n_input_layers, n_recurrent_layers, n_output_layers: {before}, {middle} and {after}, and there are "
            f"{config.num_layers} layers"
        )
        return config
    if read.get("recurrent_kv_cache_mode", str, "per_loop") != "per_loop":
        read.problem(
            "recurrent_kv_cache_mode: only per_loop is supported; otherwise what a pass reads depends on how a prompt "
            "is divided"
        )
    passes, inner = read.count("n_recurrent_loops"), range(before, before + middle)
    order = [*range(before), *([*inner] * passes), *range(before + middle, config.num_layers)]
    starts = {before + middle * k: PassStart("stays" if k else "begins") for k in range(passes)}
    return in_passes(config, order, starts)


_Names = dict[str | tuple[str, ...], str]
_ATTENTION: _Names = {
    **{ours: theirs for ours, theirs in LLAMA_TENSORS.items() if ".attn." in ours},
    **named("layers.{i}.attn.gate", "layers.{i}.self_attn.g_proj"),
    "layers.{i}.attn.query_scale": "layers.{i}.self_attn.sqk",
    "layers.{i}.attn.gate_scale": "layers.{i}.self_attn.s_gate",
}
_MLP: _Names = {
    **{ours: theirs for ours, theirs in LLAMA_TENSORS.items() if ".mlp." in ours},
    "layers.{i}.mlp.gate_scale": "layers.{i}.mlp.suv_gate",
    "layers.{i}.mlp.up_scale": "layers.{i}.mlp.suv_up",
}
_RATES: _Names = {"layers.{i}.attn_rate": "layers.{i}.lambda_1", "layers.{i}.mlp_rate": "layers.{i}.lambda_2"}
_AROUND: _Names = {
    "embed.weight": "embeddings.weight",
    "head.weight": "lm_head.weight",
    "head_scale.weight": "lm_head.logit_scale",
}


def tensors(config: DecoderConfig) -> TensorMap:
    """As transformers writes them."""
    found: TensorMap = _AROUND
    for theirs, ours in enumerate(config.passes):
        found = {**found, **of_layer({**_ATTENTION, **_MLP, **_RATES}, ours, f"layers.{theirs}")}
    return found


def paired_tensors(config: DecoderConfig, _shape: Shape) -> TensorMap:
    """Of published checkpoints, which count attention and MLP as a layer each."""
    attention = {**_ATTENTION, "layers.{i}.attn_rate": "layers.{i}.attn_alpha"}
    mlp = {**_MLP, "layers.{i}.mlp_rate": "layers.{i}.mlp_alpha"}
    found: TensorMap = _AROUND
    for theirs, ours in enumerate(config.passes):
        for block, names in ((2 * theirs, attention), (2 * theirs + 1, mlp)):
            mixers = {name: re.sub(r"\.(self_attn|mlp)\.", ".mixer.", layout) for name, layout in names.items()}
            found = {**found, **of_layer(mixers, ours, f"layers.{block}")}
    return found


DORY = Architecture(
    model_types=("dory",),
    classes=("DoryForCausalLM",),
    read=read_dory,
    tensors=tensors,
    defaults={
        **{key: value for key, value in LLAMA_DEFAULTS.items() if key != "rope_theta"},
        "vocab_size": 131072,
        "hidden_size": 2560,
        "intermediate_size": 7168,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 8192,
        "initializer_range": 0.0177,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "default", "rope_theta": 10000000.0},
        },
        "sliding_window": 1024,
        "ngpt_alpha_init": 0.05,
        "n_input_layers": 8,
        "n_output_layers": 8,
        "n_recurrent_loops": 2,
    },
    prefixes=("", "model.", "backbone."),
    variant=("mixer.sqk", paired_tensors),
)
