"""Scales of queries by their position, which some models of long contexts have in place of a larger rotation."""

import numpy as np

from edgegen_export.architecture.components.attention import QueryScale
from edgegen_export.graph.builder import GraphBuilder, Value


def query_scale(g: GraphBuilder, scale: QueryScale, positions: Value, max_positions: int) -> Value:
    """The factor of each query, float32 [b, t, 1], for positions int64 [b, t] below ``max_positions``.

    It is read from a table: the logarithm of a vector depends on where it is cut, in its last bits.
    """
    if scale.smooth:
        # Before the position ``original`` the factor is 1, so the table begins there.
        first = min(scale.original, max_positions) - 1
        counts = np.arange(first + 1, max_positions + 1, dtype=np.float32)
        shares = np.maximum(counts / np.float32(scale.original), np.float32(1))
        table = np.float32(1) + np.float32(scale.beta) * np.log(shares)
        beyond = g.op.Sub(positions, g.constant(np.array(first, np.int64)))
        which = g.op.Max(beyond, g.constant(np.array(0, np.int64)))
        return g.op.Unsqueeze(g.op.Gather(g.constant(table, f"query scale {scale}"), which), g.axes(2))
    steps = np.arange(-(-max_positions // scale.original), dtype=np.float32)
    table = np.float32(1) + np.float32(scale.beta) * np.log(np.float32(1) + steps)
    which = g.op.Div(positions, g.constant(np.array(scale.original, np.int64)))
    return g.op.Unsqueeze(g.op.Gather(g.constant(table), which), g.axes(2))
