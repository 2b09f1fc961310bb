"""Functions of a graph: nodes of edgegen's own operators, of which the file has the bodies in stock operators.

A session with our kernels computes the node by the kernel of its operator; one without them puts the body in its place.
A body is for one form of an operator, and its name tells which: ``CausalConv_4_bias`` is a ``CausalConv``. Without a
form it would be the name of the kernel, which ONNX Runtime prefers.
"""

DOMAIN = "edgegen"

FUNCTIONS = {
    b"Activation": (),
    b"BlockMatMul": (1, 2, 4),
    b"BlockMatMulPerHead": (1, 2),
    b"CausalConv": (2, 3),
    b"GatedDeltaRule": (6, 7),
    b"SelectiveScan": (5,),
}
"""Operators that may be functions, and which of their inputs the kernel reads as weights: initializers, or left out."""


def operator_of(function: bytes) -> bytes:
    """The operator that a function is a form of; empty where its name has no form."""
    operator, _, form = function.partition(b"_")
    return operator if form else b""
