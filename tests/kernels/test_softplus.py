"""Our softplus: against float64 and the stock nodes, on every instruction set, and in rewritten graphs."""

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.kernels.material import instruction_sets
from tests.kernels.stock import Floats, Stock, needs_kernels, same_bits, units

pytestmark = needs_kernels

X: Floats = np.concatenate(
    [np.linspace(-30, 30, 20_011), np.random.default_rng(0).normal(0, 2, 20_000), -np.geomspace(1e-30, 80, 1000)]
).astype(np.float32)


def as_exported(axis: int = -1, index: int = 1, pads: tuple[int, ...] = (0, 0, 0, 1)) -> Stock:
    """``-softplus(x)`` of a row x, as an export writes it."""
    nodes: list[onnx.NodeProto] = [
        helper.make_node("Unsqueeze", ["x", "last"], ["wide"]),
        helper.make_node("Pad", ["wide", "pads"], ["pairs"]),
        helper.make_node("LogSoftmax", ["pairs"], ["logs"], axis=axis),
        helper.make_node("Gather", ["logs", "second"], ["y"], axis=-1),
    ]
    constants = {"last": np.array([-1]), "pads": np.array(pads), "second": np.array(index)}
    return Stock(nodes, ["x"], ["y"], constants)


def test_it_is_near_float64s() -> None:
    (found,) = as_exported().run({"x": X})
    assert units(found, -np.logaddexp(0, X.astype(np.float64))).max() <= 3


def test_it_is_as_near_as_the_stock_nodes() -> None:
    exact = -np.logaddexp(0, X.astype(np.float64))
    ours, stock = (as_exported().run({"x": X}, stock=stock)[0] - exact for stock in (False, True))
    assert np.abs(ours).max() <= np.abs(stock).max()


def test_the_ends_of_what_floats_hold() -> None:
    x = np.array([-np.inf, -3e38, -200, 0, 200, 3e38, np.inf, np.nan], np.float32)
    (y,) = as_exported().run({"x": x})
    assert y[:3].tolist() == [0, 0, 0]
    assert y[3] == pytest.approx(-np.log(2))
    assert y[4:7].tolist() == [-200, -np.float32(3e38), -np.inf]
    assert np.isnan(y[7])


@pytest.mark.parametrize("isa", instruction_sets())
def test_every_instruction_set_gives_the_same_bits(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEGEN_ISA", "portable")
    (expected,) = as_exported().run({"x": X})
    monkeypatch.setenv("EDGEGEN_ISA", isa)
    assert same_bits(as_exported().run({"x": X})[0], expected)
    assert same_bits(as_exported().run({"x": X}, threads=2)[0], expected)
    assert all(
        same_bits(as_exported().run({"x": X[i : i + n]})[0], expected[i : i + n]) for i, n in ((0, 1), (3, 15), (7, 37))
    )


def test_the_nodes_become_one() -> None:
    assert as_exported().op_types() == ["edgegen.Activation"]


@pytest.mark.parametrize(
    "other",
    [as_exported(axis=0), as_exported(index=0), as_exported(pads=(0, 0, 1, 0)), as_exported(pads=(0, 0, 0, 2))],
    ids=["another axis", "at x", "zeros elsewhere", "two zeros"],
)
def test_other_nodes_stay(other: Stock) -> None:
    assert other.op_types() == ["Unsqueeze", "Pad", "LogSoftmax", "Gather"]


@pytest.mark.parametrize("name", ["wide", "pairs", "logs"])
def test_what_else_reads_a_part_keeps_the_nodes(name: str) -> None:
    graph = as_exported()
    graph.outputs = ["y", name]
    assert "edgegen.Activation" not in graph.op_types()
