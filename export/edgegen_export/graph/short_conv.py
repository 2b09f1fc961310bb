"""The short convolution of a decoder graph, which some layers have instead of attention, over a fixed state.

Shapes: b rows (batch), t new tokens per row, d hidden size, w width of the convolution.
"""

from edgegen.bundle.layer_state import FixedState
from edgegen_export.graph.builder import MICROSOFT, NONE, GraphBuilder, Value
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.stream import Stream


def short_conv(g: GraphBuilder, params: Parameters, layer: int, x: Value, state: FixedState) -> Stream:
    """``out(c · conv(b · v))`` with ``b, c, v`` projected from x [b, t, d], each channel convolved over its last w
    tokens. The state [b, w - 1, d] is ``b · v`` of the last tokens; the operator reads it and writes the next one.

    Returns the output projection without its bias, which the stream adds.
    """
    module = f"layers.{layer}.conv"
    bcv = tuple(f"{module}.{name}" for name in "bcv")
    both = linear(g, params.matrix(*bcv), x, params.bias(*bcv))
    before, after, value = g.node("Split", [both], 3, attributes={"axis": 2, "num_outputs": 3})
    shape = ["batch", *state.shape]
    bias = params.bias(f"{module}.kernel")
    mixed, present = g.node(
        "CausalConvWithState",
        [
            g.op.Mul(before, value),
            g.weight(params.vector(f"{module}.kernel.weight")),
            g.weight(bias) if bias else NONE,
            g.input(state.past, "float32", shape),
        ],
        2,
        domain=MICROSOFT,
        attributes={"channels_last": 1},
    )
    g.output(state.present, present, "float32", shape)
    return Stream(NONE, linear(g, params.matrix(f"{module}.out"), g.op.Mul(after, mixed)), params.bias(f"{module}.out"))
