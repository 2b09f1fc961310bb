"""Residual streams that are summed within blocks of layers, and what sublayers attend to of them;
:class:`BlockResidual` and :class:`PassMessages` have the formulas.

The sums of blocks are kept normalized, as all that attends to them takes them.

Shapes: b rows (batch), t new tokens per row, d hidden size, q queries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from edgegen_export.architecture.components.block_residual import (
    ATTENTION_QUERIES,
    FINAL_QUERY,
    MLP_QUERY,
    BlockResidual,
)
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.components.pass_messages import HEARERS, MESSAGE_QUERIES, PassMessages
from edgegen_export.architecture.config import LAYER_NORMS, DecoderConfig
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.parameters import FloatMatrix, Parameters
from edgegen_export.graph.stream import Stream, added, norm_operator, normalized

_EVEN = Norm("rms", 1e-6, weight=False)
"""Of what is attended to."""


@dataclass(frozen=True, slots=True)
class Sublayers:
    """What attention and the MLP of a layer give, [b, t, d]; attention takes one input, or one each for queries, keys
    and values."""

    attention: Callable[[Sequence[Value]], Value]
    mlp: Callable[[Value], Value]


def over_blocks(
    g: GraphBuilder, params: Parameters, config: DecoderConfig, layer: int, stream: Stream, sublayers: Sublayers
) -> Stream:
    """The stream behind a layer, and the kept ones."""
    name, own = f"layers.{layer}", config.layers[layer].extra(BlockResidual)
    assert own, "a layer of such a block has it"
    messages = config.layers[layer].extra(PassMessages)
    x, kept = added(g, stream), stream.others[: own.kept]
    if messages and messages.start is not None:
        x, kept = kept[messages.start], (*kept, _even(g, config, x))
    even = _even(g, config, x)
    taken = (x,)
    if own.queries:
        with g.scope("taken"):
            seen = (*(kept[k] for k in own.blocks), even)
            taken = _attended(g, params, f"{name}.{ATTENTION_QUERIES}", own.queries, config.hidden_size, seen)
    heard = dict[str, Value]()
    if messages and messages.heard:
        with g.scope("heard"):
            seen = tuple(kept[k] for k in messages.heard)
            found = _attended(g, params, f"{name}.{MESSAGE_QUERIES}", len(HEARERS), config.hidden_size, seen)
            heard |= zip(HEARERS, found, strict=True)
            taken = taken if taken[1:] else taken * 3
            told = partial(_told, g, params, config)
            taken = tuple(told(f"{name}.messages.{to}", x, heard[to]) for to, x in zip("qkv", taken, strict=True))
    *norms, mlp_norm = LAYER_NORMS[config.block_of(layer)]
    taken = taken * len(norms) if len(norms) > len(taken) else taken
    norms = norms * len(taken) if len(taken) > len(norms) else norms
    inputs = [normalized(g, params, config.norm, each, f"{name}.{of}") for each, of in zip(taken, norms, strict=True)]
    made = sublayers.attention(inputs)
    if own.begins is None:
        made = g.op.Add(x, made)
    elif own.begins == len(kept):
        kept = (*kept, even, *([x] if messages and messages.keeps else []))
    with g.scope("thought"):
        seen = (*(kept[k] for k in own.blocks_behind), _even(g, config, made))
        (y,) = _attended(g, params, f"{name}.{MLP_QUERY}", 1, config.hidden_size, seen)
    if heard:
        with g.scope("heard"):
            y = _told(g, params, config, f"{name}.messages.mlp", y, heard["mlp"])
    return Stream(made, sublayers.mlp(normalized(g, params, config.norm, y, f"{name}.{mlp_norm}")), others=kept)


def final_sum(g: GraphBuilder, params: Parameters, config: DecoderConfig, own: BlockResidual, stream: Stream) -> Value:
    """What the final norm takes; ``own``: the last layer's."""
    seen = (*(stream.others[k] for k in own.blocks_behind), _even(g, config, added(g, stream)))
    return _attended(g, params, f"{FINAL_QUERY}.weight", 1, config.hidden_size, seen)[0]


def _even(g: GraphBuilder, config: DecoderConfig, x: Value, norm: Norm = _EVEN) -> Value:
    return norm_operator(g, norm, x, g.constant(np.ones(config.hidden_size, np.float32)))


def _attended(
    g: GraphBuilder, params: Parameters, queries: str, count: int, hidden: int, seen: Sequence[Value]
) -> tuple[Value, ...]:
    """What each of the ``queries`` [q, d] attends to of what is ``seen``, all [b, t, d]."""
    if len(seen) == 1:
        return (seen[0],) * count
    matrix = FloatMatrix(params.vector(queries), count, hidden)
    scores = g.op.Concat(*(g.op.Unsqueeze(linear(g, matrix, each), g.axes(3)) for each in seen), axis=3)
    shares = g.node(
        "Split", [g.op.Softmax(scores, axis=3)], len(seen), attributes={"axis": 3, "num_outputs": len(seen)}
    )
    if count == 1:
        flat = [g.op.Squeeze(share, g.axes(3)) for share in shares]
        return (g.op.Sum(*(g.op.Mul(x, share) for x, share in zip(seen, flat, strict=True))),)
    both = (g.op.Mul(g.op.Unsqueeze(x, g.axes(2)), share) for x, share in zip(seen, shares, strict=True))
    found = g.node("Split", [g.op.Sum(*both)], count, attributes={"axis": 2, "num_outputs": count})
    return tuple(g.op.Squeeze(each, g.axes(2)) for each in found)


def _told(g: GraphBuilder, params: Parameters, config: DecoderConfig, module: str, x: Value, message: Value) -> Value:
    """x with the message, both [b, t, d]."""
    plain = Norm(config.norm.kind, config.norm.eps, weight=False)
    both = g.op.Concat(_even(g, config, x, plain), _even(g, config, message, plain), axis=2)
    low = linear(g, params.matrix(f"{module}.down"), both, params.bias(f"{module}.down"))
    gates = (f"{module}.forget", f"{module}.gain")
    opening = g.op.Tanh(linear(g, params.matrix(*gates), low, params.bias(*gates)))
    forget, gain = g.node("Split", [opening], 2, attributes={"axis": 2, "num_outputs": 2})
    return g.op.Add(g.op.Sub(x, g.op.Mul(forget, x)), g.op.Mul(gain, message))
