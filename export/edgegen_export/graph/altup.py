"""AltUp: several residual streams, which every layer predicts and corrects; :class:`AltUp` has the formulas.

Its coefficients stay floats: they are few, and every stream is multiplied with them.

Shapes: b rows (batch), t new tokens per row, d hidden size, s streams.
"""

import numpy as np

from edgegen_export.architecture.components.altup import AltUp
from edgegen_export.architecture.components.per_layer import PerLayerEmbedding
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.layer_graph import BlockGraph, LayerGraph, ModelGraph
from edgegen_export.graph.per_layer import of_part
from edgegen_export.graph.reductions import mean_square, small_linear
from edgegen_export.graph.stream import Stream, added

_LEAST = 1e-5
"""The least mean square of what is brought to another magnitude."""

Streams = tuple[Value, ...]
"""All streams in their order, each [b, t, d]."""


def first_streams(model: ModelGraph, altup: AltUp, x: Value, _positions: Value) -> Stream:
    """The streams that the token embedding x [b, t, d] begins."""
    g, others, size = model.g, altup.streams - 1, model.config.hidden_size
    with g.scope("altup"):
        made = g.op.Reshape(model.linear(x, *altup.first), g.axes(0, 0, others, size))
        wanted = g.op.Unsqueeze(_magnitude(g, x, size), g.axes(2))
        flat = g.op.Reshape(_with_magnitude(g, made, wanted, size), g.axes(0, 0, others * size))
        return Stream(x, others=tuple(g.parts(flat, others)))


def merged(model: ModelGraph, altup: AltUp, stream: Stream) -> Value:
    """Return the last layer's streams merged into one, [b, t, d]."""
    g, size = model.g, model.config.hidden_size
    with g.scope("altup"):
        first = added(g, stream)
        wanted = _magnitude(g, first, size)
        made = [model.linear(x, name) for name, x in zip(altup.last, stream.others, strict=True)]
        even = [_with_magnitude(g, x, wanted, size) for x in made]
        return g.op.Mul(g.op.Sum(first, *even), g.constant(np.array(1 / altup.streams, np.float32)))


def predicted(layer: LayerGraph, altup: AltUp, streams: Streams) -> Streams:
    """The streams as the layer predicts them."""
    g, count = layer.g, altup.streams
    coefficients = _coefficients(layer, altup, streams[altup.active], "predict", count * count)
    of_pairs = g.parts(coefficients, count * count)

    def predict(j: int) -> Value:
        own = of_pairs[j * count : (j + 1) * count]
        return g.op.Sum(streams[j], *(g.op.Mul(x, each) for x, each in zip(streams, own, strict=True)))

    return tuple(map(predict, range(count)))


def corrected(layer: LayerGraph, altup: AltUp, streams: Streams, made: Value) -> Streams:
    """The ``streams`` that were predicted, corrected by what the layer ``made`` [b, t, d] of the active one."""
    g, count = layer.g, altup.streams
    coefficients = _coefficients(layer, altup, made, "correct", count)
    coefficients = g.op.Add(coefficients, g.constant(np.array(1, np.float32)))
    of_each = g.parts(coefficients, count)
    news = g.op.Sub(made, streams[altup.active])
    return tuple(g.op.Add(x, g.op.Mul(news, each)) for x, each in zip(streams, of_each, strict=True))


def over_streams(altup: AltUp, block: BlockGraph, layer: LayerGraph, stream: Stream) -> Stream:
    """All streams after a layer, which is computed of one of them."""
    g = layer.g
    with g.scope(layer.name), g.scope("altup"):
        streams = predicted(layer, altup, (added(g, stream), *stream.others))
    output = added(g, block(layer, Stream(streams[altup.active])))
    with g.scope(layer.name), g.scope("altup"):
        first, *others = streams = corrected(layer, altup, streams, output)
        if per_layer := layer.parts.first(PerLayerEmbedding):
            x = streams[altup.active]
            x = g.op.Mul(x, layer.weight("altup.scale.weight")) if altup.scaled else x
            part = of_part(layer, per_layer, x)
            others = [g.op.Add(each, part) for each in others]
    return Stream(first, others=tuple(others))


def _coefficients(layer: LayerGraph, altup: AltUp, x: Value, name: str, rows: int) -> Value:
    """``name(tanh(router(norm(x))))`` of x [b, t, d], [b, t, rows]; the division by d is in the router."""
    g, even = layer.g, layer.normalized(x, "altup.norm")
    router = layer.weight("altup.router.weight")
    routed = g.op.Tanh(small_linear(g, router, even, altup.streams, layer.config.hidden_size))
    return small_linear(g, layer.weight(f"altup.{name}.weight"), routed, rows, altup.streams)


def _magnitude(g: GraphBuilder, x: Value, size: int) -> Value:
    return g.op.Sqrt(mean_square(g, x, size))


def _with_magnitude(g: GraphBuilder, x: Value, wanted: Value, size: int) -> Value:
    """x [..., d] with the magnitudes ``wanted`` [..., 1]."""
    least = g.constant(np.array(_LEAST, np.float32))
    return g.op.Mul(x, g.op.Div(wanted, g.op.Sqrt(g.op.Max(mean_square(g, x, size), least))))
