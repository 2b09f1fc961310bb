"""Our softplus: against float64 and the stock nodes, and on every instruction set."""

import numpy as np
import pytest

from edgegen.graph.kernel_operators import with_kernels
from edgegen_export.graph.activations import negative_softplus
from edgegen_export.graph.builder import GraphBuilder
from tests.kernels.material import instruction_sets
from tests.kernels.stock import Floats, needs_kernels, same_bits, session, units

pytestmark = needs_kernels

X: Floats = np.concatenate(
    [np.linspace(-30, 30, 20_011), np.random.default_rng(0).normal(0, 2, 20_000), -np.geomspace(1e-30, 80, 1000)]
).astype(np.float32)


def run(x: Floats, *, stock: bool = False, threads: int = 1) -> Floats:
    """``-softplus(x)`` of a row x, as an export writes it."""
    g = GraphBuilder("softplus")
    shape = ["batch", "tokens", len(x)]
    g.output("y", negative_softplus(g, g.input("x", "float32", shape)), "float32", shape)
    graph = g.model().SerializeToString()
    found: Floats = session(graph if stock else with_kernels(graph), threads).run(None, {"x": x[None, None]})[0]
    return found[0, 0]


def test_it_is_near_float64s() -> None:
    assert units(run(X), -np.logaddexp(0, X.astype(np.float64))).max() <= 3


def test_it_is_as_near_as_the_stock_nodes() -> None:
    exact = -np.logaddexp(0, X.astype(np.float64))
    ours, stock = (run(X, stock=stock) - exact for stock in (False, True))
    assert np.abs(ours).max() <= np.abs(stock).max()


def test_the_ends_of_what_floats_hold() -> None:
    x = np.array([-np.inf, -3e38, -200, 0, 200, 3e38, np.inf, np.nan], np.float32)
    y = run(x)
    assert y[:3].tolist() == [0, 0, 0]
    assert y[3] == pytest.approx(-np.log(2))
    assert y[4:7].tolist() == [-200, -np.float32(3e38), -np.inf]
    assert np.isnan(y[7])


@pytest.mark.parametrize("isa", instruction_sets())
def test_every_instruction_set_gives_the_same_bits(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEGEN_ISA", "portable")
    expected = run(X)
    monkeypatch.setenv("EDGEGEN_ISA", isa)
    assert same_bits(run(X), expected)
    assert same_bits(run(X, threads=2), expected)
    assert all(same_bits(run(X[i : i + n]), expected[i : i + n]) for i, n in ((0, 1), (3, 15), (7, 37)))
