"""A gated memory unit of a decoder graph; :class:`GatedMemory` has the formula.

Shapes: b rows (batch), t new tokens per row, i channels of the memory.
"""

from edgegen_export.architecture.components.mamba1 import GatedMemory
from edgegen_export.graph.activations import silu
from edgegen_export.graph.builder import Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.stream import Stream


def gated_memory(layer: LayerGraph, mixer: GatedMemory, x: Value) -> Stream:
    """``out(silu(gate(x)) · memory)`` of x [b, t, d] and the memory [b, t, i], a stream of its own; without the
    output's bias, which the stream adds."""
    (memory,) = layer.others
    gate = layer.linear(x, *mixer.inputs)
    return layer.output(layer.g.op.Mul(silu(layer.g, gate), memory), f"{mixer.name}.out")
