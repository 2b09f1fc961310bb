"""Latent attention of a decoder graph, absorbed: queries meet the latents that the KV cache has, and not the keys of
each head, which are never made.

Shapes: b rows (batch), t new tokens per row, d hidden size, h heads, n = b · t tokens in all.
"""

from edgegen_export.architecture.components.latent_attention import LatentAttention
from edgegen_export.graph.attention import cached_attention, gated, rotated
from edgegen_export.graph.builder import Value
from edgegen_export.graph.layer_graph import LayerGraph
from edgegen_export.graph.matrices import of_each_head
from edgegen_export.graph.stream import Stream


def latent_attention(layer: LayerGraph, attention: LatentAttention, x: Value) -> Stream:
    """Causal attention of [b, t, d] over the latents in the KV cache, to which the operator appends in place: as keys
    and as values, both the same numbers in the same memory.

    Returns the output projection without its bias, which the stream adds.
    """
    g, sizes = layer.g, attention.sizes
    heads, turned, head_dim, rope = attention.heads, attention.rotated, attention.head_dim, attention.rope
    parts = g.split(layer.linear(x, *attention.inputs), *(rows for (rows,) in attention.projected.values()))
    *queries, latent, key = parts[:-1] if attention.gate else parts
    if attention.made_of_query:
        low = layer.normalized(queries[0], "attn.q_a_norm", sizes.norm)
        both = layer.linear(low, *attention.made_of_query)
        queries = g.split(both, *(rows for (rows,) in attention.queries.values()))
    plain, turning = queries
    tokens = g.op.Slice(g.op.Shape(x), g.axes(0), g.axes(2))  # [b, t]

    def whole(part: Value, size: int) -> Value:
        """[n, h, size] → [b, t, h · size]"""
        return g.op.Reshape(part, g.op.Concat(tokens, g.axes(heads * size), axis=0))

    latent = layer.normalized(latent, "attn.latent_norm", sizes.norm)
    key = g.op.Concat(rotated(layer, rope, key, 1, turned), latent, axis=2)
    turning = g.op.Reshape(rotated(layer, rope, turning, heads, turned), g.axes(-1, heads, turned))
    plain = g.op.Reshape(plain, g.axes(-1, heads, sizes.unrotated))
    absorbed = _of_heads(layer, "attn.k_b", heads, plain, transposed=True)
    query = whole(g.op.Concat(turning, absorbed, axis=2), head_dim)
    if attention.query_scale:
        query = g.op.Mul(query, layer.step.query_scales[attention.query_scale])
    read = cached_attention(layer, attention, (query, key, key), layer.caches[0])
    by_head = g.op.Reshape(read, g.axes(-1, heads, head_dim))
    latents = g.op.Slice(by_head, g.axes(turned), g.axes(head_dim), g.axes(2))
    values = whole(_of_heads(layer, "attn.v_b", heads, latents, transposed=False), sizes.value)
    values = gated(g, attention.gate, values, parts[-1], heads, sizes.value) if attention.gate else values
    return layer.output(values, "attn.o")


def _of_heads(layer: LayerGraph, module: str, heads: int, x: Value, *, transposed: bool) -> Value:
    """x [n, h, columns] of each head times its matrix: [n, h, rows]."""
    matrices = layer.params.of_heads(f"{layer.name}.{module}", heads, transposed=transposed)
    return of_each_head(layer.g, matrices, x)
