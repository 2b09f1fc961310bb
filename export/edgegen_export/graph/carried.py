"""Carried: what a layer takes from earlier ones besides the hidden states, when layers run one by one.

Arrays [b, t, size] go from layer to layer. The hidden states are their first columns: in a model with several residual
streams the first of them, which the others follow. After them come what each layer takes of embeddings of its own, the
streams that begin at a layer, such as the values of RWKV's first one, a state space's output that later layers read, or
the sums of blocks of layers (:meth:`Component.carries`), and the keys and values that later layers read.
"""

from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.step_inputs import StepInputs
from edgegen_export.graph.stream import Stream, added

_HIDDEN = "hidden"


class Carried:
    """The columns of ``config``."""

    def __init__(self, config: DecoderConfig) -> None:
        components = [(i, one) for i, layer in enumerate(config.layers) for one in layer.components]
        at_once, later = dict[str, int](), dict[str, int]()
        for _, one in components:
            (at_once if one.begins_with_tokens else later).update(one.carries(config.hidden_size))
        embedded = {_part(i): one.embedded for i, one in components if one.embedded}
        kept = {name: config.attentions[i].kv_width for i in config.sources for name in _kept(i)}
        widths = {_HIDDEN: config.hidden_size, **at_once, **embedded, **later, **kept}
        places = pairwise(accumulate(widths.values(), initial=0))
        self._others, self._places = [*at_once, *later], dict(zip(widths, places, strict=True))
        self._hidden, self.size = config.hidden_size, sum(widths.values())

    def hidden(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The hidden states [b, t, d] of an array."""
        return x[..., : self._hidden]

    def with_room(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the embeddings with room for what layers make."""
        rest = self.size - x.shape[2]
        return np.concatenate([x, np.zeros((*x.shape[:2], rest), np.float32)], axis=2) if rest else x

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
        """Return the input of the next layer: x with the streams after the layer, and with the keys and values that it
        made, if others read them."""
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


def _part(layer: int) -> str:
    return f"part of layer {layer}"


def _kept(layer: int) -> tuple[str, str]:
    return f"keys of layer {layer}", f"values of layer {layer}"
