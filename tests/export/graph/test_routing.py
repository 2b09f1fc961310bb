"""Routing: the operator's softmax over the largest logits, times the factor, gives the weights that the model asks for,
also where sigmoids are 0 or 1 in float32."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.model.ort_session import open_session
from edgegen_export.architecture.components.experts import CHOICE_BIAS, Experts, Routing
from edgegen_export.graph.builder import NONE, GraphBuilder
from edgegen_export.graph.parameters import FedParameters
from edgegen_export.graph.routing import fused_routing
from edgegen_export.tensors.lazy import LazyTensor

COUNT, CHOSEN = 8, 3
PLAIN = Experts(COUNT, CHOSEN, normalized=True, width=16)
SIGMOID = replace(PLAIN, routing=Routing("sigmoid", epsilon=1e-6))
BIASED = replace(PLAIN, routing=Routing("sigmoid", choice_bias=True, epsilon=1e-6))
Floats = NDArray[np.float32]

LOGITS = {
    "usual": np.random.default_rng(0).normal(0, 2, (5, COUNT)),
    "all far below": np.random.default_rng(1).normal(-200, 20, (5, COUNT)),
    "all far above": np.random.default_rng(2).normal(200, 20, (5, COUNT)),
    "both": np.random.default_rng(3).choice([-300.0, 0.5, 300.0], (5, COUNT)),
    "small": np.random.default_rng(4).normal(-14, 1, (5, COUNT)),
}


def computed(experts: Experts, logits: Floats, bias: Floats) -> tuple[Floats, Floats]:
    """The graph's logits [n, experts] and its factor [n, 1]."""
    g = GraphBuilder("routing")
    params = FedParameters({f"layers.0.{CHOICE_BIAS}": LazyTensor.from_array(bias)})
    added = g.weight(params.vector(f"layers.0.{CHOICE_BIAS}")) if experts.routing.choice_bias else NONE
    found = fused_routing(g, experts, g.input("x", "float32", ["b", "t", COUNT]), added)
    g.output("logits", g.op.Identity(found.logits), "float32", ["b", "t", COUNT])
    factor = found.factor or g.constant(np.ones((1, 1, 1), np.float32))
    g.output("factor", g.op.Identity(factor), "float32", ["b", "t", 1])
    session = open_session(g.model().SerializeToString())
    asked, factors = session.run(["logits", "factor"], {"x": logits[None], **params.feeds()})
    return np.asarray(asked)[0], np.broadcast_to(np.asarray(factors)[0], (len(logits), 1))


def of_operator(logits: Floats) -> NDArray[np.float64]:
    """The weights [n, experts] that the operator gives: a softmax over the largest."""
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :CHOSEN]
    best = np.take_along_axis(logits.astype(np.float64), chosen, axis=1)
    shares = np.exp(best - best.max(axis=1, keepdims=True))
    weights = np.zeros(logits.shape)
    np.put_along_axis(weights, chosen, shares / shares.sum(axis=1, keepdims=True), axis=1)
    return weights


def wanted(experts: Experts, logits: Floats, bias: Floats) -> NDArray[np.float64]:
    """The weights [n, experts] by their definition, in float64; choices by scores in float32, as models make them."""
    x = logits.astype(np.float64)
    scores = 1 / (1 + np.exp(-x)) if experts.routing.scores == "sigmoid" else np.exp(x - x.max(axis=1, keepdims=True))
    scores = scores if experts.routing.scores == "sigmoid" else scores / scores.sum(axis=1, keepdims=True)
    ranked = (scores + bias).astype(np.float32) if experts.routing.choice_bias else scores.astype(np.float32)
    groups = ranked.reshape(len(x), experts.routing.groups, -1)
    of_groups = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    left_out = np.argsort(-of_groups, axis=1, kind="stable")[:, experts.routing.chosen_groups :]
    np.put_along_axis(groups, left_out[:, :, None], -np.inf, axis=1)  # a view of what is ranked
    chosen = np.argsort(-ranked, axis=1, kind="stable")[:, :CHOSEN]
    best = np.take_along_axis(scores, chosen, axis=1)
    if experts.normalized:
        total = np.maximum(best.sum(axis=1, keepdims=True), experts.routing.least_sum)
        best = best / (total + experts.routing.epsilon)
    weights = np.zeros(logits.shape)
    np.put_along_axis(weights, chosen, best, axis=1)
    return weights


@pytest.mark.parametrize("kind", LOGITS)
@pytest.mark.parametrize(
    "experts",
    [
        PLAIN,
        replace(PLAIN, normalized=False),
        SIGMOID,
        replace(SIGMOID, normalized=False),
        BIASED,
        replace(BIASED, normalized=False),
        replace(BIASED, routing=Routing("sigmoid", choice_bias=True)),
        replace(PLAIN, routing=Routing(choice_bias=True)),
        replace(PLAIN, routing=Routing(choice_bias=True, least_sum=0.4)),
        replace(PLAIN, routing=Routing(least_sum=0.4)),
        replace(PLAIN, routing=Routing("sigmoid", choice_bias=True, groups=4, chosen_groups=2)),
        replace(PLAIN, routing=Routing(groups=4, chosen_groups=2), normalized=False),
    ],
    ids=lambda e: f"{e.normalized}, {e.routing}",
)
def test_weights_are_those_of_their_definition(experts: Experts, kind: str) -> None:
    logits = LOGITS[kind].astype(np.float32)
    bias = np.random.default_rng(9).normal(0, 0.5, COUNT).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = wanted(experts, logits, bias)
    asked, factor = computed(experts, logits, bias)
    assert np.isfinite(asked).all()
    np.testing.assert_allclose(of_operator(asked) * factor, expected, rtol=2e-5, atol=1e-7)
