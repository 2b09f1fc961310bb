"""IQuest-Coder: Llama by another name. IQuest-Coder Loop: a Llama whose layers all run twice; the second pass attends
to the keys of both."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.mixed_attention import MixedAttention
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.passes import in_passes

IQUESTCODER = Architecture(
    model_types=("iquestcoder",),
    classes=("IQuestCoderForCausalLM", "LlamaForCausalLM"),
    read=read_llama,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 76800,
        "hidden_size": 5120,
        "intermediate_size": 27648,
        "num_hidden_layers": 80,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
    },
)


_PASSES = 2


def read_iquestloopcoder(read: ConfigReader) -> DecoderConfig:
    """``IQuestLoopCoderConfig``."""
    config = read_llama(read)
    if (passes := read.count("loop_num")) != _PASSES:
        read.problem(f"loop_num = {passes}: only two passes are supported, which published models have")
    layers, window = config.num_layers, read.count("loop_window_size")
    looped = in_passes(config, [*range(layers)] * _PASSES, {})
    return replace(looped, layers=tuple(_mixing(layer, window) for layer in looped.layers))


def _mixing(layer: Layer, window: int) -> Layer:
    """A layer of the first pass, which stores the gates, or of the second, whose own keys are those of a window."""
    own = layer.attention
    assert own, "all layers have attention"
    seen = None if layer.repeats is None else window
    heads = (own.heads, own.kv_heads, own.head_dim)
    return replace(layer, attention=MixedAttention(*heads, own.scale, seen, own.rope, earlier=layer.repeats))


IQUESTLOOPCODER = Architecture(
    model_types=("iquestloopcoder",),
    classes=("IQuestLoopCoderForCausalLM",),
    read=read_iquestloopcoder,
    tensors={
        **LLAMA_TENSORS,
        "layers.{i}.mix.weight": "gate_projections.{i}.weight",
        "layers.{i}.mix.bias": "gate_projections.{i}.bias",
    },
    defaults={**IQUESTCODER.defaults, "rope_theta": 500000.0, "loop_num": _PASSES, "loop_window_size": 64},
)
