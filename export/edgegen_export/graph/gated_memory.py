"""A gated memory unit of a decoder graph; :class:`GatedMemory` has the formula.

Shapes: b rows (batch), t new tokens per row, i channels of the memory.
"""

from edgegen_export.architecture.components.gated_memory import GatedMemory
from edgegen_export.graph.builder import NONE, GraphBuilder, Value
from edgegen_export.graph.mamba2 import silu
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.stream import Stream


def gated_memory(g: GraphBuilder, params: Parameters, own: GatedMemory, layer: int, x: Value, memory: Value) -> Stream:
    """``out(silu(gate(x)) · memory)`` of x [b, t, d] and the memory [b, t, i]; without the output's bias, which the
    stream adds."""
    module = f"layers.{layer}.{own.name}"
    gate = linear(g, params.matrix(f"{module}.gate"), x, params.bias(f"{module}.gate"))
    read = g.op.Mul(silu(g, gate), memory)
    return Stream(NONE, linear(g, params.matrix(f"{module}.out"), read), params.bias(f"{module}.out"))
