"""Graphs whose shapes and attributes do not fit each other: an error that says what is wrong, and no read beyond."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from tests.kernels.material import graph_of, random_weights, run, session_of

RIGHT = random_weights(np.random.default_rng(0), 100, 20, zeros=True, bias=True)
RIGHT4 = random_weights(np.random.default_rng(0), 100, 20, bits=4, block=64, zeros=True, bias=True)


@pytest.mark.parametrize("weights", [RIGHT, RIGHT4], ids=["8 bits", "4 bits"])
@pytest.mark.parametrize("part", ["codes", "scales", "zeros", "bias"])
@pytest.mark.parametrize("length", ["none", "one less", "one more"])
def test_a_part_of_another_length(weights: Any, part: str, length: str) -> None:
    array = getattr(weights, part).reshape(-1)
    wrong = {"none": array[:0], "one less": array[:-1], "one more": np.concatenate([array, array[:1]])}[length]
    name = {"zeros": "zero points", "bias": "biases"}.get(part, part)
    with pytest.raises(Exception, match=f"{name} have {len(wrong)} elements"):
        session_of(graph_of(replace(weights, **{part: wrong})))


@pytest.mark.parametrize(
    ("part", "dtype"),
    [("codes", np.int8), ("scales", np.float64), ("scales", np.int32), ("zeros", np.int8), ("bias", np.float16)],
)
def test_a_part_of_another_type(part: str, dtype: type) -> None:
    with pytest.raises(Exception, match=r"(?i)type"):
        session_of(graph_of(replace(RIGHT, **{part: getattr(RIGHT, part).astype(dtype)})))


@pytest.mark.parametrize("part", ["codes", "scales", "zeros", "bias"])
def test_a_part_that_another_node_computes(part: str) -> None:
    """Left alone, zero points or biases would be taken for left out."""
    weights = replace(RIGHT, scales=RIGHT.wide_scales())
    name = {"zeros": "zero points", "bias": "biases"}.get(part, part)
    with pytest.raises(Exception, match=f"{name} must be an initializer"):
        session_of(graph_of(weights, computed=part), spare_constants=True)


@pytest.mark.parametrize(
    "attributes",
    [
        {"K": 0},
        {"K": -100},
        {"K": 2**31 + 1},
        {"K": 2**62},
        {"N": 0},
        {"N": -(2**63)},
        {"N": 2**63 - 1},
        {"bits": 3, "block_size": 64},
        {"bits": 0},
        {"block_size": 48},
        {"block_size": 0},
        {"block_size": -32},
    ],
    ids=str,
)
def test_impossible_attributes(attributes: dict[str, int]) -> None:
    with pytest.raises(Exception, match="K and N must be positive, bits 8 or 4 and block_size 32 or 64"):
        session_of(graph_of(RIGHT, attributes=attributes))


@pytest.mark.parametrize(
    "attributes",
    [{"K": 129}, {"K": 96}, {"K": 2**31}, {"N": 21}, {"N": 2**31, "K": 2**31}, {"bits": 4}, {"block_size": 64}],
    ids=str,
)
def test_attributes_of_another_matrix(attributes: dict[str, int]) -> None:
    with pytest.raises(
        Exception, match=r"(codes|scales) have \d+ elements of type \d+, which is not what the attributes say"
    ):
        session_of(graph_of(RIGHT, attributes=attributes))


@pytest.mark.parametrize("missing", ["K", "N", "bits", "block_size"])
def test_an_attribute_left_out(missing: str) -> None:
    model = onnx.load_model_from_string(graph_of(RIGHT))
    node = model.graph.node[0]
    kept = [one for one in node.attribute if one.name != missing]
    del node.attribute[:]
    node.attribute.extend(kept)
    with pytest.raises(Exception, match=rf"attribute.*{missing}"):
        session_of(model.SerializeToString())


@pytest.mark.parametrize("columns", [0, 1, 99, 101])
@pytest.mark.parametrize("rows", [1, 3])
def test_x_of_another_width(columns: int, rows: int) -> None:
    session = session_of(graph_of(RIGHT))
    with pytest.raises(Exception, match="the last dimension of x is not K"):
        run(session, np.zeros((rows, columns), np.float32))


@pytest.mark.parametrize("rank", [0, 9])
def test_x_of_no_or_too_many_dimensions(rank: int) -> None:
    session = session_of(graph_of(RIGHT, rank=rank))
    x = np.zeros((*[1] * (rank - 1), 100) if rank else (), np.float32)
    with pytest.raises(Exception, match=r"1 to 8 dimensions|more than 8 dimensions"):
        run(session, x)


def test_a_session_goes_on_after_an_error() -> None:
    session = session_of(graph_of(RIGHT))
    x = np.ones((2, 100), np.float32)
    before = run(session, x)
    with pytest.raises(Exception, match="not K"):
        run(session, x[:, 1:])
    assert np.array_equal(run(session, x), before)
