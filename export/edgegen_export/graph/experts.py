"""Mixtures of experts of a decoder graph: what a layer computes beside a shared expert, the experts that one operator
computes, their choice included, and those that no operator of ONNX Runtime knows, each a matrix product of the tokens
that chose it.

Shapes: b rows (batch), t new tokens per row, d hidden size, k experts per token, n = b · t · k pairs of token and
expert.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from edgegen_export.architecture.components.experts import CHOICE_BIAS, EXPERT_SCALES, Experts, SwiGLU
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.graph.activations import softcap
from edgegen_export.graph.builder import MICROSOFT, NONE, AttributeValue, GraphBuilder, Tensor, Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.mlp import activation, feed_forward
from edgegen_export.graph.parameters import BlockMatrix, FloatMatrix, Matrix
from edgegen_export.graph.routing import FusedRouting, chosen_experts, fused_routing, normalizing_sum
from edgegen_export.graph.stream import Stream, sublayer_output
from edgegen_export.quantize.recipe import EIGHT_BITS


@dataclass(frozen=True, slots=True)
class Chosen:
    """The experts of each token: their numbers int64 and their weights, both [b, t, k]."""

    numbers: Value
    weights: Value


def expert_mlp(layer: LayerGraph, experts: Experts, x: Value, residual: Value) -> Stream:
    """``Σ p[e] · mlp[e](x)`` over the experts e that the router chooses.

    A shared expert adds ``shared(x)``, or ``sigmoid(shared_gate(x)) · shared(x)``. With norms of their own, it is
    ``norm(shared(x)) + norm(Σ p[e] · mlp[e](norm(residual)))``, and the router takes ``norm(residual)`` too. Shared
    experts that the router weighs are parts of it, side by side.
    """
    g = layer.g
    routed = layer.normalized(residual, "router_norm") if experts.own_norms else x
    taken = layer.normalized(residual, "expert_norm") if experts.own_norms else x
    scores = _router_scores(layer, experts, routed)
    if experts.latent:
        taken = layer.linear(taken, "latent_in")
    bias = layer.weight(CHOICE_BIAS) if experts.routing.choice_bias else NONE
    of_shared = NONE
    if experts.fused:
        routing = fused_routing(g, experts, scores, bias)
        result, of_shared = _fused_experts(layer, experts, taken, routing), routing.shared
    else:
        result = _sorted_experts(layer, experts, taken, _chosen(layer, experts, scores, bias))
    if experts.latent:
        result = layer.linear(result, "latent_out")
    if experts.own_norms:
        result = layer.normalized(result, "expert_post_norm")
    if not experts.shared_width:
        return Stream(NONE, result)
    shared = _shared(layer, experts, x, of_shared)
    return Stream(NONE, g.op.Add(result, shared.delta), shared.bias)


def _shared(layer: LayerGraph, experts: Experts, x: Value, weights: Value) -> Stream:
    """Return the result of shared experts for x [b, t, d]; ``weights`` [b, t, shared]: the router's, if any."""
    g, own = layer.g, MLP(experts.shared_width, experts.activation, experts.gated)
    result = feed_forward(layer, own, x, name="shared", weights=weights)
    if experts.shared_gated:
        value = sublayer_output(g, result)
        result = Stream(NONE, g.op.Mul(value, g.op.Sigmoid(layer.in_floats(x, "shared_gate.weight"))))
    return Stream(NONE, layer.post_norm(result, "shared_post_norm")) if experts.own_norms else result


def _fused_experts(layer: LayerGraph, experts: Experts, x: Value, weights: FusedRouting) -> Value:
    """``Σ p[e] · down[e](silu(gate[e](x)) · up[e](x))`` over the experts that the ``weights`` p choose."""
    g, module = layer.g, f"{layer.name}.mlp"
    gate_up, down = layer.params.experts(module, experts.count)
    bias_gate_up, bias_down = layer.params.expert_biases(module, experts.count)
    rows = g.op.Reshape(weights.logits, g.axes(-1, experts.count))
    inputs = [x, rows, *_expert_inputs(g, gate_up, bias_gate_up), *_expert_inputs(g, down, bias_down)]
    attributes: dict[str, AttributeValue] = {
        "k": experts.per_token,
        "normalize_routing_weights": 1,
        "activation_type": "swiglu",
        "swiglu_fusion": 1,  # rows of gate and up alternate
        "activation_alpha": experts.glu.alpha,
        "activation_beta": experts.glu.offset,
        "swiglu_limit": experts.glu.limit,
    }
    if isinstance(down, BlockMatrix):
        attributes |= {"expert_weight_bits": down.bits, "block_size": down.block_size}
        if down.bits < EIGHT_BITS.bits:
            attributes["accuracy_level"] = down.accuracy_level  # with 8 bits it is this one anyway
    op_type = "QMoE" if isinstance(down, BlockMatrix) else "MoE"
    (result,) = g.node(op_type, inputs, 1, domain=MICROSOFT, attributes=attributes)
    return g.op.Mul(result, weights.factor) if weights.factor else result


def _expert_inputs(g: GraphBuilder, matrix: Matrix, bias: Tensor | None) -> list[Value]:
    """Weights, scales if quantized, and the bias."""
    added = g.weight(bias) if bias else NONE
    match matrix:
        case FloatMatrix(weight):
            return [g.weight(weight), added]
        case BlockMatrix():
            return [g.weight(matrix.table), g.weight(matrix.scales), added]


def _router_scores(layer: LayerGraph, experts: Experts, x: Value) -> Value:
    """[b, t, experts], those of shared ones behind the others. The router stays float32: it is small, and its choice
    matters much."""
    logits = layer.in_floats(x, "mlp.router.weight")
    return softcap(layer.g, experts.routing.softcap, logits) if experts.routing.softcap else logits


def _chosen(layer: LayerGraph, experts: Experts, scores: Value, bias: Value) -> Chosen:
    """The experts that the router's ``scores`` [b, t, experts] choose for each token, their weights without the
    scaling, which is in the experts."""
    g, routing = layer.g, experts.routing
    assert not routing.shared, "only the fused operator's routing weighs shared experts"
    likely = g.op.Softmax(scores, axis=-1) if routing.scores == "softmax" else g.op.Sigmoid(scores)
    numbers = chosen_experts(g, experts, scores if routing.choice_by_logits else likely, bias)
    weights = g.op.GatherElements(likely, numbers, axis=-1)
    if experts.normalized:
        total = _sum(g, weights, 2, experts.per_token)
        weights = g.op.Div(weights, normalizing_sum(g, routing, total))
    if routing.expert_scales:
        weights = g.op.Mul(weights, g.op.Gather(layer.weight(EXPERT_SCALES), numbers, axis=0))
    return Chosen(numbers, weights)


def _sorted_experts(layer: LayerGraph, experts: Experts, x: Value, chosen: Chosen) -> Value:
    """``Σ weight · mlp[e](x)`` of each token's experts: the pairs of token and expert, sorted by expert, are split into
    the rows of each, of which many have none."""
    assert replace(experts.glu, softcaps=None) == SwiGLU(), "only the fused operator clips gates"
    g, per_token, width = layer.g, experts.per_token, experts.latent or layer.config.hidden_size
    matrices = layer.params.single_experts(f"{layer.name}.mlp", experts.count)
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
        gate, up = g.parts(wide, 2, axis=1)
        hidden = g.op.Mul(_activated(layer, experts, gate), _capped(g, experts, 1, up))
    else:
        hidden = activation(layer, experts.activation, wide)
    given = product(hidden, lambda both: both[1])
    places = g.op.Reshape(_smallest(g, order, pairs), g.op.Shape(chosen.numbers))
    of_tokens = g.op.Gather(given, places, axis=0)  # [b, t, k, width]
    weighted = g.op.Mul(of_tokens, g.op.Unsqueeze(chosen.weights, g.axes(3)))
    return g.op.Squeeze(_sum(g, weighted, 2, per_token), g.axes(2))


def _activated(layer: LayerGraph, experts: Experts, gate: Value) -> Value:
    if experts.glu.softcaps is None:
        return activation(layer, experts.activation, gate)
    return layer.g.op.Mul(_capped(layer.g, experts, 0, gate), layer.g.op.Sigmoid(gate))


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
    total, *others = g.parts(x, count, axis=axis)
    for other in others:
        total = g.op.Add(total, other)
    return total
