"""InPlaceRunner: prefill and decode of graphs that append to a preallocated KV cache in place."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import GraphVariant
from edgegen.graph.pending_tokens import SPANS, pending_input, pending_output
from edgegen.model.kv_cache import KVCache
from edgegen.model.ort_session import Binding, Buffer, GraphPair
from edgegen.model.rotary import RotaryTables
from edgegen.model.sliding_window import windows_of
from edgegen.system import second_level_cache

Logits = NDArray[np.float32]

OnHidden = Callable[[NDArray[np.float32]], None]
"""Receives the hidden states of what was run, valid until the next call: [tokens, size] of a prefill, or those of the
last tokens alone, and [rows, tokens, size] of a decode."""


class _Outputs(NamedTuple):
    """Outputs of a run: the ``logits`` of these tokens, with ``hidden`` states or without."""

    logits: Literal["every", "last", "none"]
    hidden: bool

    @property
    def every(self) -> bool:
        return self.logits == "every"


class InPlaceRunner:
    """Feeds the graphs of ``variant``. The logits it returns are its own buffer, valid until the next call."""

    device: Literal["cpu"] = "cpu"
    cache_kind: Literal["in_place"] = "in_place"

    def __init__(self, graphs: GraphPair, variant: GraphVariant, vocab_size: int, max_context: int) -> None:
        self.vocab_size = vocab_size
        self.max_context = max_context
        self.switch = graphs.switch
        self._graphs = graphs
        self._variant = variant
        self._steps: dict[_Outputs, _Step] = {}
        self._rotary = RotaryTables(variant.rotary)
        fixed, pending = variant.kv.fixed, graphs.pending
        self._pending = tuple(pending[state.past] for state in fixed) if pending else ()

    @property
    def chunk_invariance(self) -> Literal["any", "chunks", "none"]:
        """ONNX Runtime's attention computes a single token in other ways than several, with a float32 KV cache."""
        if self._graphs.order == "batch":
            return "none"
        kv, blocks = self._variant.kv, self._variant.linear == "matmul_nbits"
        exact = kv.dtype != "float32" or (blocks and not kv.layers) or self._graphs.order == "fixed"
        return "any" if exact else "chunks"

    @property
    def rollback_limit(self) -> int | None:
        """Fixed states can be rolled back to pending tokens."""
        if not self._variant.kv.fixed:
            return None
        return min((rows for rows, _ in self._pending), default=0)

    @property
    def verifies_batches(self) -> bool:
        """edgegen's attention accepts several tokens of several rows."""
        return self.chunk_invariance == "any" and self._graphs.attends_batches

    def new_cache(self, budget: int | None = None) -> KVCache:
        """An empty cache, which grows to ``budget`` bytes at most."""
        windows = windows_of(self._variant.kv, second_level_cache(), kernels=self._graphs.attends_batches)
        return KVCache(self._variant.kv, self.max_context, self._steps.clear, windows, budget, self._pending)

    def close(self) -> None:
        """Free the sessions with their weights; nothing can be run any more."""
        self._steps.clear()  # their bindings refer to sessions
        del self._graphs  # a session is freed with its last reference

    def prefill(
        self,
        cache: KVCache,
        slot: int,
        ids: Sequence[int],
        on_hidden: OnHidden | None = None,
        previous: NDArray[np.float32] | None = None,
    ) -> Logits:
        """Append ``ids`` to ``slot``; logits float32 [vocab] after the last of them.

        ``previous``: what the graph of a multi-token prediction head reads besides, the hidden states [tokens, size] of
        the positions before ``ids``.
        """
        step = self._step(_Outputs("last", on_hidden is not None), cache, slot, 1, len(ids))
        logits = step.run(cache, slot, np.asarray(ids, np.int64)[None], previous)[0, 0]
        if on_hidden is not None:
            on_hidden(step.hidden[0])
        return logits

    def append(self, cache: KVCache, slot: int, ids: Sequence[int]) -> None:
        """Append ``ids`` to ``slot``: a prefill without logits, of which the head has no rows to multiply."""
        # Layers that read another's cache run for the tokens with logits, and attention needs one.
        outputs = _Outputs("last" if self._variant.kv.shared else "none", hidden=False)
        self._step(outputs, cache, slot, 1, len(ids)).run(cache, slot, np.asarray(ids, np.int64)[None])

    def decode(
        self, cache: KVCache, ids: NDArray[np.int64], first_slot: int = 0, on_hidden: OnHidden | None = None
    ) -> Logits:
        """Append ids [rows, tokens] to ``rows`` slots from ``first_slot``; logits float32 [rows, tokens, vocab].

        Several tokens need a single row, unless :attr:`verifies_batches`.
        """
        step = self._step(_Outputs("every", on_hidden is not None), cache, first_slot, *ids.shape)
        logits = step.run(cache, first_slot, ids)
        if on_hidden is not None:
            on_hidden(step.hidden)
        return logits

    def _step(self, outputs: _Outputs, cache: KVCache, first: int, rows: int, tokens: int) -> "_Step":
        cache.make_room(first, rows, tokens)  # growth drops the steps, whose bindings hold the old arrays
        if outputs not in self._steps:
            bind = self._graphs.binding("decode" if outputs.every and not outputs.hidden else "prefill")
            step = _Step(bind, outputs, self._variant, self.vocab_size, self._rotary)
            if self._graphs.attends_batches:  # ONNX Runtime's attention reads the number: it must not change in a run
                for total in step.totals.values():
                    self.switch.watch(total)
            self._steps[outputs] = step
        return self._steps[outputs]


class _Step:
    """One graph, its inputs' buffers and the binding that joins them; rebinds only what changed since the last run."""

    def __init__(
        self, binding: Binding, outputs: _Outputs, variant: GraphVariant, vocab_size: int, rotary: RotaryTables
    ) -> None:
        self._binding = binding
        self._rotary = rotary
        self._outputs = outputs
        self._variant = variant
        self._vocab_size = vocab_size
        self._shape = (0, 0)
        self._bound: tuple[ReferenceType[KVCache], int, int, int] | None = None  # weak: the cache knows this step
        self._room = np.zeros(0, np.float32)
        self._ids = np.zeros((0, 0), np.int64)
        self._positions = np.zeros((0, 0), np.int64)
        self._logits = self.hidden = self._previous = np.zeros((0, 0, 0), np.float32)
        self._offsets = np.zeros(0, np.int64)
        self._seqlens: dict[str, NDArray[np.int32]] = {}
        self.totals = {name: np.zeros((), np.int32) for name in variant.kv.classes}
        for name, kv_class in variant.kv.classes.items():
            _, total = kv_class.length_inputs
            binding.input(total, Buffer(self.totals[name]))

    def run(
        self, cache: KVCache, first: int, ids: NDArray[np.int64], previous: NDArray[np.float32] | None = None
    ) -> Logits:
        rows, tokens = ids.shape
        lengths = cache.lengths[first : first + rows]
        if ids.shape != self._shape:
            self._bind_shape(rows, tokens)
        bound = (ref(cache), cache.version, first, rows)
        if bound != self._bound:
            self._bind_cache(cache, first, rows)
            self._bound = bound

        self._ids[...] = ids
        if previous is not None:
            self._previous[...] = previous
        held = lengths.tolist()  # for few rows, plain numbers are faster than NumPy
        for row, length in enumerate(held):
            self._positions[row] = length
        if tokens > 1:
            self._positions += self._offsets
        for name, seqlens in self._seqlens.items():
            longest = 0
            for row, base in enumerate(cache.bases[name][first : first + rows].tolist()):
                end = held[row] - base + tokens
                seqlens[row] = end - 1
                longest = max(longest, end)
            self.totals[name].fill(longest)
        with cache.running(first, rows, tokens, rejectable=self._outputs.every):
            self._binding.run()
        return self._logits

    def _bind_shape(self, rows: int, tokens: int) -> None:
        names, bind = self._variant.contract, self._binding
        self._shape = (0, 0)  # until all is bound: an interrupt may fall between
        first_wanted = {"every": 0, "last": tokens - 1, "none": tokens}[self._outputs.logits]
        wanted = np.tile(np.arange(first_wanted, tokens, dtype=np.int64), (rows, 1))
        self._ids = np.zeros((rows, tokens), np.int64)
        self._positions = np.zeros((rows, tokens), np.int64)
        self._offsets = np.arange(tokens, dtype=np.int64)
        self._seqlens = {name: np.zeros(rows, np.int32) for name in self._variant.kv.classes}
        count = wanted.size * self._vocab_size
        if count > len(self._room):  # new memory for each shape would cost more than what is computed beside it
            self._room = np.zeros(count, np.float32)
        self._logits = self._room[:count].reshape(*wanted.shape, self._vocab_size)
        bind.input(names.input_ids, Buffer(self._ids))
        bind.input(names.position_ids, Buffer(self._positions))
        for name, kv_class in self._variant.kv.classes.items():
            seqlens, _ = kv_class.length_inputs
            bind.input(seqlens, Buffer(self._seqlens[name]))
        if bind.takes(names.logits_indices):
            bind.input(names.logits_indices, Buffer(wanted))
        bind.output(names.logits, Buffer(self._logits))
        if (hidden := self._variant.hidden_states) is not None:
            if self._outputs.hidden:
                self.hidden = np.zeros((rows, wanted.shape[1] if hidden.of_wanted else tokens, hidden.size), np.float32)
                bind.output(hidden.name, Buffer(self.hidden))
            if self._variant.hidden_input is not None:
                self._previous = np.zeros((rows, tokens, hidden.size), np.float32)
                bind.input(self._variant.hidden_input, Buffer(self._previous))
        self._shape = (rows, tokens)

    def _bind_cache(self, cache: KVCache, first: int, rows: int) -> None:
        self._bound = None
        buffers, kv = iter(cache.buffers(first, rows)), self._variant.kv
        for layer in kv.layers:
            key = next(buffers)
            value = key if layer.latent else next(buffers)
            for one in (layer, *kv.readers(layer)):
                self._binding.input(one.past_key, key)
                self._binding.input(one.past_value, value)
                self._binding.output(one.present_key, key)
                self._binding.output(one.present_value, value)
        for state in kv.fixed:
            buffer = next(buffers)
            self._binding.input(state.past, buffer)
            self._binding.output(state.present, buffer)
        for state, buffer in zip(kv.fixed, buffers, strict=False):  # there may be no pending tokens
            self._binding.input(pending_input(state.past), buffer)
            self._binding.output(pending_output(state.past), buffer)
        for spans in buffers:
            self._binding.input(SPANS, spans)
        for name, buffer in self._rotary.buffers(cache.capacity).items():
            self._binding.input(name, buffer)
