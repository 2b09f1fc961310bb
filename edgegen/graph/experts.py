"""Mixtures of experts of a graph rewritten to edgegen's own operator, which adds them in one order."""

from collections.abc import Mapping, Sequence

from edgegen.graph.node import GraphNode, integer_attribute, renamed_attribute
from edgegen.graph.protobuf import values

_ATTRIBUTE_STRING = 4

_INPUTS = 8
"""Before zero points and a third matrix: x, scores, and of two matrices codes, scales and biases."""

_GLU = {b"activation_alpha": b"alpha", b"activation_beta": b"offset", b"swiglu_limit": b"limit"}
_READ = {
    *_GLU,
    *(b"k", b"normalize_routing_weights", b"activation_type", b"swiglu_fusion", b"use_sparse_mixer"),
    *(b"expert_weight_bits", b"block_size", b"accuracy_level"),
}


def fused_experts(node: GraphNode, inputs: Sequence[bytes], shapes: Mapping[bytes, Sequence[int]]) -> GraphNode | None:
    """``edgegen.BlockExperts`` in place of a ``QMoE`` with these ``inputs``; None if it has what ours has not.

    ``shapes``: of initializers. Codes are uint8 [experts, rows, columns · bits / 8].
    """
    bits, block = node.integer(b"expert_weight_bits", 4), node.integer(b"block_size")
    kind = next(values(node.attributes.get(b"activation_type", b""), _ATTRIBUTE_STRING), b"")
    asked = (node.integer(b"normalize_routing_weights", 0), node.integer(b"swiglu_fusion", 0), kind)
    others = node.attributes.keys() - _READ or node.integer(b"use_sparse_mixer", 0) or any(inputs[_INPUTS:])
    if others or asked != (1, 1, b"swiglu") or not bits or not block or _GLU.keys() - node.attributes.keys():
        return None
    if bits < 8 and node.integer(b"accuracy_level", 0) != 4:
        return None
    x, scores, *parts = [*inputs, *[b""] * _INPUTS][:_INPUTS]
    attributes = {name: renamed_attribute(node.attributes[old], name) for old, name in _GLU.items()}
    attributes[b"k"] = node.attributes[b"k"]
    places, experts = [x, scores], set[int]()
    for i, (codes, scales, bias) in enumerate((parts[:3], parts[3:])):
        shape = shapes.get(codes, ())
        if len(shape) != 3 or shape[2] * 8 % (bits * block):
            return None
        experts.add(shape[0])
        sizes = {"K": shape[2] * 8 // bits, "N": shape[1], "bits": bits, "block_size": block}
        for name, size in sizes.items():
            numbered = f"{name}{i}".encode()
            attributes[numbered] = integer_attribute(numbered, size)
        places += [codes, scales, b"", bias]
    if len(experts) != 1:
        return None
    attributes[b"experts"] = integer_attribute(b"experts", experts.pop())
    return node.replaced(b"BlockExperts", places, node.outputs, attributes)
