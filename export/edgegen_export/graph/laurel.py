"""LAuReL: a learned residual of low rank beside attention (Menghani et al. 2024, arXiv:2411.07501).

Shapes: b rows (batch), t new tokens per row, d hidden size.
"""

import numpy as np

from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.stream import normalized


def with_laurel(
    g: GraphBuilder, params: Parameters, config: DecoderConfig, layer: int, x: Value, residual: Value, attended: Value
) -> Value:
    """``(residual + attended + x + norm(right(left(x)))) / √2``, all [b, t, d]; x: what attention took."""
    module = f"layers.{layer}.laurel"
    low = linear(g, params.matrix(f"{module}.left"), x, params.bias(f"{module}.left"))
    made = linear(g, params.matrix(f"{module}.right"), low, params.bias(f"{module}.right"))
    learned = normalized(g, params, config.norm, made, f"{module}.norm")
    return g.op.Mul(g.op.Sum(residual, attended, x, learned), g.constant(np.array(2**-0.5, np.float32)))
