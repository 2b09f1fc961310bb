"""The routing of a mixture of experts, said so that the operator computes it: by logits, of which it takes the largest
and weighs their experts by the softmax over these alone.

Logarithms of other weights are such logits. ``log_softmax([x, 0])`` is that of a sigmoid; a row of it is one thread's,
so its bits are the same however a text is cut.

Shapes: b rows (batch), t new tokens per row.
"""

from dataclasses import dataclass

import numpy as np

from edgegen_export.architecture.components.experts import CHOICE_BIAS, Experts
from edgegen_export.graph.builder import NONE, GraphBuilder, Value
from edgegen_export.graph.mamba2 import negative_softplus
from edgegen_export.graph.parameters import Parameters

_NEVER = -1e30
"""The logit of an expert that is not chosen: its share of a softmax is 0."""


@dataclass(frozen=True, slots=True)
class FusedRouting:
    """``logits`` [b, t, experts] for the operator, whose weights add up to one; ``factor`` [b, t, 1]: what their
    experts' sum is to be multiplied with, left out where it is 1."""

    logits: Value
    factor: Value


def fused_routing(g: GraphBuilder, params: Parameters, experts: Experts, layer: int, logits: Value) -> FusedRouting:
    """What the router's ``logits`` [b, t, experts] ask for, but for the scaling, which is in the experts."""
    routing = experts.routing
    by_sigmoid = routing.scores == "sigmoid"
    asked = negative_softplus(g, g.op.Neg(logits)) if by_sigmoid else logits
    if experts.normalized and not routing.epsilon and not routing.choice_bias:
        return FusedRouting(asked, NONE)
    count = g.axes(experts.per_token)
    if not routing.choice_bias:
        weights = g.op.Exp(asked) if by_sigmoid else g.op.Softmax(logits, axis=-1)
        best, _ = g.node("TopK", [weights, count], 2, attributes={})
        return FusedRouting(asked, _factor(g, experts, g.op.ReduceSum(best, g.axes(-1))))
    scores = g.op.Sigmoid(logits) if by_sigmoid else g.op.Softmax(logits, axis=-1)
    wanted = g.op.Add(scores, g.weight(params.vector(f"layers.{layer}.{CHOICE_BIAS}")))
    _, chosen = g.node("TopK", [wanted, count], 2, attributes={})
    best = g.op.GatherElements(asked, chosen, axis=-1)
    never = g.op.Expand(g.constant(np.array(_NEVER, np.float32)), g.op.Shape(asked))
    # Stock Sigmoid is not exact enough near 0 to be divided by.
    weights = g.op.Exp(best) if by_sigmoid else g.op.GatherElements(scores, chosen, axis=-1)
    factor = _factor(g, experts, g.op.ReduceSum(weights, g.axes(-1)))
    return FusedRouting(g.op.ScatterElements(never, chosen, best, axis=-1), factor)


def _factor(g: GraphBuilder, experts: Experts, total: Value) -> Value:
    """By what the chosen experts' weights, which add up to ``total``, differ from the operator's."""
    if not experts.normalized:
        return total
    if not experts.routing.epsilon:
        return NONE
    return g.op.Div(total, g.op.Add(total, g.constant(np.array(experts.routing.epsilon, np.float32))))
