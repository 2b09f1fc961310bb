"""Norms of each head's queries and keys (Qwen3, Gemma 3) in a rewritten graph: attention of edgegen's takes them on.

A matrix gives queries, keys and values in one. The graph splits them, cuts queries and keys into heads, norms these,
and joins them again: seven small nodes a layer. Attention takes the one value instead, and the weights of the norms.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from edgegen.graph.node import GraphNode, renamed_attribute

_ATTENTION = (b"CachedAttention", b"CachedAttentionInt8", b"CachedAttentionInt4")
_QUERY, _KEY, _VALUE, _NORMS = 0, 1, 2, 14
"""Inputs of attention; ``kernels/attention/cached_attention.h`` has their order."""
_LAST_OF_THREE = (2, (1 << 64) - 1)
"""An axis; -1 as protocol buffers have it."""


def with_query_key_norms(
    nodes: Sequence[GraphNode | None],
    weights: Mapping[bytes, int],
    integers: Mapping[bytes, Sequence[int]],
    results: Iterable[bytes],
) -> list[GraphNode | None]:
    """``nodes`` with the norms of queries and keys in attention, where a ``BlockMatMul`` gives all that it takes; None
    for what is gone.

    ``weights``: sizes of the initializers of one dimension; ``integers``: the values of those that are a few int64;
    ``results``: the graph's outputs.
    """
    pattern = _Pattern([node for node in nodes if node], weights, integers, results)
    replaced = dict[GraphNode, GraphNode | None]()
    for node in nodes:
        if node and node.op_type in _ATTENTION and node.domain == b"edgegen":
            replaced |= pattern.packed(node)
    return [replaced.get(node, node) if node else None for node in nodes]


class _Pattern:
    """Finds what stands between a matrix and attention."""

    def __init__(
        self,
        nodes: Sequence[GraphNode],
        weights: Mapping[bytes, int],
        integers: Mapping[bytes, Sequence[int]],
        results: Iterable[bytes],
    ) -> None:
        self._weights, self._integers = weights, integers
        self._makers = {name: node for node in nodes for name in node.outputs if name}
        self._uses = Counter(name for node in nodes for name in node.inputs if name)
        self._uses.update(results)

    def packed(self, attention: GraphNode) -> dict[GraphNode, GraphNode | None]:
        """Replacements of ``attention`` and of the nodes before it; none if these are others."""
        if len(attention.inputs) <= _VALUE or any(attention.inputs[_NORMS:]):
            return {}
        split = self._makers.get(attention.inputs[_VALUE])
        heads, kv_heads = attention.integer(b"num_heads") or 0, attention.integer(b"kv_num_heads") or 0
        if split is None or not self._splits(split, heads, kv_heads):
            return {}
        chains = [self._normed(attention.inputs[at], split.outputs[at]) for at in (_QUERY, _KEY)]
        size = self._integers[split.inputs[1]][_VALUE] // kv_heads
        if not all(chains) or any(self._weights.get(norm.inputs[1]) != size for _, norm, _ in chains):
            return {}
        inputs = [split.inputs[0], b"", b"", *attention.inputs[_VALUE + 1 :]]
        inputs += [b""] * (_NORMS - len(inputs)) + [norm.inputs[1] for _, norm, _ in chains]
        names = (b"query_epsilon", b"key_epsilon")
        epsilons = {
            name: renamed_attribute(norm.attributes[b"epsilon"], name)
            for name, (_, norm, _) in zip(names, chains, strict=True)
        }
        made = attention.replaced(attention.op_type, inputs, attention.outputs, {**attention.attributes, **epsilons})
        return {split: None, attention: made, **dict.fromkeys((node for chain in chains for node in chain), None)}

    def _splits(self, node: GraphNode, heads: int, kv_heads: int) -> bool:
        """Whether a node splits what a matrix gives into queries, keys and values, and each is read once."""
        if node.op_type != b"Split" or len(node.inputs) != 2 or len(node.outputs) != 3:
            return False
        matrix, sizes = self._makers.get(node.inputs[0]), self._integers.get(node.inputs[1], ())
        size = sizes[_VALUE] // kv_heads if len(sizes) == 3 and kv_heads else 0
        alone = all(self._uses[name] == 1 for name in (node.inputs[0], *node.outputs))
        last = node.integer(b"axis") in _LAST_OF_THREE
        fits = list(sizes) == [heads * size, kv_heads * size, kv_heads * size]
        return bool(size and fits and alone and last and matrix is not None and matrix.op_type == b"BlockMatMul")

    def _normed(self, value: bytes, source: bytes) -> list[GraphNode]:
        """Nodes that cut ``source`` into heads, norm these, and join them to ``value``; none if they are others."""
        chain = list[GraphNode]()
        for op_type in (b"Reshape", b"Norm", b"Reshape"):
            node = self._makers.get(value)
            if node is None or node.op_type != op_type or self._uses[value] != 1:
                return []
            chain.insert(0, node)
            value = node.inputs[0]
        norm = chain[1]
        plain = norm.integer(b"centered") == 0 and len(norm.inputs) == 2 and len(norm.outputs) == 1
        return chain if plain and value == source else []
