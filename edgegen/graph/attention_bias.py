"""Biases that an attention adds to the score of each key, and how large a graph's are."""

from typing import NamedTuple

from edgegen.graph.node import GraphNode
from edgegen.graph.protobuf import values

_GRAPH, _NODE = 7, 1
_BIAS = 10
"""The input of ``GroupQueryAttention``."""


class AttentionBias(NamedTuple):
    """``heads``: of the attention with most, 0 where none reads a bias; ``by_layer``: whether each layer
    makes one of its own, of its queries, and not all read the same."""

    heads: int
    by_layer: bool


def attention_bias(graph: bytes) -> AttentionBias:
    """The biases of ``graph``.

    Raises:
        ValueError: that is no graph.
    """
    nodes = [GraphNode.parsed(message) for body in values(graph, _GRAPH) for message in values(body, _NODE)]
    found = [node for node in nodes if node.op_type == b"GroupQueryAttention" and any(node.inputs[_BIAS : _BIAS + 1])]
    heads = max((node.integer(b"num_heads", 0) or 0 for node in found), default=0)
    return AttentionBias(heads, len({node.inputs[_BIAS] for node in found}) > 1)
