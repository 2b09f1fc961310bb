"""Mixtures of experts of a decoder graph: what a layer computes beside a shared expert, and the experts that the
operators of ONNX Runtime do not know, each a matrix product of the tokens that chose it.

Shapes: b rows (batch), t new tokens per row, d hidden size, k experts per token, n = b · t · k pairs of token and
expert.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from edgegen_export.architecture.components.experts import EXPERT_SCALES, Experts, SwiGLU
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.graph.builder import NONE, GraphBuilder, Value
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.mlp import activation, fused_experts, mlp, router_scores
from edgegen_export.graph.parameters import FloatMatrix, Matrix, Parameters
from edgegen_export.graph.routing import chosen_experts, fused_routing, normalizing_sum
from edgegen_export.graph.softcap import softcap
from edgegen_export.graph.stream import Stream, normalized


@dataclass(frozen=True, slots=True)
class Chosen:
    """The experts of each token: their numbers int64 and their weights, both [b, t, k]."""

    numbers: Value
    weights: Value


def expert_mlp(
    g: GraphBuilder,
    params: Parameters,
    config: DecoderConfig,
    experts: Experts,
    layer: int,
    x: Value,
    residual: Value,
) -> Stream:
    """``Σ p[e] · mlp[e](x)`` over the experts e that the router chooses.

    A shared expert adds ``shared(x)``, or ``sigmoid(shared_gate(x)) · shared(x)``. With norms of their own, it is
    ``norm(shared(x)) + norm(Σ p[e] · mlp[e](norm(residual)))``, and the router takes ``norm(residual)`` too. Shared
    experts that the router weighs are parts of it, side by side.
    """
    name = f"layers.{layer}"
    routed = normalized(g, params, config.norm, residual, f"{name}.router_norm") if experts.own_norms else x
    taken = normalized(g, params, config.norm, residual, f"{name}.expert_norm") if experts.own_norms else x
    scores = router_scores(g, params, config, experts, layer, routed)
    if experts.latent:
        taken = linear(g, params.matrix(f"{name}.latent_in"), taken, params.bias(f"{name}.latent_in"))
    of_shared = NONE
    if experts.fused:
        routing = fused_routing(g, params, experts, layer, scores)
        result, of_shared = fused_experts(g, params, experts, layer, taken, routing), routing.shared
    else:
        result = _sorted_experts(g, params, config, experts, layer, taken, _chosen(g, params, experts, layer, scores))
    if experts.latent:
        result = linear(g, params.matrix(f"{name}.latent_out"), result, params.bias(f"{name}.latent_out"))
    if experts.own_norms:
        result = normalized(g, params, config.norm, result, f"{name}.expert_post_norm")
    if not experts.shared_width:
        return Stream(NONE, result)
    own = MLP(experts.shared_width, experts.activation, experts.gated)
    shared = mlp(g, params, own, layer, x, name="shared", weights=of_shared)
    value, bias = shared.delta, shared.bias
    if bias and (experts.shared_gated or experts.own_norms):
        value, bias = g.op.Add(value, g.weight(bias)), None
    if experts.shared_gated:
        opening = FloatMatrix(params.vector(f"{name}.shared_gate.weight"), 1, config.hidden_size)
        value = g.op.Mul(value, g.op.Sigmoid(linear(g, opening, x)))
    if experts.own_norms:
        value = normalized(g, params, config.norm, value, f"{name}.shared_post_norm")
    return Stream(NONE, g.op.Add(result, value), bias)


def _chosen(g: GraphBuilder, params: Parameters, experts: Experts, layer: int, scores: Value) -> Chosen:
    """The experts that the router's ``scores`` [b, t, experts] choose for each token, their weights without the
    scaling, which is in the experts."""
    routing = experts.routing
    assert not routing.shared, "only the fused operator's routing weighs shared experts"
    likely = g.op.Softmax(scores, axis=-1) if routing.scores == "softmax" else g.op.Sigmoid(scores)
    numbers = chosen_experts(g, params, experts, layer, scores if routing.choice_by_logits else likely)
    weights = g.op.GatherElements(likely, numbers, axis=-1)
    if experts.normalized:
        total = _sum(g, weights, 2, experts.per_token)
        weights = g.op.Div(weights, normalizing_sum(g, routing, total))
    if routing.expert_scales:
        scales = g.weight(params.vector(f"layers.{layer}.{EXPERT_SCALES}"))
        weights = g.op.Mul(weights, g.op.Gather(scales, numbers, axis=0))
    return Chosen(numbers, weights)


def _sorted_experts(
    g: GraphBuilder,
    params: Parameters,
    config: DecoderConfig,
    experts: Experts,
    layer: int,
    x: Value,
    chosen: Chosen,
) -> Value:
    """``Σ weight · mlp[e](x)`` of each token's experts: the pairs of token and expert, sorted by expert, are split into
    the rows of each, of which many have none."""
    assert replace(experts.glu, softcaps=None) == SwiGLU(), "only the fused operator clips gates"
    per_token, width = experts.per_token, experts.latent or config.hidden_size
    matrices = params.single_experts(f"layers.{layer}.mlp", experts.count)
    numbers = g.op.Reshape(chosen.numbers, g.axes(-1))
    pairs = g.op.Shape(numbers)
    order = _smallest(g, numbers, pairs)
    tokens = g.op.Div(order, g.axes(per_token))
    each = g.op.OneHot(numbers, g.axes(experts.count), g.axes(0, 1), axis=-1)
    counts = g.op.ReduceSum(each, g.axes(0), keepdims=0)

    def product(rows: Value, of: Callable[[tuple[Matrix, Matrix]], Matrix]) -> Value:
        parts = g.node("Split", [rows, counts], experts.count, attributes={"axis": 0})
        found = [linear(g, of(both), part) for both, part in zip(matrices, parts, strict=True)]
        return g.op.Concat(*found, axis=0)

    wide = product(g.op.Gather(g.op.Reshape(x, g.axes(-1, width)), tokens, axis=0), lambda both: both[0])
    if experts.gated:
        gate, up = g.node("Split", [wide], 2, attributes={"axis": 1, "num_outputs": 2})
        hidden = g.op.Mul(_activated(g, params, experts, layer, gate), _capped(g, experts, 1, up))
    else:
        hidden = activation(g, params, experts.activation, layer, wide)
    given = product(hidden, lambda both: both[1])
    places = g.op.Reshape(_smallest(g, order, pairs), g.op.Shape(chosen.numbers))
    of_tokens = g.op.Gather(given, places, axis=0)  # [b, t, k, width]
    weighted = g.op.Mul(of_tokens, g.op.Unsqueeze(chosen.weights, g.axes(3)))
    return g.op.Squeeze(_sum(g, weighted, 2, per_token), g.axes(2))


def _activated(g: GraphBuilder, params: Parameters, experts: Experts, layer: int, gate: Value) -> Value:
    if experts.glu.softcaps is None:
        return activation(g, params, experts.activation, layer, gate)
    return g.op.Mul(_capped(g, experts, 0, gate), g.op.Sigmoid(gate))


def _capped(g: GraphBuilder, experts: Experts, which: int, x: Value) -> Value:
    """The gate or what is multiplied with it, softcapped where the experts do that."""
    return softcap(g, experts.glu.softcaps[which], x) if experts.glu.softcaps else x


def _smallest(g: GraphBuilder, x: Value, count: Value) -> Value:
    """Where the ``count`` smallest of x are, in order; equal ones in that of their places."""
    _, places = g.node("TopK", [x, count], 2, attributes={"axis": 0, "largest": 0})
    return places


def _sum(g: GraphBuilder, x: Value, axis: int, count: int) -> Value:
    """The sum over an axis of ``count``, which is kept: in order, so that its bits depend on nothing else."""
    if count == 1:
        return x
    total, *others = g.node("Split", [x], count, attributes={"axis": axis, "num_outputs": count})
    for other in others:
        total = g.op.Add(total, other)
    return total
