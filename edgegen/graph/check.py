"""Graphs checked before ONNX Runtime sees them: well-formed messages, known operators, tensors of the size they say.

The reader is strict: a field that no exporter writes is refused, and with it sparse tensors, strings, and graphs within
graphs but for the body of a ``Scan``, which runs once for each token. Functions are those of edgegen's operators, made
of stock operators alone: none calls another. Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from edgegen.graph.functions import DOMAIN, FUNCTIONS, operator_of
from edgegen.graph.protobuf import fields, integer, packed_integers

MOST_GRAPH_BYTES = 1 << 24
"""Of a graph without its weights; those of our exports have some 100 kB."""

_MOST_ELEMENTS = 1 << 31
"""Of a tensor whose shape is a constant of the graph."""

_MOST_AXES = 16
_MOST_PROBLEMS = 20
_MOST_FUNCTIONS = 64

OPERATORS = {
    "": frozenset(
        "Abs Add And ArgMax ArgMin Attention Cast CastLike Ceil Clip Concat Constant ConstantOfShape Conv Cos CumSum "
        "DequantizeLinear Div DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand Flatten Floor Gather "
        "GatherElements GatherND Gelu Gemm Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN "
        "LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul MatMulInteger Max Mean Min Mod Mul Neg "
        "NonZero Not OneHot Or Pad Pow QuantizeLinear RMSNormalization Range Reciprocal ReduceL2 ReduceMax ReduceMean "
        "ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape RotaryEmbedding Round Scan ScatterElements "
        "ScatterND Shape Sigmoid Sign SimplifiedLayerNormalization Sin Size Slice Softmax Softplus Split Sqrt Squeeze "
        "Sub Sum Swish Tanh Tile TopK Transpose Trilu Unsqueeze Where Xor".split()
    ),
    "com.microsoft": frozenset(
        "BiasGelu FastGelu FusedMatMul GatherBlockQuantized Gelu GroupQueryAttention LinearAttention MatMulNBits MoE "
        "MultiHeadAttention QMoE QuickGelu RotaryEmbedding SkipLayerNormalization "
        "SkipSimplifiedLayerNormalization".split()
    ),
}
"""By domain, the operators of a language model's graph. None is random or holds text; none but ``Scan`` repeats."""

_SHAPED = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Tile": 1}
"""Operators that make a tensor of a shape, and which of their inputs that is."""

_STASHES = "SimplifiedLayerNormalization"
"""The operator that ONNX Runtime (1.23 to 1.32) cannot have in a function without this attribute."""

_BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 16: 16, 21: 4, 22: 4}
"""Bits of an element by ``TensorProto.DataType``: numbers and booleans."""

_INTEGER, _EIGHT, _TEXT, _FOUR = 0, 1, 2, 5
Expected = tuple[Literal["one", "many"], tuple[int, ...]]
Fields = Mapping[int, Expected]
"""The fields of a message by number: how often they may be there, and in which wire types."""

_ONE_TEXT: Expected = ("one", (_TEXT,))
_TEXTS: Expected = ("many", (_TEXT,))
_ONE_INTEGER: Expected = ("one", (_INTEGER,))
_INTEGERS: Expected = ("many", (_INTEGER, _TEXT))
_MODEL: Fields = {
    **dict.fromkeys((1, 5), _ONE_INTEGER),
    **dict.fromkeys((2, 3, 4, 6, 7), _ONE_TEXT),
    **dict.fromkeys((8, 14, 25), _TEXTS),
}
_FUNCTION: Fields = {**dict.fromkeys((1, 10), _ONE_TEXT), **dict.fromkeys((4, 5, 6, 7, 9), _TEXTS)}
_GRAPH: Fields = {**dict.fromkeys((2, 10), _ONE_TEXT), **dict.fromkeys((1, 5, 11, 12, 13, 16), _TEXTS)}
_NODE: Fields = {**dict.fromkeys((3, 4, 6, 7), _ONE_TEXT), **dict.fromkeys((1, 2, 5, 9), _TEXTS)}
_ATTRIBUTE: Fields = {
    **dict.fromkeys((1, 4, 5, 13), _ONE_TEXT),
    2: ("one", (_FOUR,)),
    3: _ONE_INTEGER,
    7: ("many", (_FOUR, _TEXT)),
    8: _INTEGERS,
    9: _TEXTS,
    20: _ONE_INTEGER,
}
_ATTRIBUTE_OF_SCAN: Fields = {**_ATTRIBUTE, 6: _ONE_TEXT}
_BODY: Fields = {2: _ONE_TEXT, **dict.fromkeys((1, 11, 12, 13), _TEXTS)}
_TENSOR: Fields = {
    **dict.fromkeys((1, 5, 7, 11), _INTEGERS),
    **dict.fromkeys((2, 14), _ONE_INTEGER),
    4: ("many", (_FOUR, _TEXT)),
    10: ("many", (_EIGHT, _TEXT)),
    **dict.fromkeys((8, 9, 12), _ONE_TEXT),
    **dict.fromkeys((13, 16), _TEXTS),
}
_VALUE_INFO: Fields = {**dict.fromkeys((1, 2, 3), _ONE_TEXT), 4: _TEXTS}
_TYPE: Fields = {**dict.fromkeys((1, 6), _ONE_TEXT)}
_TENSOR_TYPE: Fields = {1: _ONE_INTEGER, 2: _ONE_TEXT}
_SHAPE: Fields = {1: _TEXTS}
_AXIS: Fields = {1: _ONE_INTEGER, 2: _ONE_TEXT, 3: _ONE_TEXT}
_OPERATOR_SET: Fields = {1: _ONE_TEXT, 2: _ONE_INTEGER}
_ENTRY: Fields = {**dict.fromkeys((1, 2), _ONE_TEXT)}

_GOING_ON = bytes(range(128, 256))
_NUMBERS = {4: 4, 5: 0, 7: 0, 10: 8, 11: 0}
"""Fields of a tensor's elements other than as raw bytes, and the bytes of one; 0 where that differs."""


class _MalformedError(ValueError):
    """A message is not what it should be."""


@dataclass(frozen=True, slots=True)
class _Message:
    """The fields of a message: what they hold, which is bytes or an integer."""

    texts: Mapping[int, list[bytes]]
    integers: Mapping[int, list[int]]

    @classmethod
    def read(cls, message: bytes, what: str, expected: Fields) -> "_Message":
        texts, integers = dict[int, list[bytes]](), dict[int, list[int]]()
        for number, payload, whole in fields(message):
            wire, (arity, wires) = whole[0] & 7, expected.get(number, ("one", ()))
            if wire not in wires:
                raise _MalformedError(f"a field {number} of {what} that no export writes")
            if arity == "one" and (number in texts or number in integers):
                raise _MalformedError(f"two fields {number} of {what}")
            if wire == _INTEGER:
                integers.setdefault(number, []).append(integer(whole))
            else:
                texts.setdefault(number, []).append(
                    payload if wire == _TEXT else whole[-(8 if wire == _EIGHT else 4) :]
                )
        return cls(texts, integers)

    def text(self, number: int) -> str:
        return self.texts.get(number, [b""])[0].decode()

    def all_texts(self, number: int) -> list[str]:
        return [text.decode() for text in self.texts.get(number, [])]

    def numbers(self, number: int) -> list[int]:
        """Of a field of integers, single or packed."""
        packed = (value for payload in self.texts.get(number, []) for value in packed_integers(payload))
        return [*self.integers.get(number, []), *packed]


def graph_problems(graph: bytes, files: Mapping[str, int]) -> list[str]:
    """Return the problems of a serialized ONNX model, a few words each; ``files``: sizes in bytes of the files its
    tensors may lie in.

    Sizes are computed before anything is made of them, and one pass is made over the bytes.
    """
    if len(graph) > MOST_GRAPH_BYTES:
        return [f"more than {MOST_GRAPH_BYTES:,} bytes: not a graph that an export wrote"]
    try:
        return [*dict.fromkeys(islice(_problems(graph, files), _MOST_PROBLEMS))]
    except (_MalformedError, UnicodeDecodeError) as error:
        return [str(error)]
    except ValueError as error:
        return [f"not an ONNX graph: {error}"]


def _problems(graph: bytes, files: Mapping[str, int]) -> Iterator[str]:
    model = _Message.read(graph, "the model", _MODEL)
    if 7 not in model.texts:
        raise _MalformedError("not an ONNX graph: it has none")
    yield from _domain_problems(model.texts.get(8, []), DOMAIN)
    functions = dict[str, _Function]()
    if len(model.texts.get(25, [])) > _MOST_FUNCTIONS:
        raise _MalformedError(f"more than {_MOST_FUNCTIONS} functions")
    for message in model.texts.get(25, []):
        yield from _function_problems(message, functions)
    body = _Message.read(model.texts[7][0], "the graph", _GRAPH)
    scope = _Scope(functions)
    for message in body.texts.get(5, []):
        tensor = _Message.read(message, "a tensor", _TENSOR)
        name = tensor.text(8)
        if problem := _tensor_problem(tensor, files):
            yield f"the tensor {name!r}: {problem}"
        elif (shape := _as_shape(tensor)) is not None:
            scope.constants[name] = shape
    for message in body.texts.get(1, []):
        yield from _node_problems(message, scope)
    inlined = len(graph) + sum(functions[name].size * count for name, count in scope.calls.items())
    if inlined > MOST_GRAPH_BYTES:
        yield f"more than {MOST_GRAPH_BYTES:,} bytes once its functions stand where they are called"
    _read_values(body)


@dataclass(frozen=True, slots=True)
class _Function:
    """A function's numbers of inputs and outputs, its attributes, and the bytes of its message."""

    inputs: int
    outputs: int
    attributes: frozenset[str]
    size: int


@dataclass(frozen=True, slots=True)
class _Scope:
    """Values that the nodes of a graph, of a function or of a ``Scan`` may use.

    Attributes:
        functions: those that may be called, by name.
        inputs: of the function that the nodes are in; None outside of one.
        repeats: whether the nodes are the body of a ``Scan``, in which no other one is.
        constants: values of few integers, by name.
        calls: of each function.
    """

    functions: Mapping[str, _Function]
    inputs: frozenset[str] | None = None
    repeats: bool = False
    constants: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    calls: Counter[str] = field(default_factory=Counter[str])


def _domain_problems(messages: list[bytes], *more: str) -> Iterator[str]:
    """Yield the problems of operator sets; ``more``: domains that may be there besides the stock ones."""
    for message in messages:
        domain = _Message.read(message, "an operator set", _OPERATOR_SET).text(1)
        if domain not in (*OPERATORS, "ai.onnx", *more):
            yield f"operators of {domain!r}, which edgegen does not have"


def _function_problems(message: bytes, functions: dict[str, _Function]) -> Iterator[str]:
    """Yield the problems of a function, which is added to ``functions``."""
    function = _Message.read(message, "a function", _FUNCTION)
    name, domain = function.text(1), function.text(10)
    inputs, outputs = function.all_texts(4), function.all_texts(5)
    if domain != DOMAIN or operator_of(name.encode()) not in FUNCTIONS:
        yield f"the function {name!r} of {domain!r} is none of edgegen's"
    if name in functions:
        yield f"two functions {name!r}"
    if len({*inputs, *outputs, ""}) <= len(inputs) + len(outputs):
        yield f"the function {name!r} has two inputs or outputs of one name, or one without a name"
    yield from _domain_problems(function.texts.get(9, []))
    scope = _Scope({}, frozenset(inputs))
    for node in function.texts.get(7, []):
        yield from _node_problems(node, scope)
    functions[name] = _Function(len(inputs), len(outputs), frozenset(function.all_texts(6)), len(message))


def _read_values(body: _Message) -> None:
    """Check a graph's inputs, its outputs and the values between."""
    for number in (11, 12, 13):
        for message in body.texts.get(number, []):
            value = _Message.read(message, "a value", _VALUE_INFO)
            value.text(1)
            for inner in value.texts.get(2, []):
                of_type = _Message.read(inner, "a type", _TYPE).texts.get(1, [b""])[0]
                for shape in _Message.read(of_type, "a type", _TENSOR_TYPE).texts.get(2, []):
                    for axis in _Message.read(shape, "a shape", _SHAPE).texts.get(1, []):
                        _Message.read(axis, "an axis", _AXIS).text(2)


def _node_problems(message: bytes, scope: _Scope) -> Iterator[str]:
    node = _Message.read(message, "a node", _NODE)
    kind, domain = node.text(4), node.text(7)
    names, outputs = node.all_texts(1), node.all_texts(2)
    numbers, bodies = dict[str, list[int]](), 0
    expected = _ATTRIBUTE_OF_SCAN if kind == "Scan" and not scope.repeats else _ATTRIBUTE
    for one in node.texts.get(5, []):
        attribute = _Message.read(one, "an attribute", expected)
        numbers[attribute.text(1)] = attribute.numbers(3)
        for content in attribute.texts.get(6, []):
            bodies += 1
            body = _Message.read(content, "the body of a Scan", _BODY)
            for inner in body.texts.get(1, []):
                yield from _node_problems(inner, replace(scope, functions={}, repeats=True))
            _read_values(body)
        for content in attribute.texts.get(5, []):
            tensor = _Message.read(content, "a tensor", _TENSOR)
            if problem := _tensor_problem(tensor, {}):
                yield f"a tensor of {kind}: {problem}"
            elif (shape := _as_shape(tensor)) is not None and kind == "Constant":
                scope.constants[outputs[0] if outputs else ""] = shape
    if kind == "Scan" and not bodies:
        yield "a Scan without a body"
    if domain == DOMAIN:
        yield from _call_problems(kind, len(names), len(outputs), numbers.keys(), scope)
    else:
        yield from _operator_problems(kind, domain, names, numbers, scope)


def _call_problems(kind: str, inputs: int, outputs: int, attributes: Set[str], scope: _Scope) -> Iterator[str]:
    """Yield the problems of a node that calls a function."""
    function = scope.functions.get(kind)
    if function is None:
        yield f"the operator {kind!r} of {DOMAIN!r} is no function that can be called here"
        return
    scope.calls[kind] += 1
    if inputs > function.inputs or outputs > function.outputs or attributes - function.attributes:
        yield f"a node {kind} has inputs, outputs or attributes that the function of this name has not"


def _operator_problems(
    kind: str, domain: str, names: list[str], numbers: Mapping[str, list[int]], scope: _Scope
) -> Iterator[str]:
    """Yield the problems of a node of a stock operator; ``numbers``: its attributes that are integers."""
    if kind not in OPERATORS.get("" if domain == "ai.onnx" else domain, ()):
        yield f"the operator {kind!r}{f' of {domain!r}' if domain else ''} is not an operator of language models"
    if scope.inputs is not None and kind == _STASHES and numbers.get("stash_type") != [1]:
        yield f"{_STASHES} in a function, without a stash_type of 1: ONNX Runtime ends the process"
    at = _SHAPED.get(kind, len(names))
    name = names[at] if at < len(names) else ""
    shape = scope.constants.get(name, [])
    if name in (scope.inputs or ()):
        yield f"a node {kind} makes a tensor of a shape that its function is given"
    if math.prod(max(abs(size), 1) for size in shape) > _MOST_ELEMENTS:
        yield f"a node {kind} makes a tensor of shape {shape}"


def _tensor_problem(tensor: _Message, files: Mapping[str, int]) -> str | None:
    """Return the problem of a tensor's size, or of where it lies; None if there is none."""
    if _count(tensor, 1, 0) > _MOST_AXES:
        return f"of more than {_MOST_AXES} axes"
    sizes, kind = tensor.numbers(1), tensor.numbers(2)
    if not kind or kind[0] not in _BITS:
        return f"of type {kind[0] if kind else 0}, which is not a type of numbers"
    if any(size >= _MOST_ELEMENTS for size in sizes):  # negative ones are the largest
        return f"of shape {sizes}"
    elements = math.prod(sizes)
    wanted = (elements * _BITS[kind[0]] + 7) // 8
    raw, external = tensor.texts.get(9), tensor.texts.get(13, [])
    if external or tensor.numbers(14) == [1]:
        return _external_problem(external, wanted, files)
    if raw is not None:
        found = len(raw[0])
        return None if found == wanted else f"{found} bytes, and its shape and type ask for {wanted}"
    found = max((_count(tensor, number, size) for number, size in _NUMBERS.items()), default=0)
    packed = -(-elements * _BITS[kind[0]] // 8) if _BITS[kind[0]] < 8 else elements
    return None if found == packed else f"{found} numbers, and its shape asks for {packed}"


def _external_problem(entries: list[bytes], wanted: int, files: Mapping[str, int]) -> str | None:
    read = [_Message.read(entry, "an entry", _ENTRY) for entry in entries]
    said = {entry.text(1): entry.text(2) for entry in read}
    place = said.get("location", "")
    if place not in files:
        return f"lies in {place!r}, which is no file of weights"
    try:
        offset, length = int(said.get("offset", "0")), int(said["length"])
    except (KeyError, ValueError):
        return f"lies nowhere in {place!r}"
    if length != wanted:
        return f"{length} bytes, and its shape and type ask for {wanted}"
    if offset < 0 or offset + length > files[place]:
        return f"ends at byte {offset + length} of {place!r}, which has {files[place]}"
    return None


def _count(tensor: _Message, number: int, size: int) -> int:
    """How many elements a tensor has in a field; ``size``: bytes of one, 0 for integers."""
    found = tensor.texts.get(number, [])
    if not size:  # the last byte of each is below 128
        return len(tensor.integers.get(number, [])) + sum(len(payload.translate(None, _GOING_ON)) for payload in found)
    total = sum(map(len, found))
    return -1 if total % size else total // size


def _as_shape(tensor: _Message) -> list[int] | None:
    """The values of a tensor of few integers of 64 bits; None of any other."""
    if tensor.numbers(2) != [7] or math.prod(tensor.numbers(1)) > _MOST_AXES or tensor.texts.get(13):
        return None
    raw = tensor.texts.get(9)
    if raw is not None:
        return [int.from_bytes(raw[0][at : at + 8], "little", signed=True) for at in range(0, len(raw[0]), 8)]
    return [value - (1 << 64) if value >> 63 else value for value in tensor.numbers(7)]
