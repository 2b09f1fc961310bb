"""Phi-4-mini-flash: Mamba-1 and differential attention in turns; the second half reads what the first has kept.

SambaY (Ren et al. 2025, arXiv:2507.06607): the layer in the middle is the last Mamba-1 mixer, and the one after it the
last with keys and values. Of those after them, which keep nothing, every other one reads these keys and values, and the
others what that mixer's state space gave.
"""

from dataclasses import replace
from typing import Any, cast

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.mamba1 import GatedMemory, Mamba1
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.diffllama import differential, even_heads
from edgegen_export.families.llama import LLAMA_DEFAULTS, read_llama
from edgegen_export.families.mamba import mamba1_tensors, read_mamba1
from edgegen_export.reading.layer_types import rotating
from edgegen_export.reading.parts import layer_norm
from edgegen_export.reading.passes import of_layer
from edgegen_export.reading.tensor_names import joined, joined_qkv, named


def read_phi4flash(read: ConfigReader) -> DecoderConfig:
    """``Phi4FlashConfig``."""
    config = read_llama(read, norm=layer_norm(read.number("layer_norm_eps", least=0)))
    config = rotating(config, None, [True] * config.num_layers)
    read.refuse("mb_per_layer", (2,), "only attention in every other layer is supported, which published models have")
    read.ignore("mamba_conv_bias", "mamba_proj_bias", "lm_head_bias")  # the checkpoint's tensors show them
    read.ignore("embd_pdrop", "resid_pdrop")  # of training
    middle, odd = config.num_layers // 2, config.num_layers % 4
    if odd:
        read.problem(f"num_hidden_layers = {config.num_layers}: a multiple of 4 expected")
    attention = config.attention
    even_heads(read, attention)
    mamba = read_mamba1(read, config)
    window = _window(read, config.num_layers)

    def mixing(i: int, own: Layer) -> Layer:
        if i % 2:
            source, local = middle + 1 if i > middle + 1 else None, window if i < middle else None
            paired = differential(attention, i, eps=1e-5, weight=True)
            return replace(own, attention=replace(paired, window=local, source=source))
        mixer = GatedMemory(mamba.inner) if i > middle else replace(mamba, remembered=i == middle)
        return replace(own, attention=None, mixer=mixer)

    return replace(config, layers=tuple(mixing(i, own) for i, own in enumerate(config.layers)))


def _window(read: ConfigReader, layers: int) -> int | None:
    """The size of the windows, or none; its config class writes it once for each layer."""
    value = read.value("sliding_window")
    if not isinstance(value, list):
        return read.positive("sliding_window") if read.has("sliding_window") else None
    listed = cast("list[Any]", read.optional("sliding_window", list))
    sizes = [size for size in listed if size is not None]
    window = sizes[0] if sizes else None
    expected = [window if i % 2 and i < layers // 2 else None for i in range(layers)]
    sound = isinstance(window, int) and not isinstance(window, bool) and window > 0
    if listed != expected or not (sound or window is None):
        read.problem("sliding_window: one size expected, in every other layer of the first half")
        return None
    return window


_ATTN = "layers.{i}.attn"
_EVERY: TensorMap = {
    **named("layers.{i}.attn_norm", "layers.{i}.input_layernorm"),
    **named("layers.{i}.mlp_norm", "layers.{i}.post_attention_layernorm"),
    **joined("layers.{i}.mlp.fc1", ("layers.{i}.mlp.gate", "layers.{i}.mlp.up")),
    **named("layers.{i}.mlp.down", "layers.{i}.mlp.fc2"),
}
_MAMBA: TensorMap = mamba1_tensors(_ATTN)
_MEMORY: TensorMap = {
    **named("layers.{i}.memory.gate", f"{_ATTN}.in_proj"),
    **named("layers.{i}.memory.out", f"{_ATTN}.out_proj"),
}
_PAIRS: TensorMap = {
    **named(f"{_ATTN}.o", f"{_ATTN}.out_proj"),
    **{f"{_ATTN}.rate_{x}": f"{_ATTN}.inner_cross_attn.lambda_{x}" for x in ("q1", "k1", "q2", "k2")},
    f"{_ATTN}.pair_norm.weight": f"{_ATTN}.inner_cross_attn.subln.weight",
}
_OWN_KEYS: TensorMap = joined_qkv(f"{_ATTN}.Wqkv")
_OTHERS_KEYS: TensorMap = named(f"{_ATTN}.q", f"{_ATTN}.Wqkv")


def tensors(config: DecoderConfig) -> TensorMap:
    found: TensorMap = {
        "embed.weight": "embed_tokens.weight",
        **named("final_norm", "final_layernorm"),
        **named("head", "lm_head"),
    }
    for i, layer in enumerate(config.layers):
        if layer.attention:
            mixing = {**_PAIRS, **(_OWN_KEYS if layer.source is None else _OTHERS_KEYS)}
        else:
            assert layer.mixer, "a layer has attention or a mixer"
            mixing = {Mamba1.name: _MAMBA, GatedMemory.name: _MEMORY}[layer.mixer.name]
        found = {**found, **of_layer({**_EVERY, **mixing}, i, f"layers.{i}")}
    return found


PHI4FLASH = Architecture(
    model_types=("phi4flash",),
    classes=("Phi4FlashForCausalLM",),
    read=read_phi4flash,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 51200,
        "hidden_size": 2560,
        "intermediate_size": 9216,
        "num_attention_heads": 40,
        "num_key_value_heads": 4,
        "max_position_embeddings": 4096,
        "layer_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "sliding_window": 2047,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
)
