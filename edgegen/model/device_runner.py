"""DeviceRunner: prefill and decode on a GPU. Token ids go there and logits come back; all else stays there."""

from collections.abc import Sequence
from typing import Literal
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import GraphVariant
from edgegen.model.device import DeviceBinding, DeviceCopies, DeviceSession
from edgegen.model.device_kv_cache import DeviceKVCache
from edgegen.model.in_place_runner import Logits, OnHidden
from edgegen.model.rotary import rotary_table

LARGEST_HEAD = 256
"""Largest size of a head, a multiple of 8, that attention on CUDA accepts."""


class DeviceRunner:
    """Feeds the graph of ``variant``, a float32 one, that ``session`` runs."""

    device: Literal["cuda"] = "cuda"
    cache_kind: Literal["in_place"] = "in_place"
    chunk_invariance: Literal["none"] = "none"
    """A GPU's matrix products add in an order that depends on how many rows there are."""
    rollback_limit: None = None
    verifies_batches: Literal[False] = False

    def __init__(self, session: DeviceSession, variant: GraphVariant, vocab_size: int, max_context: int) -> None:
        self.vocab_size = vocab_size
        self.max_context = max_context
        self.switch = session.switch
        self._session = session
        self._variant = variant
        self._copies = DeviceCopies(session.device)
        self._steps: dict[bool, _Step] = {}

    def new_cache(self, budget: int | None = None) -> DeviceKVCache:
        """An empty cache, which grows to ``budget`` bytes at most."""
        kv, device = self._variant.kv, self._session.device
        return DeviceKVCache(kv, self.max_context, device, self._copies, self._steps.clear, budget)

    def close(self) -> None:
        """Free the sessions with their weights; nothing can be run any more."""
        self._steps.clear()
        del self._session, self._copies

    def prefill(self, cache: DeviceKVCache, slot: int, ids: Sequence[int], on_hidden: OnHidden | None = None) -> Logits:
        """Append ``ids`` to ``slot``; logits float32 [vocab] after the last of them."""
        tokens = np.asarray(ids, np.int64)[None]
        logits, *hidden = self._run(cache, slot, tokens, tokens.shape[1] - 1, hidden=on_hidden is not None)
        if on_hidden is not None:
            on_hidden(hidden[0][0])
        return logits[0, 0]

    def append(self, cache: DeviceKVCache, slot: int, ids: Sequence[int]) -> None:
        """Append ``ids`` to ``slot``."""
        self.prefill(cache, slot, ids)

    def decode(
        self, cache: DeviceKVCache, ids: NDArray[np.int64], first_slot: int = 0, on_hidden: OnHidden | None = None
    ) -> Logits:
        """Append ids [rows, tokens] to ``rows`` slots from ``first_slot``; logits float32 [rows, tokens, vocab].

        Several tokens need a single row: the attention operator refuses several of both.
        """
        assert on_hidden is None  # what asks for them runs on the CPU
        return self._run(cache, first_slot, ids, 0, hidden=False)[0]

    def _run(
        self, cache: DeviceKVCache, first: int, ids: NDArray[np.int64], wanted: int, *, hidden: bool
    ) -> list[NDArray[np.float32]]:
        rows, tokens = ids.shape
        longest = int(cache.lengths[first : first + rows].max(initial=0))
        cache.reserve(first + rows, longest + tokens)  # growth drops the steps, whose bindings hold the old arrays
        if hidden not in self._steps:
            self._steps[hidden] = _Step(self._session.binding(), self._variant, hidden=hidden)
        return self._steps[hidden].run(cache, first, ids, wanted)


class _Step:
    """The graph and its binding; the KV cache is bound again where it, or what runs of it, has changed."""

    def __init__(self, binding: DeviceBinding, variant: GraphVariant, *, hidden: bool) -> None:
        self._binding = binding
        self._variant = variant
        self._bound: tuple[ReferenceType[DeviceKVCache], int, int, int] | None = None
        self._returned = [variant.contract.logits]
        if hidden and variant.hidden_states is not None:
            self._returned.append(variant.hidden_states.name)

    def run(self, cache: DeviceKVCache, first: int, ids: NDArray[np.int64], wanted: int) -> list[NDArray[np.float32]]:
        """The logits after the positions from ``wanted`` on, and the hidden states where they are asked for."""
        (rows, tokens), names, bind = ids.shape, self._variant.contract, self._binding
        for name in self._returned:  # anew: what the last run has returned has its shape
            bind.returned_output(name)
        bound = (ref(cache), cache.version, first, rows)
        if bound != self._bound:
            self._bind_cache(cache, first, rows)
            self._bound = bound
        lengths = cache.lengths[first : first + rows].astype(np.int64)
        bind.copied_input(names.input_ids, np.ascontiguousarray(ids))
        bind.copied_input(names.position_ids, lengths[:, None] + np.arange(tokens, dtype=np.int64))
        if bind.takes(names.logits_indices):
            places = np.arange(wanted, tokens, dtype=np.int64)
            bind.copied_input(names.logits_indices, np.tile(places, (rows, 1)))
        ends = lengths + tokens
        for kv_class in self._variant.kv.classes.values():
            seqlens, total = kv_class.length_inputs
            bind.copied_input(seqlens, (ends - 1).astype(np.int32))
            bind.copied_input(total, np.array(ends.max(), np.int32))
        found = bind.run(len(self._returned))
        cache.lengths[first : first + rows] = ends
        return found

    def _bind_cache(self, cache: DeviceKVCache, first: int, rows: int) -> None:
        self._bound = None
        places, kv, bind = iter(cache.buffers(first, rows)), self._variant.kv, self._binding
        for layer in kv.layers:
            key = next(places)
            value = key if layer.latent else next(places)
            for one in (layer, *kv.readers(layer)):
                bind.input(one.past_key, key)
                bind.input(one.past_value, value)
                bind.output(one.present_key, key)
                bind.output(one.present_value, value)
        for table in self._variant.rotary:
            cos, sin = rotary_table(table, cache.capacity)
            bind.copied_input(table.cos, cos)
            bind.copied_input(table.sin, sin)
