"""Norms of queries and keys.

Shapes: b rows (batch), t new tokens per row.
"""

import numpy as np

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.graph.builder import Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.stream import norm_operator


def head_norm(layer: LayerGraph, attention: Attention, name: str, x: Value) -> Value:
    """x [b, t, heads · head_dim], queries (``q``) or keys (``k``), with their norm."""
    g, qk_norm, head_dim, module = layer.g, attention.qk_norm, attention.head_dim, f"attn.{name}_norm"
    assert qk_norm, "queries and keys have a norm"
    if qk_norm.over == "all":
        return layer.normalized(x, module, qk_norm.norm)
    heads = {"q": attention.heads, "k": attention.kv_heads}[name]
    split = g.op.Reshape(x, g.axes(0, 0, heads, head_dim))
    if qk_norm.over == "head":
        result = layer.normalized(split, module, qk_norm.norm)
    else:
        plain = norm_operator(g, qk_norm.norm, split, g.constant(np.ones(head_dim, np.float32)))
        result = g.op.Mul(plain, layer.weight(f"{module}.weight"))
        if bias := layer.params.bias(f"{layer.name}.{module}"):
            result = g.op.Add(result, g.weight(bias))
    return g.op.Reshape(result, g.axes(0, 0, heads * head_dim))
