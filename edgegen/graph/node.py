"""Nodes of an ONNX graph, read in one pass and written again as other operators."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from edgegen.graph.protobuf import (
    field,
    fields,
    integer_field,
    integer_value,
    values,
)

_INPUT, _OUTPUT, _NAME, _OP_TYPE, _ATTRIBUTE, _DOMAIN = 1, 2, 3, 4, 5, 7
_ATTRIBUTE_NAME, _ATTRIBUTE_INTEGER, _ATTRIBUTE_TEXT, _ATTRIBUTE_TYPE = 1, 3, 4, 20
_INTEGER_TYPE = 2
_NAME_TAG = field(_ATTRIBUTE_NAME, b"")[0]
_KERNEL_DOMAIN = field(_DOMAIN, b"edgegen")
_KERNEL = re.compile(b"(?s:%b.)([A-Za-z0-9]+)%b" % (field(_OP_TYPE, b"")[:1], _KERNEL_DOMAIN))
"""The type of a node and its domain, as :meth:`GraphNode.replaced` writes them. A function has a ``_`` in its name."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphNode:
    """A ``NodeProto``.

    Attributes:
        message: its bytes.
        attributes: ``AttributeProto`` messages by name.
    """

    message: bytes
    op_type: bytes
    domain: bytes
    name: bytes
    inputs: Sequence[bytes]
    outputs: Sequence[bytes]
    attributes: Mapping[bytes, bytes]

    @classmethod
    def parsed(cls, message: bytes) -> Self:
        """Read a node from its protobuf message.

        Raises:
            ValueError: that is no node.
        """
        op_type = domain = name = b""
        inputs, outputs, attributes = list[bytes](), list[bytes](), dict[bytes, bytes]()
        for number, payload, _ in fields(message):
            if number == _INPUT:
                inputs.append(payload)
            elif number == _OUTPUT:
                outputs.append(payload)
            elif number == _ATTRIBUTE:
                attributes[_name_and_rest(payload)[0]] = payload
            elif number == _OP_TYPE:
                op_type = payload
            elif number == _DOMAIN:
                domain = payload
            elif number == _NAME:
                name = payload
        return cls(message, op_type, domain, name, inputs, outputs, attributes)

    def integer(self, name: bytes, default: int | None = None) -> int | None:
        """An attribute that is an integer; ``default`` where it is left out."""
        message = self.attributes.get(name)
        return default if message is None else integer_value(message, _ATTRIBUTE_INTEGER)

    def replaced(
        self, op_type: bytes, inputs: Sequence[bytes], outputs: Sequence[bytes], attributes: Mapping[bytes, bytes]
    ) -> Self:
        """One of edgegen's operators in the place, and with the name, of this node."""
        inputs, outputs = trimmed(inputs), trimmed(outputs)
        parts = [field(_INPUT, name) for name in inputs] + [field(_OUTPUT, name) for name in outputs]
        if self.name:
            parts.append(field(_NAME, self.name))
        parts += [field(_OP_TYPE, op_type), _KERNEL_DOMAIN]
        parts += [field(_ATTRIBUTE, attribute) for attribute in attributes.values()]
        return type(self)(b"".join(parts), op_type, b"edgegen", self.name, inputs, outputs, attributes)


def kernels_of(graph: bytes) -> list[str]:
    """Names of the operators that :meth:`GraphNode.replaced` has put into a serialized graph, sorted; no functions."""
    return sorted({name.decode() for name in _KERNEL.findall(graph)})


def integer_attribute(name: bytes, value: int) -> bytes:
    """An ``AttributeProto`` of an integer that is not negative."""
    held = integer_field(_ATTRIBUTE_INTEGER, value) + integer_field(_ATTRIBUTE_TYPE, _INTEGER_TYPE)
    return field(_ATTRIBUTE_NAME, name) + held


def text_of(attribute: bytes) -> bytes:
    """Return the text of an ``AttributeProto``; empty where it holds no text."""
    return next(values(attribute, _ATTRIBUTE_TEXT), b"")


def renamed_attribute(attribute: bytes, name: bytes) -> bytes:
    """An ``AttributeProto`` of that name, with what ``attribute`` holds."""
    return field(_ATTRIBUTE_NAME, name) + _name_and_rest(attribute)[1]


def _name_and_rest(attribute: bytes) -> tuple[bytes, bytes]:
    """The name of an ``AttributeProto``, and the fields behind it."""
    if len(attribute) > 1 and attribute[0] == _NAME_TAG and attribute[1] < 0x80:  # as they are written
        end = 2 + attribute[1]
        if end <= len(attribute):
            return attribute[2:end], attribute[end:]
    others = b"".join(whole for number, _, whole in fields(attribute) if number != _ATTRIBUTE_NAME)
    return next(values(attribute, _ATTRIBUTE_NAME)), others


def trimmed(names: Sequence[bytes]) -> list[bytes]:
    """``names`` without those at the end that are left out."""
    kept = list(names)
    while not kept[-1]:
        kept.pop()
    return kept
