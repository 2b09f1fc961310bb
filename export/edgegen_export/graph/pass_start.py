"""What a further pass over layers starts from; :class:`PassStart` has the formulas.

Shapes: b rows (batch), t new tokens per row, d hidden size.
"""

from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.graph.builder import GraphBuilder
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.stream import Stream, added, norm


def started(g: GraphBuilder, params: Parameters, config: DecoderConfig, own: PassStart, stream: Stream) -> Stream:
    """The residual streams, each [b, t, d], that the first layer of the pass takes."""
    x = norm(g, params, config, stream, "pass_norm")[0] if own.normed else added(g, stream)
    match own.second:
        case None:
            return Stream(x, others=stream.others)
        case "copy":
            return Stream(x, others=(x,))
        case "begins":
            start = g.weight(params.vector("pass_offset.weight")) if own.offset else x
            return Stream(g.op.Add(x, start), others=(x,))
        case "stays":
            return Stream(x, stream.others[0], others=stream.others)
        case "change":
            return Stream(x, stream.others[0], others=(x,))
