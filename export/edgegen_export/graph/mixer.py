"""The graph of a layer's mixer, by its class."""

from collections.abc import Callable
from typing import Any

from edgegen_export.architecture.components.gated_delta_net import GatedDeltaNet
from edgegen_export.architecture.components.kimi_delta_attention import KimiDeltaAttention
from edgegen_export.architecture.components.mamba1 import Mamba1
from edgegen_export.architecture.components.mamba2 import Mamba2
from edgegen_export.architecture.components.mixer import Mixer
from edgegen_export.architecture.components.short_conv import ShortConv
from edgegen_export.graph.builder import Value
from edgegen_export.graph.gated_delta_net import gated_delta_net
from edgegen_export.graph.kimi_delta_attention import kimi_delta_attention
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.mamba1 import mamba1
from edgegen_export.graph.mamba2 import mamba2
from edgegen_export.graph.short_conv import short_conv
from edgegen_export.graph.stream import Stream

MixerGraph = Callable[[LayerGraph, Any, Value], Stream]
"""What a layer's mixer makes of x [b, t, d]; without the output's bias, which the stream adds."""

GRAPHS: dict[type[Mixer], MixerGraph] = {
    ShortConv: short_conv,
    Mamba1: mamba1,
    Mamba2: mamba2,
    GatedDeltaNet: gated_delta_net,
    KimiDeltaAttention: kimi_delta_attention,
}
