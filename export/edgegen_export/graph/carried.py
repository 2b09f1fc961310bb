"""Carried: what a layer takes from earlier ones besides the hidden states, when layers run one by one.

Arrays [b, t, size] go from layer to layer. The hidden states are their first columns: in a model with several residual
streams the first of them, which the others follow. Behind them are, where the model has them, what each layer takes of
embeddings of its own, a second stream that begins at a layer, such as the values of RWKV's first one or a state space's
output that later layers read, the sums of blocks of layers, and the keys and values that later layers read.
"""

from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from edgegen_export.architecture.components.altup import AltUp
from edgegen_export.architecture.components.block_residual import BlockResidual
from edgegen_export.architecture.components.mamba1 import Mamba1
from edgegen_export.architecture.components.pass_messages import PassMessages
from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.architecture.components.per_layer import PerLayerEmbedding
from edgegen_export.architecture.components.time_mix import TimeMix
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.step_inputs import StepInputs
from edgegen_export.graph.stream import Stream, added

_HIDDEN, _SECOND = "hidden", "second stream"


class Carried:
    """The columns of ``config``."""

    def __init__(self, config: DecoderConfig) -> None:
        widths = {_HIDDEN: config.hidden_size}
        altup, per_layer, attentions = config.extra(AltUp), config.extra(PerLayerEmbedding), config.attentions
        self._others = [f"stream {k}" for k in range(1, altup.streams)] if altup else []
        widths |= dict.fromkeys(self._others, config.hidden_size)
        if per_layer:
            widths |= {_part(i): per_layer.width for i in range(config.num_layers)}
        self._embedded = sum(widths.values())
        if second := _second_width(config):
            self._others.append(_SECOND)
            widths[_SECOND] = second
        self._others += (kept := [f"kept stream {k}" for k in range(_kept_streams(config))])
        widths |= dict.fromkeys(kept, config.hidden_size)
        for i in config.sources:
            widths |= dict.fromkeys(_kept(i), attentions[i].kv_width)
        places = pairwise(accumulate(widths.values(), initial=0))
        self._places = dict(zip(widths, places, strict=True))
        self._hidden, self.size = config.hidden_size, sum(widths.values())

    def hidden(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The hidden states [b, t, d] of an array."""
        return x[..., : self._hidden]

    def with_room(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """What embeddings give, with room for what layers make."""
        if self.size == self._embedded:
            return x
        room = np.zeros((*x.shape[:2], self.size - self._embedded), np.float32)
        return np.concatenate([x, room], axis=2)

    def stream(self, g: GraphBuilder, x: Value) -> Stream:
        """The residual streams of a graph's value."""
        hidden, *others = (self._columns(g, x, name) for name in (_HIDDEN, *self._others))
        return Stream(hidden, others=tuple(others))

    def entering(self, g: GraphBuilder, x: Value, step: StepInputs, layer: int, source: int | None) -> StepInputs:
        """``step`` with what the layer takes of x; ``source``: the layer whose keys and values it reads."""
        if _part(layer) in self._places:
            step = replace(step, per_layer={layer: self._columns(g, x, _part(layer))})
        if source is not None:
            key, value = (self._columns(g, x, name) for name in _kept(source))
            step = replace(step, kept={source: (key, value)})
        return step

    def leaving(self, g: GraphBuilder, x: Value, stream: Stream, step: StepInputs, layer: int) -> Value:
        """What the next layer takes: x with the streams behind the layer, and with the keys and values that it made, if
        others read them."""
        hidden = added(g, stream)
        made = {_HIDDEN: hidden, **dict(zip(self._others, stream.others, strict=False))}
        if _kept(layer)[0] in self._places:
            made |= zip(_kept(layer), step.kept[layer], strict=True)
        if self._places.keys() == made.keys():
            return hidden if len(made) == 1 else g.op.Concat(*made.values(), axis=2)
        return g.op.Concat(*(made.get(name) or self._columns(g, x, name) for name in self._places), axis=2)

    def _columns(self, g: GraphBuilder, x: Value, name: str) -> Value:
        if len(self._places) == 1:
            return x
        start, stop = self._places[name]
        return g.op.Slice(x, g.axes(start), g.axes(stop), g.axes(2))


def _second_width(config: DecoderConfig) -> int:
    """The width of the second stream, 0 without one."""
    remembered = (layer.mixer for layer in config.layers if isinstance(layer.mixer, Mamba1) and layer.mixer.remembered)
    if memory := next(remembered, None):
        return memory.inner
    starts = any(start.second for layer in config.layers if (start := layer.extra(PassStart)))
    return config.hidden_size if starts or any(isinstance(layer.mixer, TimeMix) for layer in config.layers) else 0


def _kept_streams(config: DecoderConfig) -> int:
    """How many streams layers keep for later ones, each from one layer on."""
    last, messages = config.layers[-1].extra(BlockResidual), config.layers[-1].extra(PassMessages)
    if last is None:
        return 0
    kept = last.kept + (messages is not None and messages.start is not None)
    return kept + (last.begins == kept)


def _part(layer: int) -> str:
    return f"part of layer {layer}"


def _kept(layer: int) -> tuple[str, str]:
    return f"keys of layer {layer}", f"values of layer {layer}"
