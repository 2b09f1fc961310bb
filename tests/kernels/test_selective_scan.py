"""Our selective scan: against float64 and the stock nodes, and on every instruction set."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen_export.graph.builder import GraphBuilder, Tensor
from edgegen_export.graph.mamba1 import selective_scan
from tests.kernels.material import instruction_sets
from tests.kernels.stock import Floats, Stock, needs_kernels, same_bits, session

pytestmark = needs_kernels

SHAPES = [(1, 1, 16, 64), (2, 7, 16, 100), (1, 40, 5, 3), (3, 9, 33, 17), (1, 130, 16, 48), (1, 0, 16, 32)]
"""Rows, tokens, numbers of a channel, channels."""
INPUTS = ("past", "step", "written", "taken", "read")


def scanned(rate: Floats) -> Stock:
    """The scan as an export writes it."""
    g, wide = GraphBuilder("scan"), ["rows", *rate.shape]
    inputs = [g.input(name, "float32", wide) for name in INPUTS]
    weight = g.weight(Tensor("rate", "float32", rate.shape, 0, 0))
    outputs = g.function("SelectiveScan_by_channel", [*inputs, weight], 2, selective_scan, {})
    for name, value in zip(("present", "y"), outputs, strict=True):
        g.output(name, value, "float32", wide)
    model = g.model()
    return Stock(model.graph.node, INPUTS, ["present", "y"], {"rate": rate}, model.functions)


def material(shape: tuple[int, int, int, int], seed: int = 0) -> tuple[Floats, dict[str, Floats]]:
    """Rates, and what is fed."""
    rows, tokens, numbers, channels = shape
    rng = np.random.default_rng(seed)

    def normal(*sizes: int) -> Floats:
        return rng.standard_normal(sizes).astype(np.float32)

    feeds = {
        "past": normal(rows, numbers, channels),
        "step": np.abs(normal(rows, tokens, 1, channels)),
        "written": normal(rows, tokens, 1, channels),
        "taken": normal(rows, tokens, numbers, 1),
        "read": normal(rows, tokens, 1, numbers),
    }
    return -np.exp(normal(numbers, channels)), feeds


def exact(rate: Floats, feeds: dict[str, Floats]) -> list[NDArray[np.float64]]:
    """The definition, in float64."""
    h, step, written, taken, read = (feeds[name].astype(np.float64) for name in INPUTS)
    y = np.empty(step.shape)
    for t in range(step.shape[1]):
        h = h * np.exp(step[:, t] * rate.astype(np.float64)) + taken[:, t] * written[:, t]
        y[:, t] = read[:, t] @ h
    return [h, y]


def part(feeds: dict[str, Floats], past: Floats, first: int, last: int) -> dict[str, Floats]:
    """The tokens from ``first`` to ``last``, after ``past``."""
    return {"past": past} | {name: np.ascontiguousarray(feeds[name][:, first:last]) for name in INPUTS[1:]}


@pytest.mark.parametrize("shape", SHAPES[:-1])
def test_it_is_as_near_to_float64_as_the_stock_nodes(shape: tuple[int, int, int, int]) -> None:
    rate, feeds = material(shape)
    graph = scanned(rate)
    assert graph.op_types() == ["edgegen.SelectiveScan"]
    wanted = exact(rate, feeds)
    for found, stock, value in zip(graph.run(feeds), graph.run(feeds, stock=True), wanted, strict=True):
        assert found.shape == stock.shape
        assert np.abs(found - value).max(initial=0) <= 1.5 * np.abs(stock - value).max(initial=0) + 1e-6


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("isa", instruction_sets())
def test_every_instruction_set_gives_the_same_bits(
    shape: tuple[int, int, int, int], isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rate, feeds = material(shape)
    monkeypatch.setenv("EDGEGEN_ISA", "portable")
    expected = scanned(rate).run(feeds)
    monkeypatch.setenv("EDGEGEN_ISA", isa)
    for threads in (1, 2):
        assert all(map(same_bits, scanned(rate).run(feeds, threads=threads), expected))


def test_no_tokens_change_nothing() -> None:
    """Stock scans fail."""
    rate, feeds = material((1, 0, 16, 32))
    state, y = scanned(rate).run(feeds)
    assert same_bits(state, feeds["past"])
    assert y.shape == (1, 0, 1, 32)


@pytest.mark.parametrize("cuts", [(1, 2, 3), (64, 65, 128), tuple(range(1, 130))])
def test_a_text_may_be_cut_anywhere(cuts: tuple[int, ...]) -> None:
    rate, feeds = material((2, 130, 16, 48))
    graph = session(scanned(rate).rewritten())
    state, whole = graph.run(None, feeds)
    past, lines = feeds["past"], list[Floats]()
    for first, last in zip((0, *cuts), (*cuts, 130), strict=True):
        past, y = graph.run(None, part(feeds, past, first, last))
        lines.append(y)
    assert same_bits(past, state)
    assert same_bits(np.concatenate(lines, axis=1), whole)
    alone = graph.run(None, {name: array[1:] for name, array in feeds.items()})
    assert same_bits(alone[0], state[1:])
    assert same_bits(alone[1], whole[1:])


def test_rates_that_are_computed_stay() -> None:
    graph = scanned(np.ones((16, 64), np.float32))
    graph.inputs, graph.weights = [*INPUTS, "rate"], {}
    assert graph.op_types() == ["edgegen.SelectiveScan_by_channel"]
    rate, feeds = material((2, 7, 16, 64))
    found = session(graph.rewritten()).run(None, feeds | {"rate": rate})  # by the body
    assert all(map(same_bits, found, scanned(rate).run(feeds, stock=True)))


@pytest.mark.parametrize("name", INPUTS)
def test_shapes_that_do_not_fit_are_refused(name: str) -> None:
    rate, feeds = material((2, 3, 16, 64))
    graph = session(scanned(rate).rewritten())
    with pytest.raises(Exception, match="SelectiveScan: "):
        graph.run(None, feeds | {name: np.concatenate([feeds[name]] * 2, axis=-1)})
    with pytest.raises(Exception, match="SelectiveScan: "):
        graph.run(None, feeds | {name: feeds[name][0]})
