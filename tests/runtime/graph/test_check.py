"""Graphs that lie, refused before ONNX Runtime sees them; made with onnx, which reads none of ours."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgegen import LLM, BundleError, VerificationError
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.graph.check import MOST_GRAPH_BYTES, OPERATORS, graph_problems
from edgegen.model.ort_session import open_session
from tests.runtime.bundle.mutations import mutated
from tests.runtime.models import raw_manifest

Change = Callable[[onnx.ModelProto], object]
FILES = {"weights.data": 100}
MUTATIONS = 300


def model(*nodes: onnx.NodeProto, tensors: tuple[onnx.TensorProto, ...] = ()) -> onnx.ModelProto:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    return helper.make_model(helper.make_graph(nodes, "g", [], [value], tensors))


def external(shape: list[int], kind: int = TensorProto.FLOAT, **places: object) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name="w", data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in places.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def numbers(kind: int, shape: list[int], values: list[Any]) -> onnx.TensorProto:
    return helper.make_tensor("w", kind, shape, values)


def problems(made: onnx.ModelProto) -> list[str]:
    return graph_problems(made.SerializeToString(), FILES)


@pytest.mark.parametrize(
    "tensor",
    [
        external([5, 5], location="weights.data", offset=0, length=100),
        external([10], TensorProto.UINT8, location="weights.data", offset=90, length=10),
        external([3, 3], TensorProto.UINT4, location="weights.data", offset=0, length=5),
        external([0], location="weights.data", offset=100, length=0),
        numbers(TensorProto.FLOAT, [2], [1.0, 2.0]),
        numbers(TensorProto.DOUBLE, [2], [1.0, 2.0]),
        numbers(TensorProto.INT64, [3], [1, -1, 2**40]),
        numbers(TensorProto.INT32, [2, 1], [300, -4]),
        numbers(TensorProto.BOOL, [], [True]),
        numbers(TensorProto.UINT64, [1], [2**63]),
        numbers(TensorProto.BFLOAT16, [2], [1.0, 2.0]),
        numpy_helper.from_array(np.zeros((2, 3), np.float16), "w"),
    ],
)
def test_honest_tensors_pass(tensor: onnx.TensorProto) -> None:
    assert problems(model(tensors=(tensor,))) == []


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (external([5, 5], location="../secret", length=100), "lies in '../secret', which is no file of weights"),
        (external([5, 5], length=100), "lies in '', which is no file of weights"),
        (external([5, 5], location="weights.data"), "lies nowhere in 'weights.data'"),
        (external([5, 5], location="weights.data", length="1e2"), "lies nowhere in 'weights.data'"),
        (external([5, 6], location="weights.data", length=100), "100 bytes, and its shape and type ask for 120"),
        (external([5, 5], location="weights.data", offset=4, length=100), "ends at byte 104 of 'weights.data', which"),
        (external([5, 5], location="weights.data", offset=-4, length=100), "ends at byte 96 of"),
        (external([1] * 17, location="weights.data", length=4), "of more than 16 axes"),
        (external([2**40], TensorProto.UINT8, location="weights.data", length=100), "of shape"),
        (external([-1], TensorProto.UINT8, location="weights.data", length=100), "of shape"),
        (external([2**16] * 4, TensorProto.UINT8, location="weights.data", length=0), "18446744073709551616"),
        (numbers(TensorProto.STRING, [1], [b"a"]), "a field 6 of a tensor that no export writes"),
        (external([1], 99, location="weights.data", length=4), "of type 99, which is not a type of numbers"),
        (
            onnx.TensorProto(name="w", data_type=1, dims=[3], raw_data=b"1234"),
            "4 bytes, and its shape and type ask for",
        ),
        (onnx.TensorProto(name="w", data_type=1, dims=[3], float_data=[1, 2]), "2 numbers, and its shape asks for 3"),
        (onnx.TensorProto(name="w", data_type=7, dims=[2**20]), "0 numbers, and its shape asks for 1048576"),
    ],
)
def test_a_tensor_that_lies_is_refused(tensor: onnx.TensorProto, said: str) -> None:
    (problem,) = problems(model(tensors=(tensor,)))
    assert said in problem


def with_graph_attribute(made: onnx.ModelProto) -> None:
    made.graph.node.append(helper.make_node("Add", ["a", "b"], ["y"], body=onnx.GraphProto(name="inner")))


def with_sparse(made: onnx.ModelProto) -> None:
    made.graph.sparse_initializer.add()


def with_sequence(made: onnx.ModelProto) -> None:
    made.graph.input.add(name="s").type.sequence_type.elem_type.tensor_type.elem_type = 1


def with_operator_set(made: onnx.ModelProto) -> None:
    made.opset_import.append(helper.make_opsetid("evil", 1))


def of(kind: str, domain: str = "") -> Change:
    return lambda made: made.graph.node.append(helper.make_node(kind, ["x"], ["y"], domain=domain))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (of("Loop"), "the operator 'Loop' is not an operator of language models"),
        (of("RandomNormal"), "'RandomNormal'"),
        (of("SequenceAt"), "'SequenceAt'"),
        (of("StringNormalizer"), "'StringNormalizer'"),
        (of("ReadFile", "evil"), "the operator 'ReadFile' of 'evil' is not"),
        (of("MatMulNBits"), "'MatMulNBits'"),
        (with_operator_set, "operators of 'evil'"),
        (with_graph_attribute, "a field 6 of an attribute that no export writes"),
        (with_sparse, "a field 15 of the graph that no export writes"),
        (with_sequence, "a field 4 of a type that no export writes"),
    ],
)
def test_what_no_language_model_needs_is_refused(change: Change, said: str) -> None:
    made = model()
    change(made)
    assert said in " ".join(problems(made))


def scan(*nodes: onnx.NodeProto, **parts: Any) -> onnx.NodeProto:
    value = helper.make_tensor_value_info("h", TensorProto.FLOAT, [1])
    body = helper.make_graph(nodes, "body", [value], [value], **parts)
    return helper.make_node("Scan", ["a", "b"], ["y"], body=body, num_scan_inputs=1, scan_input_axes=[1])


def function(*nodes: onnx.NodeProto, name: str = "CausalConv_4", domain: str = "edgegen") -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_function(domain, name, ["x", "past"], ["y", "present"], nodes, opsets, ["width"])


def call(kind: str = "CausalConv_4", inputs: int = 2, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, ["x"] * inputs, ["y", "z"], domain="edgegen", **attributes)


def calling(*nodes: onnx.NodeProto, functions: Sequence[onnx.FunctionProto]) -> onnx.ModelProto:
    made = model(*nodes)
    made.opset_import.append(helper.make_opsetid("edgegen", 1))
    made.functions.extend(functions)
    return made


ADD = helper.make_node("Add", ["x", "past"], ["y"])
SUM = function(ADD)


def test_a_function_of_stock_operators_passes() -> None:
    norm = helper.make_node("SimplifiedLayerNormalization", ["x", "past"], ["y"], axis=-1, stash_type=1)
    body = function(ADD, norm, scan(ADD), name="GatedDeltaRule_2_4")
    assert problems(calling(call(width=4), call("GatedDeltaRule_2_4", 1), functions=[SUM, body])) == []


def with_opset(domain: str) -> onnx.FunctionProto:
    made = function(ADD)
    made.opset_import.add(domain=domain, version=1)
    return made


def with_inputs(*names: str) -> onnx.FunctionProto:
    made = function(ADD)
    made.input[:] = names
    return made


def of_operator(kind: str, *inputs: str, domain: str = "", **attributes: Any) -> onnx.FunctionProto:
    return function(helper.make_node(kind, inputs or ["x", "past"], ["y"], domain=domain, **attributes))


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        ([function(ADD, domain="evil")], "the function 'CausalConv_4' of 'evil' is none of edgegen's"),
        ([function(ADD, name="FusedLayers")], "the function 'FusedLayers' of 'edgegen' is none of edgegen's"),
        ([function(ADD, name="CausalConv")], "the function 'CausalConv' of 'edgegen' is none of edgegen's"),
        ([SUM, SUM], "two functions 'CausalConv_4'"),
        ([with_inputs("x", "x")], "two inputs or outputs of one name"),
        ([with_inputs("x", "")], "two inputs or outputs of one name, or one without a name"),
        ([with_opset("edgegen")], "operators of 'edgegen'"),
        ([with_opset("evil")], "operators of 'evil'"),
        ([of_operator("Loop")], "the operator 'Loop' is not an operator of language models"),
        ([of_operator("ReadFile", domain="evil")], "the operator 'ReadFile' of 'evil' is not"),
        ([of_operator("Scan")], "a Scan without a body"),
        ([function(scan(scan()))], "a field 6 of an attribute that no export writes"),
        ([SUM, of_operator("CausalConv_4", domain="edgegen")], "is no function that can be called here"),
        ([function(scan(call()))], "'CausalConv_4' of 'edgegen' is no function that can be called here"),
        ([of_operator("SimplifiedLayerNormalization")], "SimplifiedLayerNormalization in a function, without a stash"),
        ([of_operator("SimplifiedLayerNormalization", stash_type=10)], "SimplifiedLayerNormalization in a function"),
        ([of_operator("Expand")], "a node Expand makes a tensor of a shape that its function is given"),
        ([function(ADD, name=f"CausalConv_{n}") for n in range(65)], "more than 64 functions"),
    ],
)
def test_another_function_is_refused(bodies: list[onnx.FunctionProto], said: str) -> None:
    assert said in " ".join(problems(calling(functions=bodies)))


@pytest.mark.parametrize(
    "node",
    [call("CausalConv_5"), call("CausalConv"), call("FusedLayers"), scan(call())],
    ids=["5", "none", "kernel", "scan"],
)
def test_a_call_of_what_is_no_function_is_refused(node: onnx.NodeProto) -> None:
    assert "of 'edgegen' is no function that can be called here" in " ".join(problems(calling(node, functions=[SUM])))


@pytest.mark.parametrize("node", [call(inputs=3), call(height=1)])
def test_a_call_that_its_function_does_not_know_is_refused(node: onnx.NodeProto) -> None:
    (problem,) = problems(calling(node, functions=[SUM]))
    assert problem == "a node CausalConv_4 has inputs, outputs or attributes that the function of this name has not"


def test_constants_of_a_function_are_checked_and_stay_in_it() -> None:
    constant = helper.make_node("Constant", [], ["shape"], value=SHAPE)
    expand = helper.make_node("Expand", ["x", "shape"], ["y"])
    said = f"a node Expand makes a tensor of shape {[2**20, 2**20]}"
    assert problems(calling(functions=[function(constant, expand)])) == [said]
    assert problems(calling(expand, functions=[function(constant)])) == []
    wrong = helper.make_node("Constant", [], ["w"], value=onnx.TensorProto(data_type=1, dims=[3], raw_data=b"1234"))
    (problem,) = problems(calling(functions=[function(wrong)]))
    assert problem.startswith("a tensor of Constant: 4 bytes")


def test_what_functions_become_in_their_places_has_a_bound() -> None:
    value = numpy_helper.from_array(np.zeros(1 << 16, np.uint8))
    large = function(helper.make_node("Constant", [], ["c"], value=value), ADD)
    assert problems(calling(*[call()] * 200, functions=[large])) == []
    (problem,) = problems(calling(*[call()] * 300, functions=[large]))
    assert problem == "more than 16,777,216 bytes once its functions stand where they are called"


SHAPE = helper.make_tensor("shape", TensorProto.INT64, [2], [2**20, 2**20])


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (scan(helper.make_node("Mul", ["h", "w"], ["h2"])), []),
        (scan(helper.make_node("Loop", ["x"], ["y"])), ["the operator 'Loop' is not an operator of language models"]),
        (scan(scan()), ["a field 6 of an attribute that no export writes"]),
        (scan(initializer=[SHAPE]), ["a field 5 of the body of a Scan that no export writes"]),
        (
            scan(helper.make_node("Constant", [], ["s"], value=SHAPE), helper.make_node("Expand", ["x", "s"], ["y"])),
            [f"a node Expand makes a tensor of shape {[2**20, 2**20]}"],
        ),
    ],
)
def test_the_body_of_a_scan_is_checked_like_a_graph(node: onnx.NodeProto, said: list[str]) -> None:
    assert problems(model(node)) == said


@pytest.mark.parametrize("kind", ["Expand", "Reshape", "Tile", "ConstantOfShape"])
@pytest.mark.parametrize("by_node", [False, True])
def test_a_constant_shape_has_a_bound(kind: str, by_node: bool) -> None:
    inputs = ["shape"] if kind == "ConstantOfShape" else ["x", "shape"]
    for shape, passes in (([4, -1, 1000], True), ([2**20, 2**20], False), ([-(2**62)], False)):
        tensor = helper.make_tensor("shape", TensorProto.INT64, [len(shape)], shape)
        constant = helper.make_node("Constant", [], ["shape"], value=tensor)
        node = helper.make_node(kind, inputs, ["y"])
        made = model(constant, node) if by_node else model(node, tensors=(tensor,))
        expected = [] if passes else [f"a node {kind} makes a tensor of shape {shape}"]
        assert problems(made) == expected


def test_two_graphs_are_not_one() -> None:
    """Protocol buffers merge them, and another reader may take either."""
    one, other = model(), model()
    of("Loop")(other)
    assert graph_problems(one.SerializeToString() + other.SerializeToString(), FILES) == ["two fields 1 of the model"]


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (b"", "not an ONNX graph: it has none"),
        (b"\xff" * 100, "not an ONNX graph: an integer of more than 64 bits"),
        (b"\x3a\x05ab", "not an ONNX graph: a message that ends too early"),
        (b"\x3b", "not an ONNX graph: a field of kind 3"),
        (bytes(MOST_GRAPH_BYTES + 1), "more than 16,777,216 bytes"),
    ],
)
def test_what_is_no_graph_is_refused(graph: bytes, said: str) -> None:
    (problem,) = graph_problems(graph, FILES)
    assert said in problem


def test_many_problems_are_some() -> None:
    assert len(problems(model(*(helper.make_node(f"Loop{n}", [], []) for n in range(1000))))) == 20


def test_the_same_problem_is_told_once() -> None:
    assert len(problems(model(*(helper.make_node("Loop", [], []) for _ in range(9))))) == 1


def test_operators_are_those_of_tensors_alone() -> None:
    """As ONNX's own schemas tell it: no graphs in attributes, no sequences, optionals or texts, nothing random."""
    known = {schema.name: cast(Any, schema) for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    assert OPERATORS[""] - known.keys() == {"SimplifiedLayerNormalization"}  # ONNX Runtime's, in that domain
    for name in (OPERATORS[""] & known.keys()) - {"Scan"}:  # which has a body of such operators
        schema = known[name]
        assert schema.node_determinism.name != "NonDeterministic", name
        kinds: set[str] = {attribute.type.name for attribute in schema.attributes.values()}
        assert not kinds & {"GRAPH", "GRAPHS"}, name
        taken: set[str] = {kind for one in (*schema.inputs, *schema.outputs) for kind in one.types}
        assert any(kind.startswith("tensor(") for kind in taken), name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(BundleStore().resolve(DEFAULT_MODEL), tmp_path / "stories")


def rewrite(folder: Path, name: str, content: bytes) -> None:
    """A bundle of the attacker's: its hashes are right."""
    raw = raw_manifest(folder)
    raw["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / raw["folder"] / name).write_bytes(content)
    (folder / "edgegen.json").write_text(json.dumps(raw))


def test_a_bundle_with_such_a_graph_is_not_loaded(folder: Path) -> None:
    graph = onnx.ModelProto.FromString((folder / "v1" / "decode.onnx").read_bytes())
    graph.graph.node[3].op_type = "Loop"
    rewrite(folder, "decode.onnx", graph.SerializeToString())
    said = r"decode\.onnx: the operator 'Loop' is not an operator of language models"
    with pytest.raises(VerificationError, match=said):
        LLM.load(folder)
    with pytest.raises(VerificationError, match=said):
        Bundle.open(folder).verify()


def test_what_onnx_runtime_says_of_a_graph_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """Its fallback to other providers would print it, on standard output."""
    made = model(helper.make_node("Abs", ["ZZZZ"], ["y"])).SerializeToString()
    with pytest.raises(BundleError, match="cannot load a graph: "):
        open_session(made.replace(b"ZZZZ", b"Z\x80ZZ"))  # no UTF-8: its words cannot be decoded
    assert capfd.readouterr() == ("", "")


def test_mutated_graphs_pass_or_are_refused() -> None:
    """Never another exception. ``tests/long/fuzz_bundles.py`` has more, and loads those that pass."""
    bundle = Bundle.open(BundleStore().resolve(DEFAULT_MODEL))
    whole, files = bundle.file("prefill.onnx").read_bytes(), {"weights.data": bundle.weights_size}
    chance = random.Random(5)
    found = [graph_problems(mutated(whole, chance), files) for _ in range(MUTATIONS)]
    assert graph_problems(whole, files) == []
    assert MUTATIONS // 2 < sum(map(bool, found)) < MUTATIONS
