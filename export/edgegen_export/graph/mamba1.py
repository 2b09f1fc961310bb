"""The Mamba-1 mixer of a decoder graph, instead of attention in a layer, over two fixed states; and the gated memory
unit, which reads what one remembered.

The recurrence is a stock ``Scan`` over the tokens: its operators compute each element by itself, and each channel's sum
over the state in one order, so that its bits are the same however a text is cut. ``LinearAttention`` in its gated mode,
with a head for each channel, computes the same; on 2 cores it took 18 times as long for a token, and 4 times as long
for 512 (5,120 channels, a state of 16). edgegen's kernels have it as one operator, whose body is this ``Scan``.

Shapes: b rows (batch), t new tokens per row, i inner channels, n numbers of a channel's state.
"""

from collections.abc import Sequence
from dataclasses import replace

from edgegen_export.architecture.components.mamba1 import GatedMemory, Mamba1
from edgegen_export.graph.activations import negative_softplus, silu
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.short_conv import convolved
from edgegen_export.graph.stream import Stream, norm_operator


def mamba1(layer: LayerGraph, mixer: Mamba1, x: Value) -> Stream:
    """``out(y · silu(z))``, y what :class:`Mamba1` says of x and z, which are projected from x [b, t, d].

    Its states are the last inputs of the convolution [b, w - 1, i], and h [b, n, i]. Returns the output projection
    without its bias, which the stream adds; and y beside it, where it is remembered.
    """
    g, module = layer.g, mixer.name
    conv, ssm = layer.states(mixer)
    rate, skip = (layer.weight(f"{module}.{name}") for name in ("rate", "skip"))
    mixed, z = g.split(layer.linear(x, *mixer.inputs), mixer.inner, mixer.inner)
    mixed = convolved(layer, f"{module}.kernel", mixed, conv, activated=True)

    parts = g.split(layer.linear(mixed, *mixer.selects), mixer.rank, mixer.state, mixer.state)
    if mixer.norm is not None:
        weights = [layer.weight(f"{name}_norm.weight") for name in mixer.selects]
        parts = [norm_operator(g, mixer.norm, *pair) for pair in zip(parts, weights, strict=True)]
    low, b, c = parts
    step = g.op.Neg(negative_softplus(g, layer.linear(low, f"{module}.dt")))  # [b, t, i]

    with g.scope("scan"):
        shape = ["batch", *ssm.shape]
        y, present = _scanned(g, g.input(ssm.past, "float32", shape), rate, step, mixed, b, c)
        g.output(ssm.present, present, "float32", shape)
    y = g.op.Add(y, g.op.Mul(mixed, skip))
    output = layer.output(g.op.Mul(y, silu(g, z)), f"{module}.out")
    return replace(output, others=(y,) if mixer.remembered else ())


def _scanned(
    g: GraphBuilder, past: Value, rate: Value, step: Value, x: Value, b: Value, c: Value
) -> tuple[Value, Value]:
    """``h = exp(rate · step) · h + b ⊗ step · x`` and ``y = c · h`` for each token: (y, the last h).

    ``past``: the first h [b, n, i]; ``rate`` [n, i]; ``step``, ``x``, y [b, t, i]; ``b``, ``c`` [b, t, n].
    """
    lines = [g.op.Unsqueeze(value, g.axes(2)) for value in (step, g.op.Mul(step, x))]
    columns = [g.op.Unsqueeze(b, g.axes(3)), g.op.Unsqueeze(c, g.axes(2))]
    present, y = g.function("SelectiveScan_by_channel", [past, *lines, *columns, rate], 2, selective_scan, {})
    return g.op.Squeeze(y, g.axes(2)), present


def selective_scan(f: GraphBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
    """The body of ``SelectiveScan``: the last h [b, n, i], and y [b, t, 1, i], of the first h, steps and ``step · x``
    [b, t, 1, i], b [b, t, n, 1], c [b, t, 1, n] and rates."""
    *scanned, rate = inputs
    one = GraphBuilder("scan")
    wide, column, row = (["batch", *sizes] for sizes in (("state", "inner"), ("state", 1), (1, "state")))
    line = ["batch", 1, "inner"]
    with one.scope("scan"):
        h = one.input("scan.h", "float32", wide)
        dt, written = (one.input(f"scan.{part}", "float32", line) for part in ("step", "written"))
        taken, read = one.input("scan.b", "float32", column), one.input("scan.c", "float32", row)
        decayed = one.op.Mul(h, one.op.Exp(one.op.Mul(dt, rate)))
        one.output("scan.after", one.op.Add(decayed, one.op.Mul(taken, written)), "float32", wide)
        one.output("scan.y", one.op.MatMul(read, Value("scan.after")), "float32", line)
    return f.node(
        "Scan",
        scanned,
        2,
        attributes={
            "body": one.graph("scan.after", "scan.y"),
            "num_scan_inputs": 4,
            "scan_input_axes": [1] * 4,
            "scan_output_axes": [1],
        },
    )


def gated_memory(layer: LayerGraph, mixer: GatedMemory, x: Value) -> Stream:
    """``out(silu(gate(x)) · memory)`` of x [b, t, d] and the memory [b, t, i], a stream of its own; without the
    output's bias, which the stream adds."""
    (memory,) = layer.others
    gate = layer.linear(x, *mixer.inputs)
    return layer.output(layer.g.op.Mul(silu(layer.g, gate), memory), f"{mixer.name}.out")
