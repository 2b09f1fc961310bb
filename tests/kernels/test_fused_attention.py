"""Fused layers with attention: which nodes they take, and that they change no bit of any of them."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgegen.graph.kernel_operators import with_fusion
from tests.kernels.material import Array, instruction_sets, random_weights, same_bits, session_of
from tests.kernels.stock import needs_kernels
from tests.kernels.test_attention import INITIALIZERS, INPUTS, OPERATORS, TYPES, Case

pytestmark = needs_kernels

SHARED = ("seqlens_k", "total_sequence_length", "cosines", "sines", "position_ids", "bias")
"""Inputs of attention that all layers read."""
SUFFIXES = {"float32": "", "int8": "Int8", "int4": "Int4"}
"""Of the operator's name, by its KV cache."""


@dataclass
class Layers:
    """Decoder layers of our own operators: a norm, queries, keys and values in one, attention, projection, MLP.

    ``normed``: each head of queries and keys has a norm before attention, as Qwen3 and Gemma 3 have them.
    """

    case: Case
    normed: bool = False
    width: int = 40
    inner: int = 72
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    feeds: dict[str, Array] = field(default_factory=dict[str, Array])
    weights: dict[str, onnx.TensorProto] = field(default_factory=dict[str, onnx.TensorProto])
    results: dict[str, int] = field(default_factory=dict[str, int])
    value: str = "x"
    total: str = ""

    def __post_init__(self) -> None:
        given = self.case.feeds()
        self.feeds |= {name: given[name] for name in SHARED if name in given}
        shape = (len(self.case.past), self.case.tokens, self.width)
        self.feeds["x"] = np.random.default_rng(3).normal(size=shape).astype(np.float32)

    def _add(
        self, op_type: str, inputs: list[str], outputs: list[str], domain: str = "edgegen", **attributes: Any
    ) -> None:
        made = cast(Any, helper).make_node(op_type, inputs, outputs, domain=domain, **attributes)
        self.nodes.append(made)
        self.value = outputs[0]

    def matrix(self, columns: int, rows: int) -> None:
        at = len(self.nodes)
        made = random_weights(np.random.default_rng(at), columns, rows, bias=True)
        parts = {"codes": (TensorProto.UINT8, made.codes), "scales": (TensorProto.BFLOAT16, made.scales)}
        for name, (kind, array) in parts.items():
            known = helper.make_tensor(f"{name}{at}", kind, array.shape, array.tobytes(), raw=True)
            self.weights[known.name] = known
        assert made.bias is not None
        self.weights[f"bias{at}"] = numpy_helper.from_array(made.bias, f"bias{at}")
        inputs = [self.value, f"codes{at}", f"scales{at}", "", f"bias{at}"]
        self._add("BlockMatMul", inputs, [f"product{at}"], K=columns, N=rows, bits=8, block_size=32)

    def norm(self) -> None:
        """It adds what the norm before it was given, unless it is the first."""
        at = len(self.nodes)
        weight = np.random.default_rng(at).normal(1, 0.3, self.width).astype(np.float32)
        self.weights[f"weight{at}"] = numpy_helper.from_array(weight, f"weight{at}")
        inputs = [self.value, f"weight{at}", "", self.total]
        first = not self.total
        self.total = self.value if first else f"sum{at}"
        outputs = [f"norm{at}"] if first else [f"norm{at}", self.total]
        self._add("Norm", inputs, outputs, centered=0, epsilon=1e-5)

    def _integers(self, name: str, *values: int) -> str:
        self.weights[name] = numpy_helper.from_array(np.array(values, np.int64), name)
        return name

    def heads(self) -> list[str]:
        """Queries, keys and values, cut apart, those with norms cut into heads and joined again."""
        case, at = self.case, len(self.nodes)
        counts = (case.heads, case.kv_heads, case.kv_heads)
        found = [f"query{at}", f"key{at}", f"value{at}"]
        sizes = self._integers(f"sizes{at}", *(count * case.size for count in counts))
        self._add("Split", [self.value, sizes], [*found], "", axis=-1)
        for i, count in enumerate(counts[:2]):
            cut, joined = (
                self._integers(f"cut{at}.{i}", 0, 0, count, case.size),
                self._integers(f"joined{at}.{i}", 0, 0, -1),
            )
            weight = np.random.default_rng([at, i]).normal(1, 0.3, case.size).astype(np.float32)
            self.weights[f"of{found[i]}"] = numpy_helper.from_array(weight, f"of{found[i]}")
            self._add("Reshape", [found[i], cut], [f"cut{found[i]}"], "")
            self._add("Norm", [self.value, f"of{found[i]}"], [f"norm{found[i]}"], centered=0, epsilon=1e-6 * (1 + i))
            self._add("Reshape", [self.value, joined], [f"joined{found[i]}"], "")
            found[i] = self.value
        return found

    def attention(self, window: int | None = None, cache: str | None = None) -> None:
        parts = self.heads() if self.normed else [self.value]
        case, at = replace(self.case, packed=True), len(self.nodes)
        given = {**case.feeds(), "query": self.feeds["x"]}
        rng = np.random.default_rng(at)
        names = dict[str, str]()
        for name in ("past_key", "past_value", "key_scales", "value_scales", "key_means", "sink"):
            if name not in given:
                continue
            names[name] = f"{name}{at}"
            mixed = rng.permuted(given[name], axis=1) if name.startswith("past") else given[name]
            if name.endswith(INITIALIZERS):
                self.weights[names[name]] = numpy_helper.from_array(mixed, names[name])
            else:
                self.feeds[names[name]] = mixed
        names |= {name: name for name in SHARED if name in given} | dict(
            zip(("query", "key", "value"), parts, strict=False)
        )
        known = ["key_means" if name == "key_scales" and case.means else name for name in INPUTS]
        operator, kind = OPERATORS[case.cache] if cache is None else (cache, TensorProto.FLOAT)
        outputs = [f"attended{at}", f"present_key{at}", f"present_value{at}"]
        self.results |= dict.fromkeys(outputs[1:], kind)
        self._add(
            operator,
            [names.get(name, "") for name in known],
            outputs,
            num_heads=case.heads,
            kv_num_heads=case.kv_heads,
            scale=case.size**-0.5,
            local_window_size=case.window if window is None else window,
            softcap=case.cap,
            do_rotary=int(case.pairs > 0),
            rotary_interleaved=int(case.interleaved),
        )

    def layer(self, window: int | None = None) -> None:
        case = self.case
        self.norm()
        self.matrix(self.width, (case.heads + 2 * case.kv_heads) * case.size)
        self.attention(window)
        self.matrix(case.heads * case.size, self.width)
        self.norm()
        self.matrix(self.width, self.inner)
        self._add("Activation", [self.value], [f"activated{len(self.nodes)}"], kind=0, gate_axis=0)
        self.matrix(self.inner, self.width)

    def graph(self) -> bytes:
        results = {self.value: TensorProto.FLOAT, **self.results}
        ins = [helper.make_tensor_value_info(n, TYPES[a.dtype.name], None) for n, a in self.feeds.items()]
        outs = [helper.make_tensor_value_info(n, kind, None) for n, kind in results.items()]
        body = helper.make_graph(self.nodes, "layers", ins, outs, [*self.weights.values()])
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("edgegen", 1)]
        return helper.make_model(body, opset_imports=opsets, ir_version=10).SerializeToString()

    def op_types(self) -> list[str]:
        return [node.op_type for node in onnx.load_from_string(with_fusion(self.graph())).graph.node]

    def changes_no_bit(self, *, threads: int = 1, isa: str | None = None) -> bool:
        plain, graph = self.graph(), with_fusion(self.graph())
        expected = session_of(plain, isa=isa).run(None, self.feeds)
        found = session_of(graph, isa=isa, threads=threads).run(None, self.feeds)
        return all(a.tobytes() == b.tobytes() and a.shape == b.shape for a, b in zip(found, expected, strict=True))


def decoder(case: Case, layers: int = 2, *, normed: bool = False) -> Layers:
    made = Layers(case, normed)
    for _ in range(layers):
        made.layer()
    return made


CASES = {
    "a token": Case(past=(7,), tokens=1, pairs=16),
    "a prompt": Case(tokens=70, pairs=8, interleaved=True),
    "a batch": Case(past=(3, 0, 300), tokens=1, pairs=16),
    "several tokens of a batch": Case(past=(3, 90), tokens=4),
    "a window": Case(past=(80,), tokens=9, window=20, pairs=16),
    "many keys": Case(past=(1100,), tokens=1, pairs=16),
    "a bias": Case(past=(5, 2), tokens=3, bias=True),
    "sinks": Case(past=(5,), tokens=3, sink=True),
    "capped": Case(past=(5,), tokens=3, cap=4.0),
    "one head for each": Case(past=(5,), tokens=1, heads=3, kv_heads=3, size=24, pairs=4),
}


@pytest.mark.parametrize("cache", ["float32", "int8", "int4"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_fused_attention_changes_no_bit(case: Case, cache: Any) -> None:
    if cache == "int4" and (case.sink or case.cap):
        pytest.skip("attention over an int4 KV cache has neither sinks nor soft caps")
    made = decoder(replace(case, cache=cache))
    assert made.op_types() == [f"FusedLayers{SUFFIXES[cache]}"]
    assert made.changes_no_bit()


@pytest.mark.parametrize("cache", ["float32", "int8", "int4"])
@pytest.mark.parametrize("name", ["a token", "a prompt", "a batch", "a window", "one head for each"])
def test_norms_of_queries_and_keys_are_attentions_own(name: str, cache: Any) -> None:
    made = decoder(replace(CASES[name], cache=cache), normed=True)
    assert made.op_types() == [f"FusedLayers{SUFFIXES[cache]}"]
    assert made.changes_no_bit(threads=2)


def change(node: onnx.NodeProto) -> None:
    """Something that attention's own norms are not."""
    match node.op_type:
        case "Split":
            node.output[0], node.output[1] = node.output[1], node.output[0]
        case "Norm":
            next(one for one in node.attribute if one.name == "centered").i = 1
        case _:
            node.input[0] = "x"


@pytest.mark.parametrize("place", [2, 3, 4, 5], ids=["queries behind keys", "another's heads", "centered", "another's"])
def test_norms_that_are_others_stay_apart(place: int) -> None:
    made = decoder(CASES["a token"], 1, normed=True)
    change(made.nodes[place])
    assert "Split" in made.op_types()


@pytest.mark.parametrize("name", ["product1", "query2", "normquery2", "joinedkey2"])
def test_norms_that_others_read_stay_apart(name: str) -> None:
    made = decoder(CASES["a token"], 1, normed=True)
    made.nodes.append(helper.make_node("Identity", [name], ["again"]))
    made.results["again"] = TensorProto.FLOAT
    assert "Split" in made.op_types()
    assert made.changes_no_bit()


def test_norms_of_another_size_stay_apart() -> None:
    """A norm over two heads at once, and another cut of the same numbers."""
    made = decoder(Case(past=(7,), tokens=1, heads=4, kv_heads=4, size=16), 1, normed=True)
    for i, name in enumerate(("query2", "key2")):
        made.weights[f"cut2.{i}"] = numpy_helper.from_array(np.array([0, 0, 2, 32], np.int64), f"cut2.{i}")
        made.weights[f"of{name}"] = numpy_helper.from_array(np.ones(32, np.float32), f"of{name}")
    assert "Split" in made.op_types()
    assert made.changes_no_bit()


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("case", [CASES["a token"], CASES["a prompt"], CASES["many keys"]], ids=str)
def test_threads_change_no_bit(case: Case, threads: int) -> None:
    assert decoder(replace(case, cache="int8")).changes_no_bit(threads=threads)


@pytest.mark.parametrize("isa", instruction_sets())
def test_every_instruction_set_changes_no_bit(isa: str) -> None:
    assert decoder(replace(CASES["a batch"], cache="int8")).changes_no_bit(isa=isa)


def test_means_of_keys_belong_to_their_attention() -> None:
    assert decoder(replace(CASES["a token"], cache="int4", means=True)).changes_no_bit()


def test_layers_with_windows_beside_layers_without() -> None:
    made = Layers(CASES["a window"])
    made.layer()
    made.layer(window=-1)
    assert made.op_types() == ["FusedLayers"]
    assert made.changes_no_bit()


def test_attentions_with_lengths_of_their_own() -> None:
    """The second reads others than the first, and the third those of the second."""
    made = decoder(CASES["a batch"], 3)
    made.feeds["others"] = made.feeds["seqlens_k"].copy()
    for node in [node for node in made.nodes if node.op_type == "CachedAttention"][1:]:
        node.input[INPUTS.index("seqlens_k")] = "others"
    [fused] = onnx.load_from_string(with_fusion(made.graph())).graph.node
    assert [[*fused.input].count(name) for name in ("seqlens_k", "others")] == [1, 1]
    made.feeds["others"] += 1
    assert made.changes_no_bit()


def test_more_attentions_than_one_operator_has_inputs_for() -> None:
    made = decoder(CASES["a token"], 10)
    assert made.op_types() == ["FusedLayers"] * 2
    assert made.changes_no_bit(threads=2)


def test_many_rows_at_once_after_few() -> None:
    """One session, whose memory is that of the run before, or not."""
    made = decoder(replace(CASES["a token"], cache="int8"))
    opened, other = session_of(with_fusion(made.graph()), threads=2), decoder(replace(CASES["a batch"], cache="int8"))
    for feeds in (made.feeds, other.feeds, made.feeds):
        expected = session_of(made.graph()).run(None, feeds)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(opened.run(None, feeds), expected, strict=True))


def test_no_rows_at_all() -> None:
    made = decoder(replace(CASES["a token"], tokens=0))
    found = session_of(with_fusion(made.graph())).run(None, made.feeds)
    assert found[0].shape == (1, 0, made.width)
    assert same_bits(found[1], made.feeds["past_key2"])


def test_a_cache_that_another_node_reads() -> None:
    """Layers that share a KV cache: the reader runs after the operator that would append to it."""
    made = decoder(CASES["a token"])
    made.nodes.append(helper.make_node("Identity", ["present_key2"], ["again"]))
    made.results["again"] = TensorProto.FLOAT
    assert made.op_types() == ["FusedLayers", "CachedAttention", "FusedLayers", "Identity"]


def test_keys_that_do_not_lie_behind_the_query() -> None:
    made = decoder(CASES["a token"])
    attention = next(node for node in made.nodes if node.op_type == "CachedAttention")
    attention.input[1:3] = ["x", "x"]
    assert made.op_types()[:3] == ["FusedLayers", "CachedAttention", "FusedLayers"]


def test_a_run_is_interrupted_inside_an_operator() -> None:
    """By whoever makes the total sequence length negative; the next run is as if nothing had been."""
    made = decoder(CASES["a prompt"])
    for graph in (with_fusion(made.graph()), made.graph()):
        opened, expected = session_of(graph, threads=2), session_of(graph).run(None, made.feeds)
        with pytest.raises(Exception, match="the run was interrupted"):
            opened.run(None, made.feeds | {"total_sequence_length": np.array(-1, np.int32)})
        assert all(map(same_bits, opened.run(None, made.feeds), expected))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"past_key2": (2, 2, 16, 32)}, r"past keys and values the same 4|are \[batch, kv_num_heads"),
        ({"past_key2": (1, 2, 4, 32), "past_value2": (1, 2, 4, 32)}, "not between the tokens and the capacity"),
        ({"past_key2": (1, 2, 16, 30), "past_value2": (1, 2, 16, 30)}, "not what the heads say"),
        ({"seqlens_k": (2,)}, "there is one length for each row"),
        ({"position_ids": (1, 2)}, r"positions are \[batch, tokens\]"),
    ],
    ids=str,
)
def test_inputs_that_lie_are_refused(changes: dict[str, tuple[int, ...]], message: str) -> None:
    made = decoder(CASES["a token"])
    opened = session_of(with_fusion(made.graph()))
    wrong = {name: np.zeros(shape, made.feeds[name].dtype) for name, shape in changes.items()}
    with pytest.raises(Exception, match=message):
        opened.run(None, made.feeds | wrong)
    assert len(opened.run(None, made.feeds)) == 5


def lying(made: Layers, inputs: dict[str, str], **attributes: int) -> bytes:
    """The fused layers, with other attributes than are true, and other names for some of their inputs."""
    model = onnx.load_from_string(with_fusion(made.graph()))
    [node] = model.graph.node
    for attribute in node.attribute:
        if attribute.name in attributes:
            attribute.i = attributes[attribute.name]
    node.input[:] = [inputs.get(name, name) for name in node.input]
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"num_heads2": 3}, "num_heads must be a multiple of kv_num_heads"),
        ({"num_heads2": 6, "kv_num_heads2": 1}, "the steps do not fit each other"),
        ({"step2": 4}, "there is no such step"),
        ({"step1": 3}, "num_heads1"),
        ({"local_window_size2": -2}, "local_window_size not below -1"),
    ],
    ids=str,
)
def test_attributes_that_lie_are_refused(attributes: dict[str, int], message: str) -> None:
    with pytest.raises(Exception, match=message):
        session_of(lying(decoder(CASES["a token"]), {}, **attributes))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"ofkey2": ""}, "weights of one size, or none"),
        ({"ofquery2": "weight0", "ofkey2": "weight0"}, "norms have a weight for each number of a head"),
    ],
    ids=str,
)
def test_weights_of_norms_that_lie_are_refused(inputs: dict[str, str], message: str) -> None:
    made = decoder(CASES["a token"], normed=True)
    with pytest.raises(Exception, match=message):
        session_of(lying(made, inputs)).run(None, made.feeds)


def test_the_first_attention_without_lengths_is_refused() -> None:
    made = decoder(CASES["a token"])
    opened = session_of(lying(made, {"seqlens_k": ""}))
    with pytest.raises(Exception, match="lengths are needed"):
        opened.run(None, made.feeds)


def test_x_of_two_dimensions_is_refused() -> None:
    made = decoder(CASES["a token"])
    with pytest.raises(Exception, match="x with attention has 3 dimensions"):
        session_of(with_fusion(made.graph())).run(None, made.feeds | {"x": made.feeds["x"][0]})
