"""Layers with a mixer instead of attention: what families that have them share."""

from collections.abc import Sequence
from dataclasses import replace

from edgegen_export.architecture.components.mixer import Mixer
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.reading.layer_types import chosen


def mixing(
    read: ConfigReader, config: DecoderConfig, mixer: Mixer, which: Sequence[bool], key: str = "layer_types"
) -> DecoderConfig:
    """``config`` with ``mixer`` instead of attention in the layers selected by ``which``, which ``key`` says."""
    if all(which):
        read.problem(f"{key}: at least one layer must have attention")
    return config.each_layer(lambda own: replace(own, attention=None, mixer=mixer), chosen(which))


def sound_width(read: ConfigReader, key: str) -> int:
    """The width of the convolution under ``key``, of which a state is kept."""
    width = read.positive(key)
    if width < 2 and read.sound(key):
        read.problem(f"{key} = 1: a convolution over a single token keeps no state; at least 2 expected")
    return max(2, width)
