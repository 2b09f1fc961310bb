"""Neighbours: which nodes of a graph produce the inputs of a node, and which read its outputs."""

import struct
from collections import Counter
from collections.abc import Iterable, Mapping

from edgegen.graph.node import GraphNode

Constants = Mapping[bytes, tuple[bytes, tuple[int, ...]]]
"""Initializers: their bytes, none where they are in another file, and their shape."""


class Neighbours:
    """The values of a graph, by what makes and what reads them.

    Attributes:
        uses: how often each value is read, by nodes or as a result of the graph.
    """

    def __init__(self, nodes: Iterable[GraphNode | None], constants: Constants, results: Iterable[bytes]) -> None:
        """``constants``: the initializers; ``results``: the graph's outputs."""
        self.results = frozenset(results)
        self._constants = constants
        self._made = dict[bytes, GraphNode]()
        self._readers = dict[bytes, list[GraphNode]]()
        for node in filter(None, nodes):
            self._made |= dict.fromkeys(node.outputs, node)
            for name in node.inputs:
                self._readers.setdefault(name, []).append(node)
        self.uses = Counter({name: len(found) for name, found in self._readers.items()})
        self.uses.update(self.results)

    def readers(self, name: bytes) -> list[GraphNode]:
        """The nodes that read a value, in order."""
        return self._readers.get(name, [])

    def before(self, node: GraphNode | None, op_type: bytes, at: int = 0) -> GraphNode | None:
        """The node of this type that produces an input."""
        found = self._made.get(node.inputs[at]) if node and len(node.inputs) > at else None
        return found if found and found.op_type == op_type else None

    def alone_before(self, node: GraphNode | None, op_type: bytes, at: int = 0) -> GraphNode | None:
        """The node of this type that produces an input, where nothing else reads that."""
        found = self.before(node, op_type, at)
        return found if found and node and self.uses[node.inputs[at]] == 1 else None

    def reader(self, node: GraphNode | None, op_type: bytes) -> GraphNode | None:
        """The node of this type that alone reads the first output of ``node``."""
        name = node.outputs[0] if node else b""
        alone = self.readers(name) if self.uses[name] == 1 else []
        return alone[0] if alone and alone[0].op_type == op_type else None

    def after(self, node: GraphNode | None, op_type: bytes) -> GraphNode | None:
        """The node of this type that alone reads the first output of ``node``, as its own first input."""
        found = self.reader(node, op_type)
        return found if found and node and found.inputs[0] == node.outputs[0] else None

    def is_constant(self, name: bytes) -> bool:
        """Whether a value is an initializer."""
        return name in self._constants

    def stored(self, node: GraphNode, at: int) -> bytes:
        """The bytes of an input that is an initializer; empty where it is no initializer, or in another file."""
        return self._constants.get([*node.inputs, b"", b"", b""][at], (b"", ()))[0]

    def shape(self, name: bytes) -> tuple[int, ...]:
        """The shape of an initializer; empty where there is none of that name."""
        return self._constants.get(name, (b"", ()))[1]

    def numbers(self, node: GraphNode, at: int) -> list[int]:
        """An input that is an initializer of 64-bit integers."""
        data = self.stored(node, at)
        return list(struct.unpack(f"<{len(data) // 8}q", data)) if len(data) % 8 == 0 else []
