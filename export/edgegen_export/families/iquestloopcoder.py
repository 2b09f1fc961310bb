"""IQuest-Coder Loop: a Llama whose layers all run twice; the second pass attends to the keys of both."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.mixed_attention import MixedAttention
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.iquestcoder import IQUESTCODER
from edgegen_export.families.llama import LLAMA_TENSORS, read_llama
from edgegen_export.reading.passes import in_passes

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
    mixed = MixedAttention(layer.repeats, own.heads, own.head_dim)
    return replace(
        layer,
        attention=own if layer.repeats is None else replace(own, window=window),
        extras=(*layer.extras, mixed),
    )


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
