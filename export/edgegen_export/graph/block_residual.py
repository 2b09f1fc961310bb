"""Residual streams that are summed within blocks of layers, and what sublayers attend to of them;
:class:`BlockResidual` and :class:`PassMessages` have the formulas.

The sums of blocks are kept normalized, as all that attends to them takes them.

Shapes: b rows (batch), t new tokens per row, d hidden size, q queries.
"""

from collections.abc import Sequence

import numpy as np

from edgegen_export.architecture.components.block_residual import (
    ATTENTION_QUERIES,
    FINAL_QUERY,
    MLP_QUERY,
    BlockResidual,
)
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.components.pass_start import HEARERS, MESSAGE_QUERIES, PassMessages
from edgegen_export.architecture.components.sublayer_convs import ATTENTION_CONV, MLP_CONV
from edgegen_export.architecture.config import LAYER_NORMS
from edgegen_export.graph.builder import Value
from edgegen_export.graph.layer_graph import LayerGraph, ModelGraph
from edgegen_export.graph.stream import Stream, added, norm_operator, sublayer_output
from edgegen_export.graph.sublayers import mix, over_tokens, think

_EVEN = Norm("rms", 1e-6, weight=False)
"""Of what is attended to."""


def over_blocks(layer: LayerGraph, stream: Stream) -> Stream:
    """Sums within blocks of layers, over all of which sublayers attend; queries, keys and values have one norm, or,
    ``over_blocks_apart``, one each. The kept streams follow that after the layer."""
    g, parts = layer.g, layer.parts
    block, messages = parts.first(BlockResidual), parts.first(PassMessages)
    assert block, "a layer of such a block has it"
    x, kept = added(g, stream), stream.others[: block.kept]
    if messages and messages.start is not None:
        x, kept = kept[messages.start], (*kept, _even(layer, x))
    even = _even(layer, x)
    taken = (x,)
    if block.queries:
        with g.scope("taken"):
            taken = _attended(layer, ATTENTION_QUERIES, block.queries, (*(kept[k] for k in block.blocks), even))
    heard = dict[str, Value]()
    if messages and messages.heard:
        with g.scope("heard"):
            of_hearers = _attended(layer, MESSAGE_QUERIES, len(HEARERS), [kept[k] for k in messages.heard])
            heard |= zip(HEARERS, of_hearers, strict=True)
            taken = taken if taken[1:] else taken * 3
            taken = tuple(_with_message(layer, to, x, heard[to]) for to, x in zip("qkv", taken, strict=True))
    *norms, mlp_norm = LAYER_NORMS[layer.config.block_of(layer.index)]
    taken = taken * len(norms) if len(norms) > len(taken) else taken
    norms = norms * len(taken) if len(taken) > len(norms) else norms
    inputs = [layer.normalized(each, module) for each, module in zip(taken, norms, strict=True)]
    attended = sublayer_output(g, over_tokens(layer, mix(layer, *inputs), ATTENTION_CONV))
    if block.begins is None:
        attended = g.op.Add(x, attended)
    elif block.begins == len(kept):
        kept = (*kept, even, *([x] if messages and messages.keeps else []))
    with g.scope("thought"):
        seen = (*(kept[k] for k in block.blocks_behind), _even(layer, attended))
        (y,) = _attended(layer, MLP_QUERY, 1, seen)
    if heard:
        with g.scope("heard"):
            y = _with_message(layer, "mlp", y, heard["mlp"])
    y = layer.normalized(y, mlp_norm)
    return Stream(attended, sublayer_output(g, over_tokens(layer, think(layer, y, y), MLP_CONV)), others=kept)


def final_sum(model: ModelGraph, block: BlockResidual, stream: Stream) -> Value:
    """Return the input of the final norm; ``block``: the last layer's."""
    with model.g.scope("taken"):
        seen = (*(stream.others[k] for k in block.blocks_behind), _even(model, added(model.g, stream)))
        return _attended(model, f"{FINAL_QUERY}.weight", 1, seen)[0]


def _even(model: ModelGraph, x: Value, norm: Norm = _EVEN) -> Value:
    return norm_operator(model.g, norm, x, model.g.constant(np.ones(model.config.hidden_size, np.float32)))


def _attended(model: ModelGraph, queries: str, count: int, seen: Sequence[Value]) -> tuple[Value, ...]:
    """Return for each of the ``queries`` [q, d] the mean of what is ``seen``, all [b, t, d], by its attention."""
    g = model.g
    if len(seen) == 1:
        return (seen[0],) * count
    scores = g.op.Concat(*(g.op.Unsqueeze(model.in_floats(x, queries), g.axes(3)) for x in seen), axis=3)
    shares = g.parts(g.op.Softmax(scores, axis=3), len(seen), axis=3)
    if count == 1:
        flat = [g.op.Squeeze(share, g.axes(3)) for share in shares]
        return (g.op.Sum(*(g.op.Mul(x, share) for x, share in zip(seen, flat, strict=True))),)
    both = (g.op.Mul(g.op.Unsqueeze(x, g.axes(2)), share) for x, share in zip(seen, shares, strict=True))
    found = g.parts(g.op.Sum(*both), count)
    return tuple(g.op.Squeeze(each, g.axes(2)) for each in found)


def _with_message(layer: LayerGraph, hearer: str, x: Value, message: Value) -> Value:
    """x with the message, both [b, t, d]."""
    g, norm, module = layer.g, layer.config.norm, f"messages.{hearer}"
    plain = Norm(norm.kind, norm.eps, weight=False)
    both = g.op.Concat(_even(layer, x, plain), _even(layer, message, plain), axis=2)
    low = layer.linear(both, f"{module}.down")
    opening = g.op.Tanh(layer.linear(low, f"{module}.forget", f"{module}.gain"))
    forget, gain = g.parts(opening, 2)
    return g.op.Add(g.op.Sub(x, g.op.Mul(forget, x)), g.op.Mul(gain, message))
