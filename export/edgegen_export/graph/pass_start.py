"""Start of a further pass over layers; :class:`PassStart` has the formulas.

Shapes: b rows (batch), t new tokens per row, d hidden size.
"""

from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.stream import Stream, added, norm


def started(layer: LayerGraph, start: PassStart, stream: Stream) -> Stream:
    """The residual streams, each [b, t, d], that the first layer of the pass takes."""
    g, params = layer.g, layer.params
    x = norm(g, params, layer.config, stream, "pass_norm")[0] if start.normed else added(g, stream)
    match start.second:
        case None:
            return Stream(x, others=stream.others)
        case "copy":
            return Stream(x, others=(x,))
        case "begins":
            offset = g.weight(params.vector("pass_offset.weight")) if start.offset else x
            return Stream(g.op.Add(x, offset), others=(x,))
        case "stays":
            return Stream(x, stream.others[0], others=stream.others)
        case "change":
            return Stream(x, stream.others[0], others=(x,))
