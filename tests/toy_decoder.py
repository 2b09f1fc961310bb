"""A decoder of one layer, in a few ONNX nodes, with the past as input and the present as output; and in NumPy.

``optimum_graph`` is as optimum's exporter would write it, ``concat_graph`` as the runtime wants it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from edgegen.bundle.manifest import CacheClass, GraphVariant, KVLayer, KVSpec, Phase
from edgegen.graph.kernel_operators import SummingOrder
from edgegen.model.ort_session import Binding, RunSwitch, open_session
from edgegen_export.graph.parameters import StoredParameters
from edgegen_export.output.bundle_writer import WeightsFile
from edgegen_export.quantize.recipe import ROUNDED, Scheme
from edgegen_export.source.optimum.traced_decoder import build_traced
from edgegen_export.source.optimum.traced_graph import TracedGraph
from tests.runtime.models import fake_variant

VOCABULARY, WIDTH, POSITIONS = 32, 16, 48
Weights = Mapping[str, NDArray[np.float32]]
Head = Literal["matmul", "scaled", "rows"]


def toy_weights(seed: int = 0) -> Weights:
    """``table`` and ``head`` are one matrix, as [vocabulary, width] and transposed."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((VOCABULARY, WIDTH), np.float32)
    square = {name: rng.standard_normal((WIDTH, WIDTH), np.float32) * np.float32(0.06) for name in ("key", "value")}
    places = rng.standard_normal((POSITIONS, WIDTH), np.float32)
    return {"table": table, "places": places, **square, "head": table.T.copy(), "bias": np.ones(WIDTH, np.float32)}


def toy_logits(weights: Weights, ids: Sequence[int], head: Head = "matmul") -> NDArray[np.float32]:
    """Logits [t, vocabulary] of ids, each seeing itself and those before it."""
    x = weights["table"][list(ids)] + weights["places"][: len(ids)]
    keys, values = x @ weights["key"] + weights["bias"], x @ weights["value"] + weights["bias"]
    scores = np.where(np.tri(len(ids), dtype=bool), x @ keys.T, -np.inf)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    attended = shares / shares.sum(axis=1, keepdims=True) @ values
    logits = (attended + x) @ weights["head"]
    return 30 * np.tanh(logits / 30) if head == "scaled" else logits


def _node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), f"/{outputs}/{op_type}", **attributes)


def _constants(**values: object) -> list[NodeProto]:
    arrays = {name: np.array(value) for name, value in values.items()}
    return [helper.make_node("Constant", [], [k], k, value=numpy_helper.from_array(a)) for k, a in arrays.items()]


def _body(
    past: tuple[str, str], present: tuple[str, str], seen: list[NodeProto], at: str = "position_ids"
) -> list[NodeProto]:
    """ids [b, t], positions ``at`` → ``hidden`` [b, t, d]; ``seen`` makes bool [b, 1, t, past + t] of its name."""
    nodes = _constants(one=[1], two=[2], flat=[-1, WIDTH], unflat=[0, -1, WIDTH])
    nodes += [
        _node("Gather", "table input_ids", "token"),
        _node("Gather", f"places {at}", "place"),
        _node("Add", "token place", "x"),
        _node("Identity", "bias", "same_bias"),  # as the tracer writes what it has already
    ]
    for kind, bias, before, after in zip(("key", "value"), ("bias", "same_bias"), past, present, strict=True):
        nodes += [
            _node("Shape", "x", f"shape_{kind}"),
            _node("Reshape", "x flat", f"rows_{kind}"),
            _node("Gemm", f"rows_{kind} {kind} {bias}", f"new_rows_{kind}"),
            _node("Reshape", f"new_rows_{kind} shape_{kind}", f"new_{kind}"),
            _node("Unsqueeze", f"new_{kind} one", f"new_heads_{kind}"),
            _node("Concat", f"{before} new_heads_{kind}", after, axis=2),
        ]
    return [
        *nodes,
        *seen,
        _node("Unsqueeze", "x one", "query"),
        _node("Transpose", present[0], "keys", perm=[0, 1, 3, 2]),
        _node("MatMul", "query keys", "scores"),
        *_constants(never=np.float32(-1e30)),
        _node("Where", "seen scores never", "masked"),
        _node("Softmax", "masked", "shares", axis=-1),
        _node("MatMul", f"shares {present[1]}", "attended_heads"),
        _node("Squeeze", "attended_heads one", "attended"),
        _node("Add", "attended x", "hidden"),
    ]


def _not_after(places: str) -> list[NodeProto]:
    """``causal`` [b, 1, t, past + t] for the positions ``places`` [b, t] of the new ids."""
    return [
        *_constants(zero=0, step=1, from_one=[1, 3]),
        _node("Unsqueeze", f"{places} from_one", "rows"),
        _node("ReduceMax", places, "last", keepdims=0),
        _node("Add", "last step", "end"),
        _node("Range", "zero end step", "columns"),
        _node("LessOrEqual", "columns rows", "causal"),
    ]


def _model(
    nodes: list[NodeProto], inputs: Mapping[str, Any], outputs: Mapping[str, Any], weights: Weights
) -> ModelProto:
    types = {name: TensorProto.FLOAT if len(shape) == 4 else TensorProto.INT64 for name, shape in inputs.items()}
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info(name, types[name], shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])
    cast(Any, onnx.checker).check_model(model, full_check=True)
    return model


def optimum_graph(weights: Weights, *, positions: bool = True, head: Head = "matmul") -> ModelProto:
    """With a mask as input; without ``positions``, these come of the mask's length."""
    names = [f"{kind}.0.{part}" for kind in ("past_key_values", "present") for part in ("key", "value")]
    at = "position_ids" if positions else "counted"
    seen = [
        *_not_after(at),
        *_constants(mask_axes=[1, 2]),
        _node("Cast", "attention_mask", "mask", to=TensorProto.BOOL),
        _node("Unsqueeze", "mask mask_axes", "mask_rows"),
        _node("And", "causal mask_rows", "seen"),
    ]
    nodes = _body((names[0], names[1]), (names[2], names[3]), seen, at)
    inputs: dict[str, Any] = {"input_ids": ["b", "t"], "attention_mask": ["b", "p + t"]}
    if positions:
        inputs["position_ids"] = ["b", "t"]
    else:
        nodes = [
            *_constants(start=0, single=1),
            _node("Shape", "attention_mask", "total", start=1, end=2),
            _node("Shape", "input_ids", "fresh", start=1, end=2),
            _node("Squeeze", "total", "stop"),
            _node("Sub", "total fresh", "before"),
            _node("Range", "start stop single", "all"),
            _node("Slice", "all before total", "places_1d"),
            *_constants(first_axis=[0]),
            _node("Unsqueeze", "places_1d first_axis", "counted"),
            *nodes,
        ]
    if head == "matmul":
        nodes.append(_node("MatMul", "hidden head", "logits"))
    elif head == "scaled":
        nodes += [
            *_constants(cap=np.float32(30)),
            _node("MatMul", "hidden head", "raw"),
            _node("Div", "raw cap", "less"),
            _node("Tanh", "less", "capped"),
            _node("Mul", "cap capped", "logits"),
        ]
    else:
        nodes += [
            *_constants(logits_shape=[1, -1, VOCABULARY]),
            _node("Reshape", "hidden flat", "hidden_rows"),
            _node("MatMul", "hidden_rows head", "logits_rows"),
            _node("Reshape", "logits_rows logits_shape", "logits"),
        ]
    inputs |= {name: ["b", 1, "p", WIDTH] for name in names[:2]}
    outputs = {"logits": ["b", "t", VOCABULARY], **{name: ["b", 1, "p + t", WIDTH] for name in names[2:]}}
    return _model(nodes, inputs, outputs, weights)


def concat_graph(weights: Weights, phase: Phase) -> ModelProto:
    """Names as in ``toy_variant``."""
    seen = [*_not_after("position_ids"), _node("Identity", "causal", "seen")]
    nodes = _body(("past_key", "past_value"), ("present_key", "present_value"), seen)
    inputs: dict[str, Any] = {"input_ids": ["b", "t"], "position_ids": ["b", "t"]}
    inputs |= {name: ["b", 1, "p", WIDTH] for name in ("past_key", "past_value")}
    hidden = "hidden"
    if phase == "prefill":
        inputs["logits_indices"] = ["b", "n"]
        nodes += [
            *_constants(index_axes=[2]),
            _node("Unsqueeze", "logits_indices index_axes", "index"),
            _node("GatherND", "hidden index", "wanted", batch_dims=1),
        ]
        hidden = "wanted"
    nodes.append(_node("MatMul", f"{hidden} head", "logits"))
    outputs = {"logits": ["b", "n", VOCABULARY]}
    outputs |= {name: ["b", 1, "p + t", WIDTH] for name in ("present_key", "present_value")}
    return _model(nodes, inputs, outputs, weights)


def toy_variant() -> GraphVariant:
    layer = KVLayer("full", 1, WIDTH, "past_key", "past_value", "present_key", "present_value")
    kv = KVSpec("float32", "concat", {"full": CacheClass(None, None, None)}, (layer,))
    return replace(fake_variant(), name="toy", kv=kv)


class ToyGraphs:
    """The pair of a decoder's graphs; counts what runs, and can be told to fail around a run."""

    def __init__(self, weights: Weights) -> None:
        phases: tuple[Phase, ...] = ("prefill", "decode")
        self._sessions: dict[Phase, Any] = {
            phase: open_session(concat_graph(weights, phase).SerializeToString(), threads=1) for phase in phases
        }
        self.switch = RunSwitch()
        self.order: SummingOrder = "rows"
        self.attends_batches = False
        self.pending: dict[str, tuple[int, int]] = {}
        self.runs: list[Phase] = []
        self.before_run = self.after_run = lambda: None

    def binding(self, phase: Phase) -> Binding:
        return _Watched(self, phase, self._sessions[phase])


class _Watched(Binding):
    def __init__(self, graphs: ToyGraphs, phase: Phase, session: Any) -> None:
        super().__init__(session)
        self._graphs = graphs
        self._phase: Phase = phase

    def run(self) -> None:
        self._graphs.before_run()
        super().run()
        self._graphs.runs.append(self._phase)
        self._graphs.after_run()


def write_model(model: ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def write_graphs(graph: TracedGraph, folder: Path, scheme: Scheme) -> Mapping[str, ModelProto]:
    """prefill.onnx, decode.onnx and weights.data in ``folder``."""
    sink = WeightsFile(folder / "weights.data")
    params = StoredParameters(graph.tensors, ROUNDED[scheme], sink, lambda elements: None)
    models = {
        "prefill": build_traced(graph, "prefill", params).model("weights.data"),
        "decode": build_traced(graph, "decode", params).model("weights.data"),
    }
    sink.close()
    for name, model in models.items():
        write_model(model, folder / f"{name}.onnx")
    return models
