"""Scales of queries by their position, which some models of long contexts have in place of a larger rotation."""

import numpy as np

from edgegen_export.architecture.components.attention import QueryScale
from edgegen_export.graph.builder import GraphBuilder, Value


def query_scale(g: GraphBuilder, scale: QueryScale, positions: Value, max_positions: int) -> Value:
    """The factor of each query, float32 [b, t, 1], for positions int64 [b, t] below ``max_positions``.

    It is read from a table: the logarithm of a vector depends on where it is cut, in its last bits.
    """
    steps = np.arange(-(-max_positions // scale.original), dtype=np.float32)
    table = np.float32(1) + np.float32(scale.beta) * np.log(np.float32(1) + steps)
    which = g.op.Div(positions, g.constant(np.array(scale.original, np.int64)))
    return g.op.Unsqueeze(g.op.Gather(g.constant(table), which), g.axes(2))
