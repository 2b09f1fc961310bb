"""Latent attention of a decoder graph, absorbed: queries meet the latents that the KV cache has, and not the keys of
each head, which are never made.

Shapes: b rows (batch), t new tokens per row, d hidden size, h heads, n = b · t tokens in all.
"""

from edgegen.bundle.manifest import KVLayer
from edgegen_export.architecture.components.latent_attention import LatentAttention
from edgegen_export.graph.attention import cached_attention, gated
from edgegen_export.graph.builder import NONE, GraphBuilder, Value
from edgegen_export.graph.matrices import linear, of_each_head
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.step_inputs import StepInputs
from edgegen_export.graph.stream import Stream, normalized


def latent_attention(
    g: GraphBuilder,
    params: Parameters,
    own: LatentAttention,
    layer: int,
    x: Value,
    cache: KVLayer,
    step: StepInputs,
) -> Stream:
    """Causal attention of [b, t, d] over the latents in the KV cache, to which the operator appends in place: as keys
    and as values, both the same numbers in the same memory.

    Returns the output projection without its bias, which the stream adds.
    """
    name = f"layers.{layer}"
    module, inputs = f"{name}.attn", tuple(f"{name}.{matrix}" for matrix in own.inputs)
    sizes, heads, rotated = own.sizes, own.heads, own.rotated
    packed = linear(g, params.matrix(*inputs), x, params.bias(*inputs))
    parts = _split(g, packed, *(rows for (rows,) in own.projected.values()))
    *queries, latent, key = parts[:-1] if own.gate else parts
    if own.made_of_query:
        modules = tuple(f"{name}.{matrix}" for matrix in own.made_of_query)
        low = normalized(g, params, sizes.norm, queries[0], f"{module}.q_a_norm")
        both = linear(g, params.matrix(*modules), low, params.bias(*modules))
        queries = _split(g, both, *(rows for (rows,) in own.queries.values()))
    plain, turning = queries
    tokens = g.op.Slice(g.op.Shape(x), g.axes(0), g.axes(2))  # [b, t]

    def turned(part: Value, count: int) -> Value:
        if own.rope is None:
            return part
        cos, sin = step.rotary[own.rope]
        interleaved = int(own.rope.interleaved)
        return g.ms.RotaryEmbedding(part, step.positions, cos, sin, num_heads=count, interleaved=interleaved)

    def whole(part: Value, size: int) -> Value:
        """[n, h, size] → [b, t, h · size]"""
        return g.op.Reshape(part, g.op.Concat(tokens, g.axes(heads * size), axis=0))

    latent = normalized(g, params, sizes.norm, latent, f"{module}.latent_norm")
    key = g.op.Concat(turned(key, 1), latent, axis=2)
    turning = g.op.Reshape(turned(turning, heads), g.axes(-1, heads, rotated))
    plain = g.op.Reshape(plain, g.axes(-1, heads, sizes.unrotated))
    absorbed = of_each_head(g, params.of_heads(f"{module}.k_b", heads, transposed=True), plain)
    query = whole(g.op.Concat(turning, absorbed, axis=2), own.head_dim)
    if own.query_scale:
        query = g.op.Mul(query, step.query_scales[own.query_scale])
    attended = cached_attention(g, params, own, layer, (query, key, key), cache, step)
    by_head = g.op.Reshape(attended, g.axes(-1, heads, own.head_dim))
    latents = g.op.Slice(by_head, g.axes(rotated), g.axes(own.head_dim), g.axes(2))
    values = of_each_head(g, params.of_heads(f"{module}.v_b", heads, transposed=False), latents)
    values = whole(values, sizes.value)
    values = gated(g, own, values, parts[-1], sizes.value) if own.gate else values
    return Stream(NONE, linear(g, params.matrix(f"{module}.o"), values), params.bias(f"{module}.o"))


def _split(g: GraphBuilder, x: Value, *widths: int) -> tuple[Value, ...]:
    return g.node("Split", [x, g.axes(*widths)], len(widths), attributes={"axis": 2})
