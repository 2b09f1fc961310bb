"""ALiBi: biases of scores by the position of the key."""

import numpy as np

from edgegen_export.architecture.config import Alibi
from edgegen_export.graph.builder import GraphBuilder, Value


def alibi_bias(g: GraphBuilder, alibi: Alibi, ids: Value, total: Value) -> Value:
    """The ALiBi bias of the scores, float32 [1, h, t, total] for ids [b, t]. It uses the key's position instead of its
    distance: the difference is constant within a row, and softmax ignores it."""
    keys = g.op.Cast(g.op.Range(g.constant(np.array(0, np.int32)), total, g.constant(np.array(1, np.int32))), to=1)
    slopes = np.array(alibi.slopes, np.float32).reshape(1, -1, 1, 1)
    bias = g.op.Mul(g.constant(slopes), keys)
    if alibi.bfloat16:
        bias = g.op.Cast(g.op.Cast(bias, to=16), to=1)
    bias = g.op.Mul(bias, g.constant(np.array(alibi.scale, np.float32)))
    tokens = g.op.Shape(ids, start=1, end=2)
    return g.op.Expand(bias, g.op.Concat(g.axes(1, 1), tokens, g.axes(1), axis=0))
