"""RWKV's channel mixing, an MLP over a fixed state."""

from edgegen.bundle.layer_state import FixedState
from edgegen_export.architecture.components.channel_mix import ChannelMix
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.mlp import mlp
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.stream import Stream
from edgegen_export.graph.token_shift import blend, change


def channel_mix(
    g: GraphBuilder, params: Parameters, own: ChannelMix, layer: int, x: Value, states: tuple[FixedState, ...]
) -> Stream:
    """The MLP of a blend of x [b, t, d] and the token before; the state [b, 1, d] is x of the last token."""
    (state,) = states
    return mlp(g, params, own, layer, blend(g, params, x, change(g, x, state), f"layers.{layer}.mlp.shift"))
