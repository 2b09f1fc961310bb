"""Sums over the last axis of a graph's values, whose bits depend on nothing but the numbers.

Stock reductions add in an order that depends on the processor, and on where a row lies. Here a row is split into equal
parts, which are added one after the other, until one number is left.
"""

import numpy as np

from edgegen_export.graph.builder import GraphBuilder, Value

_PARTS = 16
"""Into how many parts a row is split at most, unless its length has no such divisor."""


def total(g: GraphBuilder, x: Value, size: int) -> Value:
    """The sums of x [..., size], as [..., 1]."""
    while size > 1:
        count = next((n for n in range(min(_PARTS, size), 1, -1) if size % n == 0), size)
        x = g.op.Sum(*g.parts(x, count, axis=-1))
        size //= count
    return x


def mean(g: GraphBuilder, x: Value, size: int) -> Value:
    """The means of x [..., size], as [..., 1]."""
    return g.op.Mul(total(g, x, size), g.constant(np.array(1 / size, np.float32)))


def mean_square(g: GraphBuilder, x: Value, size: int) -> Value:
    """The means of the squares of x [..., size], as [..., 1]."""
    return mean(g, g.op.Mul(x, x), size)


def small_linear(g: GraphBuilder, weight: Value, x: Value, rows: int, columns: int) -> Value:
    """``x @ weight.T`` for the few rows of ``weight`` [rows, columns]: x [b, t, columns] → [b, t, rows]."""
    products = g.op.Mul(g.op.Unsqueeze(x, g.axes(2)), weight)
    return g.op.Reshape(total(g, products, columns), g.axes(0, 0, rows))
