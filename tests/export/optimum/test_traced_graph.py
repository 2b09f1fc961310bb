"""A graph as optimum writes it becomes the bundle's graphs: hand-made ones here, which need no optimum."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper

from edgegen.bundle.manifest import CacheClass, GraphVariant, KVLayer
from edgegen.errors import UnsupportedModelError
from edgegen.model.concat_runner import ConcatRunner
from edgegen.model.ort_session import GraphPair, OneSession
from edgegen_export.source.optimum.traced_graph import TracedGraph
from tests.export.bundles import TwoSessions
from tests.toy_decoder import (
    POSITIONS,
    VOCABULARY,
    WIDTH,
    Head,
    optimum_graph,
    toy_logits,
    toy_variant,
    toy_weights,
    write_graphs,
    write_model,
)

WEIGHTS = toy_weights(1)
IDS = np.random.default_rng(2).integers(0, VOCABULARY, POSITIONS).tolist()


def traced(folder: Path, **changes: Any) -> TracedGraph:
    return TracedGraph.read(write_model(optimum_graph(WEIGHTS, **changes), folder / "model.onnx"))


def variant_of(graph: TracedGraph) -> GraphVariant:
    toy = toy_variant()
    return GraphVariant(
        **{name: getattr(toy, name) for name in GraphVariant.__dataclass_fields__ if name != "kv"}, kv=graph.kv
    )


@pytest.fixture(params=["one", "two"])
def open_graphs(request: pytest.FixtureRequest) -> Callable[[Path], GraphPair]:
    if request.param == "one":
        return lambda folder: OneSession(folder / "prefill.onnx", threads=1)
    return lambda folder: TwoSessions(folder / "prefill.onnx", folder / "decode.onnx", threads=1)


def stepwise(graphs: GraphPair, graph: TracedGraph) -> NDArray[np.float32]:
    """Logits [t, vocab] of IDS: 9 at once, the rest one by one; prefill agrees after the first 20."""
    runner = ConcatRunner(graphs, variant_of(graph), VOCABULARY, POSITIONS)
    cache = runner.new_cache()
    found = [runner.decode(cache, np.array([IDS[:9]]))[0].copy()]
    found += [runner.decode(cache, np.array([[token]]))[0].copy() for token in IDS[9:]]
    logits = np.concatenate(found)
    cache.truncate(0, 0)
    runner.prefill(cache, 0, IDS[:7])
    assert np.allclose(runner.prefill(cache, 0, IDS[7:20]), logits[19], rtol=0, atol=1e-3)
    return logits


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("head", ["matmul", "scaled", "rows"])
def test_fp32_graphs_give_the_logits_of_numpy(
    tmp_path: Path, open_graphs: Callable[[Path], GraphPair], head: Head, positions: bool
) -> None:
    graph = traced(tmp_path, head=head, positions=positions)
    assert (graph.head is None) == (head == "rows")
    write_graphs(graph, tmp_path, "fp32")
    expected = toy_logits(WEIGHTS, IDS, head)
    assert np.allclose(stepwise(open_graphs(tmp_path), graph), expected, rtol=0, atol=1e-4)


def test_int8_graphs_quantize_every_matrix_once(tmp_path: Path, open_graphs: Callable[[Path], GraphPair]) -> None:
    graph = traced(tmp_path)
    models = write_graphs(graph, tmp_path, "int8")
    for model in models.values():
        stored = {tensor.name for tensor in model.graph.initializer if tensor.data_location}
        matrices = {"key.weight", "value.weight", "table.weight"}
        scales = {f"{name}.scales" for name in matrices}
        assert stored == matrices | scales | {"table.weight.table", "places"}  # the bias is small
    operators = {node.op_type for node in models["decode"].graph.node}
    assert {"MatMulNBits", "GatherBlockQuantized"} <= operators
    assert "Gemm" not in operators
    difference = np.abs(stepwise(open_graphs(tmp_path), graph) - toy_logits(WEIGHTS, IDS))
    assert 0 < difference.max() < 0.5
    assert difference.mean() < 0.08


def test_a_tied_head_is_stored_once_and_another_is_not(tmp_path: Path) -> None:
    assert traced(tmp_path).matrices == {"table": "table", "key": "key", "value": "value", "head": "table"}
    weights = {**WEIGHTS, "head": WEIGHTS["head"] + np.float32(1e-6)}
    graph = TracedGraph.read(write_model(optimum_graph(weights), tmp_path / "untied.onnx"))
    assert graph.matrices["head"] == "head"
    assert graph.tensors["head.weight"].shape == (VOCABULARY, WIDTH)
    assert np.array_equal(graph.tensors["head.weight"].read(), weights["head"].T)


def test_a_matrix_that_is_also_its_transpose_is_stored_as_the_first_and_left_to_the_other(tmp_path: Path) -> None:
    model = optimum_graph(WEIGHTS)
    model.graph.node.append(helper.make_node("Gemm", ["anything", "key"], ["more"], transB=1))
    graph = TracedGraph.read(write_model(model, tmp_path / "both.onnx"))
    assert np.array_equal(graph.tensors["key.weight"].read(), WEIGHTS["key"].T)
    assert len(graph.nodes) - 1 not in graph.linear
    assert np.array_equal(graph.tensors[graph.vectors["key"]].read(), WEIGHTS["key"])


def test_the_prefill_graph_runs_its_head_on_one_position(tmp_path: Path) -> None:
    graph = traced(tmp_path, head="scaled")
    prefill = write_graphs(graph, tmp_path, "int8")["prefill"].graph.node
    picked = next(node for node in prefill if node.op_type == "GatherND").output[0]
    heads = [node for node in prefill if node.op_type == "MatMulNBits" and node.input[0] == picked]
    assert [node.input[1] for node in heads] == ["table.weight"]


def test_what_is_known_of_the_cache(tmp_path: Path) -> None:
    graph = traced(tmp_path)
    names = ("past_key_values.0.key", "past_key_values.0.value", "present.0.key", "present.0.value")
    assert graph.kv.kind == "concat"
    assert graph.kv.classes == {"full": CacheClass(None, None, None)}
    assert graph.kv.layers == (KVLayer("full", 1, WIDTH, *names),)
    assert (graph.vocab_size, graph.opset) == (VOCABULARY, 18)


def _rename(model: ModelProto, old: str, new: str) -> None:
    for value in [*model.graph.input, *model.graph.output]:
        value.name = new if value.name == old else value.name
    for node in model.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]


def _set_shape(model: ModelProto, name: str, *shape: int | str) -> None:
    for value in [*model.graph.input, *model.graph.output]:
        if value.name == name:
            value.CopyFrom(helper.make_tensor_value_info(name, value.type.tensor_type.elem_type, shape))


def _set_cache_shape(*shape: int | str) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        for name in (KEY, VALUE):
            _set_shape(model, name, *shape)

    return change


def _without_cache(model: ModelProto) -> None:
    for name in ("key", "value"):
        _rename(model, f"past_key_values.0.{name}", f"state_{name}")


def _branching(model: ModelProto) -> None:
    empty = helper.make_graph([], "branch", [], [])
    model.graph.node.append(helper.make_node("If", ["x"], [], "choice", then_branch=empty, else_branch=empty))


KEY, VALUE = "past_key_values.0.key", "past_key_values.0.value"
UNUSABLE: dict[str, tuple[Callable[[ModelProto], None], str]] = {
    "another input": (
        lambda m: _rename(m, "attention_mask", "token_type_ids"),
        "it asks for an input 'token_type_ids'",
    ),
    "no cache": (_without_cache, "it asks for an input 'state_key'\n  - it asks for an input 'state_value'"),
    "no present": (lambda m: _rename(m, "present.0.key", "kept"), "it has no present.0.key"),
    "values of another size": (
        lambda m: _set_shape(m, VALUE, "b", 1, "p", 8),
        "layer 0 keeps keys ['b', 1, 'p', 16] and values ['b', 1, 'p', 8]",
    ),
    "unknown heads": (
        _set_cache_shape("b", "heads", "p", 16),
        "number and size of its heads are not known",
    ),
    "three axes": (
        _set_cache_shape("b", "p", 16),
        "not [rows, heads, positions, size] of both",
    ),
    "unknown vocabulary": (lambda m: _set_shape(m, "logits", "b", "t", "v"), "no logits over a vocabulary of known"),
    "no logits": (lambda m: _rename(m, "logits", "scores_of_all"), "no logits over a vocabulary of known"),
    "control flow": (_branching, "its node choice is a If with graphs of its own"),
}


@pytest.mark.parametrize(("change", "said"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_another_kind_of_graph_is_refused(tmp_path: Path, change: Callable[[ModelProto], None], said: str) -> None:
    model = optimum_graph(WEIGHTS)
    change(model)
    with pytest.raises(UnsupportedModelError, match=re.escape(said)) as caught:
        TracedGraph.read(write_model(model, tmp_path / "model.onnx"))
    assert str(caught.value).startswith("the graph that optimum traced cannot be used: ")
