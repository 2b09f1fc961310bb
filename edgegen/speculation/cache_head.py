"""CacheHead: a draft head that reads the model's own KV cache, whose weights every sequence shares."""

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import GraphVariant, KVSpec
from edgegen.model.in_place_runner import Logits
from edgegen.model.kv_cache import KVCache
from edgegen.model.ort_session import Binding, Buffer, GraphPair
from edgegen.model.rotary import RotaryTables

Hidden = NDArray[np.float32]


class CacheHead:
    """Layers with queries alone, which attend to what layers of the model keep of a sequence.

    Its attention, which always appends, puts what it never reads at the position of the model's next token.

    Attributes:
        cost: what one of its steps costs, in steps of the model.
        max_context: the model's.
    """

    def __init__(
        self, graphs: GraphPair, head: GraphVariant, model: KVSpec, vocab_size: int, max_context: int, cost: float
    ) -> None:
        """``model``: the KV cache that it reads."""
        assert head.model_cache, "what reads no cache of the model is another head"
        assert head.hidden_states, "a head gives what it goes on from"
        self.cost = cost
        self.max_context = max_context
        self._graphs = graphs
        self._head = head
        self._rotary = RotaryTables(head.rotary)
        places = dict(
            zip(
                (n if one.layer is None else one.layer for n, one in enumerate(model.layers)),
                accumulate((one.arrays for one in model.layers), initial=0),
                strict=False,
            )
        )
        self._places = [places[layer] for layer in head.model_cache.layers]
        self._ids, self._positions = (np.zeros((1, 1), np.int64) for _ in range(2))
        self._previous, self._hidden = (np.zeros((1, 1, head.hidden_states.size), np.float32) for _ in range(2))
        self._logits = np.zeros((1, 1, vocab_size), np.float32)

    def begin(self, cache: KVCache, slot: int, position: int) -> Binding:
        """Make ready for tokens after ``position``, of which :meth:`run` returns one after the other.

        ``position``: of the last token of the sequence in ``slot``, which is not in the ``cache`` yet; it reads what is
        there of the tokens before, and forgets what is there of others, which were rejected. All is bound anew: the
        cache may be moved between two proposals.
        """
        cache.truncate(slot, position)
        cache.make_room(slot, 1, 1)
        binding, contract, kv = self._graphs.binding("prefill"), self._head.contract, self._head.kv
        self._positions[...] = position
        for name, array in (
            (contract.input_ids, self._ids),
            (contract.position_ids, self._positions),
            (contract.logits_indices, np.zeros((1, 1), np.int64)),
            (self._head.hidden_input or "", self._previous),
        ):
            binding.input(name, Buffer(array))
        for name, kv_class in kv.classes.items():
            seqlens, total = kv_class.length_inputs
            at = position - int(cache.bases[name][slot])
            binding.input(seqlens, Buffer(np.array([at], np.int32)))
            binding.input(total, Buffer(np.array(at + 1, np.int32)))
        for name, buffer in self._rotary.buffers(cache.capacity).items():
            binding.input(name, buffer)
        buffers = cache.buffers(slot, 1)
        for layer, place in zip(kv.layers, self._places, strict=True):
            key, value = buffers[place : place + 2]
            for one in (layer, *kv.readers(layer)):
                binding.input(one.past_key, key)
                binding.input(one.past_value, value)
                binding.output(one.present_key, key)
                binding.output(one.present_value, value)
        binding.output(contract.logits, Buffer(self._logits))
        assert self._head.hidden_states
        binding.output(self._head.hidden_states.name, Buffer(self._hidden))
        return binding

    def run(self, binding: Binding, token_id: int, hidden: Hidden) -> tuple[Logits, Hidden]:
        """The logits [vocab] of the token after ``token_id``, ``hidden`` [size] being the hidden states of the position
        before it, and those to go on from; both valid until the next call."""
        self._ids[...] = token_id
        self._previous[...] = hidden
        binding.run()
        return self._logits[0, 0], self._hidden[0, 0]

    def close(self) -> None:
        """Free the weights; nothing can be run any more."""
        del self._graphs  # a session is freed with its last reference
