"""The sublayers of a decoder layer: its mixer, its attention, its MLP, and convolutions over what they give.

Shapes: b rows (batch), t new tokens per row, d hidden size.
"""

from edgegen_export.architecture.components.channel_mix import ChannelMix
from edgegen_export.architecture.components.experts import Experts
from edgegen_export.architecture.components.gated_memory import GatedMemory
from edgegen_export.architecture.components.latent_attention import LatentAttention
from edgegen_export.architecture.components.relative_attention import RelativeAttention
from edgegen_export.architecture.components.shared_block import SharedUse
from edgegen_export.architecture.components.sublayer_convs import SublayerConvs
from edgegen_export.architecture.components.time_mix import TimeMix
from edgegen_export.graph.attention import attention
from edgegen_export.graph.builder import NONE, Value
from edgegen_export.graph.channel_mix import channel_mix
from edgegen_export.graph.experts import expert_mlp
from edgegen_export.graph.gated_memory import gated_memory
from edgegen_export.graph.kept_state import past_name
from edgegen_export.graph.latent_attention import latent_attention
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.mixer import mixer
from edgegen_export.graph.mlp import mlp
from edgegen_export.graph.relative_attention import relative_attention
from edgegen_export.graph.short_conv import convolved
from edgegen_export.graph.stream import Stream, both_added, sublayer_output
from edgegen_export.graph.time_mix import time_mix


def mix(layer: LayerGraph, x: Value) -> Stream:
    """The mixer's output of x [b, t, d]."""
    g, params, mixing = layer.g, layer.params, layer.parts.mixer
    assert mixing, "a layer that mixes has a mixer"
    with g.scope(mixing.name):
        if isinstance(mixing, GatedMemory):
            return gated_memory(g, params, mixing, layer.index, x, *layer.others)
        states = layer.states(mixing)
        if isinstance(mixing, TimeMix):
            return time_mix(g, params, mixing, layer.index, x, states, *(layer.others or (NONE,)))
        return mixer(g, params, mixing, layer.index, x, states)


def attend(layer: LayerGraph, x: Value, *others: Value) -> Stream:
    """The attention's output of x [b, t, d]; ``others``: inputs of keys and of values, where these are not x."""
    g, params, config, attending, caches = layer.g, layer.params, layer.config, layer.parts.attention, layer.caches
    assert attending, "a layer that attends has attention"
    with g.scope("attn"):
        if isinstance(attending, RelativeAttention):
            states, inputs = layer.states(attending), (x, *others)
            return relative_attention(g, params, config, layer.index, inputs, caches[0], states, layer.step)
        if isinstance(attending, LatentAttention):
            return latent_attention(g, params, attending, layer.index, x, caches[0], layer.step)
        return attention(g, params, config, layer.index, x, caches, layer.step)


def mix_or_attend(layer: LayerGraph, *inputs: Value) -> Stream:
    """The output of attention, of the mixer that the layer has in its place, or the sum of both."""
    mixed = [mix(layer, inputs[0])] if layer.parts.mixer else []
    outputs = [*mixed, *([attend(layer, *inputs)] if layer.parts.attention else [])]
    return both_added(layer.g, NONE, *outputs) if outputs[1:] else outputs[0]


def think(layer: LayerGraph, x: Value, residual: Value) -> Stream:
    """The MLP's output of x [b, t, d]; ``residual``: the stream before it, which some experts take."""
    g, params, thinking = layer.g, layer.params, layer.parts.mlp
    with g.scope("mlp"):
        if isinstance(thinking, Experts):
            return expert_mlp(g, params, layer.config, thinking, layer.index, x, residual)
        assert thinking, "a layer that thinks has an MLP"
        if isinstance(thinking, ChannelMix):
            return channel_mix(g, params, thinking, layer.index, x, layer.states(thinking))
        return mlp(g, params, thinking, layer.index, x, use=layer.parts.extra(SharedUse))


def over_tokens(layer: LayerGraph, part: Stream, conv: str) -> Stream:
    """The output of a sublayer, convolved over the last tokens in layers that do so."""
    convs = layer.parts.extra(SublayerConvs)
    if convs is None:
        return part
    with layer.g.scope(conv):
        (state,) = (each for each in layer.states(convs) if each.past == past_name(conv, layer.index))
        made = sublayer_output(layer.g, part)
        return Stream(NONE, convolved(layer.g, layer.params, f"{layer.name}.{conv}", made, state))
