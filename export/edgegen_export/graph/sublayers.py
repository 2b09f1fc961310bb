"""The sublayers of a decoder layer: its mixer, its attention, its MLP, and convolutions over what they give.

Shapes: b rows (batch), t new tokens per row, d hidden size.
"""

from collections.abc import Callable
from typing import Any

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.differential_attention import DifferentialAttention
from edgegen_export.architecture.components.draft_input import EagleAttention
from edgegen_export.architecture.components.experts import Experts
from edgegen_export.architecture.components.gated_delta_net import GatedDeltaNet
from edgegen_export.architecture.components.kimi_delta_attention import KimiDeltaAttention
from edgegen_export.architecture.components.latent_attention import LatentAttention
from edgegen_export.architecture.components.mamba1 import GatedMemory, Mamba1
from edgegen_export.architecture.components.mamba2 import Mamba2
from edgegen_export.architecture.components.mixed_attention import MixedAttention
from edgegen_export.architecture.components.mixer import Mixer
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.normalized import NormalizedAttention, NormalizedMLP
from edgegen_export.architecture.components.relative_attention import RelativeAttention
from edgegen_export.architecture.components.shared_block import SharedAttention, SharedMLP
from edgegen_export.architecture.components.short_conv import ShortConv
from edgegen_export.architecture.components.sublayer_convs import SublayerConvs
from edgegen_export.architecture.components.time_mix import ChannelMix, TimeMix
from edgegen_export.graph.attention import softmax_attention
from edgegen_export.graph.builder import NONE, Value
from edgegen_export.graph.differential_attention import differential_attention
from edgegen_export.graph.experts import expert_mlp
from edgegen_export.graph.gated_delta_net import gated_delta_net
from edgegen_export.graph.kept_state import past_name
from edgegen_export.graph.kimi_delta_attention import kimi_delta_attention
from edgegen_export.graph.latent_attention import latent_attention
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.mamba1 import gated_memory, mamba1
from edgegen_export.graph.mamba2 import mamba2
from edgegen_export.graph.mixed_attention import mixed_attention
from edgegen_export.graph.mlp import plain_mlp
from edgegen_export.graph.relative_attention import relative_attention
from edgegen_export.graph.shared_block import shared_attention, shared_mlp
from edgegen_export.graph.short_conv import convolved, short_conv
from edgegen_export.graph.stream import Stream, both_added, sublayer_output
from edgegen_export.graph.time_mix import channel_mix, time_mix

MIXING: dict[type[Mixer | Attention], Callable[..., Stream]] = {
    ShortConv: short_conv,
    Mamba1: mamba1,
    Mamba2: mamba2,
    GatedDeltaNet: gated_delta_net,
    KimiDeltaAttention: kimi_delta_attention,
    TimeMix: time_mix,
    GatedMemory: gated_memory,
    Attention: softmax_attention,
    NormalizedAttention: softmax_attention,
    EagleAttention: softmax_attention,
    SharedAttention: shared_attention,
    DifferentialAttention: differential_attention,
    LatentAttention: latent_attention,
    MixedAttention: mixed_attention,
    RelativeAttention: relative_attention,
}
"""The graph of a mixer or of attention of each class, over x [b, t, d], or over what queries, keys and values are
projected of. All sublayers leave out the bias of their output, which the stream adds."""

MLPS: dict[type[MLP | Experts], Callable[[LayerGraph, Any, Value, Value], Stream]] = {
    MLP: plain_mlp,
    NormalizedMLP: plain_mlp,
    SharedMLP: shared_mlp,
    ChannelMix: channel_mix,
    Experts: expert_mlp,
}
"""The graph of an MLP of each class, over x [b, t, d] and the residual stream before it."""


def mix(layer: LayerGraph, *inputs: Value) -> Stream:
    """The output of attention, of the mixer that the layer has in its place, or the sum of both; of x [b, t, d], or of
    what queries, keys and values are projected of."""
    outputs = [mixed(layer, one, *inputs) for one in layer.parts.mixing]
    return both_added(layer.g, NONE, *outputs) if outputs[1:] else outputs[0]


def mixed(layer: LayerGraph, one: Mixer | Attention, *inputs: Value) -> Stream:
    """The output of one of them."""
    with layer.g.scope(one.name):
        return MIXING[type(one)](layer, one, *inputs)


def think(layer: LayerGraph, x: Value, residual: Value) -> Stream:
    """The MLP's output of x [b, t, d]; ``residual``: the stream before it, which some experts take."""
    mlp = layer.parts.mlp
    assert mlp, "a layer that thinks has an MLP"
    with layer.g.scope("mlp"):
        return MLPS[type(mlp)](layer, mlp, x, residual)


def over_tokens(layer: LayerGraph, part: Stream, conv: str) -> Stream:
    """The output of a sublayer, convolved over the last tokens in layers that do so."""
    convs = layer.parts.first(SublayerConvs)
    if convs is None:
        return part
    with layer.g.scope(conv):
        (state,) = (each for each in layer.states(convs) if each.past == past_name(conv, layer.index))
        output = sublayer_output(layer.g, part)
        return Stream(NONE, convolved(layer, conv, output, state))
