"""The routing of a mixture of experts, said so that the operator computes it: by logits, of which it takes the largest
and weighs their experts by the softmax over these alone.

Logarithms of other weights are such logits. ``log_softmax([x, 0])`` is that of a sigmoid; a row of it is one thread's,
so its bits are the same however a text is cut.

Shapes: b rows (batch), t new tokens per row.
"""

from dataclasses import dataclass

import numpy as np

from edgegen_export.architecture.components.experts import Experts, Routing
from edgegen_export.graph.activations import negative_softplus
from edgegen_export.graph.builder import NONE, GraphBuilder, Value

_NEVER = -1e30
"""The logit of an expert that is not chosen: its share of a softmax is 0."""


@dataclass(frozen=True, slots=True)
class FusedRouting:
    """``logits`` [b, t, experts] for the operator, whose weights add up to one; ``factor`` [b, t, 1]: what their
    experts' sum is to be multiplied with, left out where it is 1; ``shared`` [b, t, shared]: the weights of shared
    experts that the router weighs."""

    logits: Value
    factor: Value
    shared: Value = NONE


def fused_routing(g: GraphBuilder, experts: Experts, logits: Value, bias: Value) -> FusedRouting:
    """Return the experts and weights that the router's ``logits`` [b, t, experts] ask for, but for the scaling, which
    is in the experts; ``bias`` [experts]: added for the choice."""
    routing = experts.routing
    by_sigmoid = routing.scores == "sigmoid"
    beside = NONE
    if routing.shared:
        logits, beside = g.split(logits, experts.count, routing.shared)
    asked = negative_softplus(g, g.op.Neg(logits)) if by_sigmoid else logits
    assert not beside or (routing.choice_bias and by_sigmoid), (
        "shared experts are weighed with those that a bias chooses"
    )
    if routing.by_scores and experts.normalized and not routing.epsilon and not routing.least_sum:
        return FusedRouting(asked, NONE)
    if routing.by_scores:
        weights = g.op.Exp(asked) if by_sigmoid else g.op.Softmax(logits, axis=-1)
        best, _ = top(g, weights, experts.per_token)
        return FusedRouting(asked, _factor(g, experts, g.op.ReduceSum(best, g.axes(-1))))
    scores = g.op.Sigmoid(logits) if by_sigmoid else g.op.Softmax(logits, axis=-1)
    chosen = chosen_experts(g, experts, logits if routing.choice_by_logits else scores, bias)
    best = g.op.GatherElements(asked, chosen, axis=-1)
    never = g.op.Expand(g.constant(np.array(_NEVER, np.float32)), g.op.Shape(asked))
    # Stock Sigmoid is not exact enough near 0 to be divided by.
    weights = g.op.Exp(best) if by_sigmoid else g.op.GatherElements(scores, chosen, axis=-1)
    total = g.op.ReduceSum(weights, g.axes(-1))
    if not beside:
        factor = _factor(g, experts, total)
        return FusedRouting(g.op.ScatterElements(never, chosen, best, axis=-1), factor)
    routed = g.op.ScatterElements(never, chosen, best, axis=-1)
    of_shared = g.op.Exp(negative_softplus(g, g.op.Neg(beside)))
    whole = g.op.Add(total, g.op.ReduceSum(of_shared, g.axes(-1)))
    return FusedRouting(routed, g.op.Div(total, whole), g.op.Div(of_shared, whole))


def chosen_experts(g: GraphBuilder, experts: Experts, scores: Value, bias: Value) -> Value:
    """The numbers of the experts that ``scores`` [b, t, experts] choose for each token, int64 [b, t, k]; ``bias``
    [experts]: added first, if any."""
    routing, wanted = experts.routing, g.op.Add(scores, bias) if bias else scores
    if routing.grouped:
        wanted = _in_best_groups(g, routing, experts.count, wanted)
    return top(g, wanted, experts.per_token)[1]


def top(g: GraphBuilder, x: Value, count: int) -> tuple[Value, Value]:
    """The ``count`` greatest of the last axis, and where they are."""
    values, places = g.node("TopK", [x, g.axes(count)], 2, attributes={})
    return values, places


def normalizing_sum(g: GraphBuilder, routing: Routing, total: Value) -> Value:
    """Return the divisor of weights that are to add up to one, from their sum."""
    if routing.least_sum:
        total = g.op.Max(total, g.constant(np.array(routing.least_sum, np.float32)))
    return g.op.Add(total, g.constant(np.array(routing.epsilon, np.float32))) if routing.epsilon else total


def _in_best_groups(g: GraphBuilder, routing: Routing, count: int, choice: Value) -> Value:
    """``choice`` [b, t, experts], lowest outside of the groups whose best have the greatest sum."""
    grouped = g.op.Reshape(choice, g.axes(0, 0, routing.groups, count // routing.groups))
    best, _ = top(g, grouped, routing.best_of_group)
    if routing.best_of_group == 2:
        best = g.op.Add(*g.parts(best, 2, axis=3))
    of_groups = g.op.Squeeze(best, g.axes(3))
    _, numbers = top(g, of_groups, routing.chosen_groups)
    each = g.op.OneHot(numbers, g.axes(routing.groups), g.axes(0, 1), axis=-1)
    is_chosen = g.op.Greater(g.op.ReduceMax(each, g.axes(2), keepdims=0), g.axes(0))
    lowest = g.constant(np.array(-np.inf, np.float32))
    kept = g.op.Where(g.op.Unsqueeze(is_chosen, g.axes(3)), grouped, lowest)
    return g.op.Reshape(kept, g.axes(0, 0, count))


def _factor(g: GraphBuilder, experts: Experts, total: Value) -> Value:
    """By what the chosen experts' weights, which add up to ``total``, differ from the operator's."""
    if not experts.normalized:
        return total
    if not experts.routing.epsilon and not experts.routing.least_sum:
        return NONE
    return g.op.Div(total, normalizing_sum(g, experts.routing, total))
