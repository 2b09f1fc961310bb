"""The graph of a layer's mixer, by its class."""

from collections.abc import Callable
from typing import Any

from edgegen.bundle.layer_state import FixedState
from edgegen_export.architecture.components.gated_delta_net import GatedDeltaNet
from edgegen_export.architecture.components.kimi_delta_attention import KimiDeltaAttention
from edgegen_export.architecture.components.mamba1 import Mamba1
from edgegen_export.architecture.components.mamba2 import Mamba2
from edgegen_export.architecture.components.mixer import Mixer
from edgegen_export.architecture.components.short_conv import ShortConv
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.gated_delta_net import gated_delta_net
from edgegen_export.graph.kimi_delta_attention import kimi_delta_attention
from edgegen_export.graph.mamba1 import mamba1
from edgegen_export.graph.mamba2 import mamba2
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.short_conv import short_conv
from edgegen_export.graph.stream import Stream

MixerGraph = Callable[[GraphBuilder, Parameters, Any, int, Value, tuple[FixedState, ...]], Stream]
"""Of a mixer's class: what it makes of x [b, t, d] in a layer, over its fixed states."""

GRAPHS: dict[type[Mixer], MixerGraph] = {
    ShortConv: short_conv,
    Mamba1: mamba1,
    Mamba2: mamba2,
    GatedDeltaNet: gated_delta_net,
    KimiDeltaAttention: kimi_delta_attention,
}


def mixer(
    g: GraphBuilder, params: Parameters, own: Mixer, layer: int, x: Value, states: tuple[FixedState, ...]
) -> Stream:
    """What ``own`` makes of x [b, t, d], over its fixed states; without the output's bias, which the stream adds."""
    return GRAPHS[type(own)](g, params, own, layer, x, states)
