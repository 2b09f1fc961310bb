"""ConcatRunner: prefill and decode of traced graphs, which take the past KV cache and return it with the new tokens."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import GraphVariant, Phase
from edgegen.model.concat_cache import ConcatCache
from edgegen.model.in_place_runner import OnHidden
from edgegen.model.ort_session import Binding, Buffer, GraphPair

Logits = NDArray[np.float32]


class ConcatRunner:
    """Feeds the graphs of ``variant``, one row after the other: rows of different lengths have no common past array.

    The logits it returns are its own buffer, valid until the next call.
    """

    device: Literal["cpu"] = "cpu"
    cache_kind: Literal["concat"] = "concat"
    chunk_invariance: Literal["none"] = "none"
    rollback_limit: None = None
    verifies_batches: Literal[False] = False

    def __init__(self, graphs: GraphPair, variant: GraphVariant, vocab_size: int, max_context: int) -> None:
        self.vocab_size = vocab_size
        self.max_context = max_context
        self.switch = graphs.switch
        self._graphs = graphs
        self._variant = variant
        layers = variant.kv.layers
        self._pasts = [name for layer in layers for name in (layer.past_key, layer.past_value)]
        self._presents = [name for layer in layers for name in (layer.present_key, layer.present_value)]
        self._logits = np.zeros((0, 0, 0), np.float32)

    def new_cache(self, budget: int | None = None) -> ConcatCache:
        """An empty cache. It takes what its sequences need, whatever the ``budget``."""
        return ConcatCache(self._variant.kv)

    def close(self) -> None:
        """Free the sessions with their weights; nothing can be run any more."""
        del self._graphs  # a session is freed with its last reference

    def prefill(self, cache: ConcatCache, slot: int, ids: Sequence[int], on_hidden: OnHidden | None = None) -> Logits:
        """Append ``ids`` to ``slot``; logits float32 [vocab] after the last of them."""
        assert on_hidden is None  # traced graphs give no hidden states
        return self._run("prefill", cache, slot, np.asarray(ids, np.int64)[None])[0, 0]

    def append(self, cache: ConcatCache, slot: int, ids: Sequence[int]) -> None:
        """Append ``ids`` to ``slot``."""
        self.prefill(cache, slot, ids)

    def decode(
        self, cache: ConcatCache, ids: NDArray[np.int64], first_slot: int = 0, on_hidden: OnHidden | None = None
    ) -> Logits:
        """Append ids [rows, tokens] to ``rows`` slots from ``first_slot``; logits float32 [rows, tokens, vocab]."""
        assert on_hidden is None  # traced graphs give no hidden states
        return self._run("decode", cache, first_slot, ids)

    def _run(self, phase: Phase, cache: ConcatCache, first: int, ids: NDArray[np.int64]) -> Logits:
        rows, tokens = ids.shape
        cache.reserve(first + rows, tokens)
        wanted = np.arange(0 if phase == "decode" else tokens - 1, tokens, dtype=np.int64)[None]
        shape = (rows, wanted.size, self.vocab_size)
        if self._logits.shape != shape:
            self._logits = np.zeros(shape, np.float32)
        for row in range(rows):
            bind = self._graphs.binding(phase)  # anew each time: it would keep the arrays of past steps alive
            if bind.takes(self._variant.contract.logits_indices):
                bind.input(self._variant.contract.logits_indices, Buffer(wanted))
            self._run_row(bind, cache, first + row, ids[row : row + 1], self._logits[row : row + 1])
        return self._logits

    def _run_row(self, bind: Binding, cache: ConcatCache, slot: int, ids: NDArray[np.int64], logits: Logits) -> None:
        """One graph over ids [1, tokens] after what ``slot`` holds; logits [1, wanted, vocab] are written."""
        names, layers = self._variant.contract, self._variant.kv.layers
        before, tokens = int(cache.lengths[slot]), ids.shape[1]
        after = before + tokens
        dtype = self._variant.kv.format.array_dtype
        shapes = [(1, layer.kv_heads, after, layer.head_dim) for layer in layers for _ in "kv"]
        present = [Buffer(np.empty(shape, dtype)) for shape in shapes]
        bind.input(names.input_ids, Buffer(np.ascontiguousarray(ids)))
        bind.input(names.position_ids, Buffer(np.arange(before, after, dtype=np.int64)[None]))
        for name, buffer in zip(self._pasts, cache.past(slot), strict=True):
            bind.input(name, buffer)
        for name, buffer in zip(self._presents, present, strict=True):
            bind.output(name, buffer)
        bind.output(names.logits, Buffer(logits))
        bind.run()
        cache.replace(slot, present)
