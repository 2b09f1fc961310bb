"""RWKV's channel mixing, an MLP over a fixed state."""

from edgegen_export.architecture.components.channel_mix import ChannelMix
from edgegen_export.graph.builder import Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.mlp import feed_forward
from edgegen_export.graph.stream import Stream
from edgegen_export.graph.token_shift import blend, change


def channel_mix(layer: LayerGraph, mlp: ChannelMix, x: Value, _residual: Value) -> Stream:
    """The MLP of a blend of x [b, t, d] and the token before; the state [b, 1, d] is x of the last token."""
    (state,) = layer.states(mlp)
    return feed_forward(layer, mlp, blend(layer, x, change(layer.g, x, state), "mlp.shift"))
