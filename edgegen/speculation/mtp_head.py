"""MTPHead: the multi-token prediction head of a bundle, whose weights every sequence shares."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.errors import UsageError
from edgegen.graph.external_data import bytes_read
from edgegen.model.in_place_runner import InPlaceRunner, Logits
from edgegen.model.interfaces import Runner
from edgegen.model.kv_cache import KVCache
from edgegen.model.loading import open_graphs
from edgegen.options.engine import EngineOptions
from edgegen.options.speculation import LEAST_READ
from edgegen.speculation.cache_head import CacheHead
from edgegen.system import read_regular

Hidden = NDArray[np.float32]


class MTPHead:
    """One layer that reads the model's hidden states, and a KV cache of its own for each sequence.

    Attributes:
        cost: what one of its steps costs, in steps of the model.
        chunk: most tokens to run in one call.
    """

    def __init__(self, runner: InPlaceRunner, cost: float, chunk: int) -> None:
        self.cost = cost
        self.chunk = chunk
        self._runner = runner

    def new_cache(self) -> KVCache:
        """The empty KV cache of one sequence."""
        cache = self._runner.new_cache()
        cache.reserve(1, 1)
        return cache

    def run(self, cache: KVCache, ids: list[int], hidden: Hidden) -> tuple[Logits, Hidden]:
        """Append ``ids``, with the hidden states [tokens, size] of the position before each: the logits [vocab] after
        the last of them, and the hidden states [1, size] to go on from; both valid until the next call."""
        last = list[Hidden]()
        cache.reserve(1, int(cache.lengths[0]) + len(ids))
        logits = self._runner.prefill(cache, 0, ids, lambda found: last.append(found[-1:]), hidden)
        return logits, last[0]

    def close(self) -> None:
        """Free the weights; nothing can be run any more."""
        self._runner.close()


Head = MTPHead | CacheHead
"""Proposer of tokens that uses the weights of a bundle."""


def open_mtp_head(bundle: Bundle, options: EngineOptions, model: Runner[Any], least: int = LEAST_READ) -> Head | None:
    """The head of ``bundle``, its weights loaded, for a ``model`` that runs.

    None, unless it is asked for, on a GPU, where the model would compute several tokens with other bits than one, and
    of a model that reads fewer bytes than ``least`` in a step.

    Raises:
        UsageError: it is asked for, and the bundle has none, or runs on a GPU.
    """
    head, sizes = bundle.manifest.mtp, bundle.manifest.model
    if head is None:
        raise UsageError(
            f"{bundle.path} has no multi-token prediction head: its checkpoint has none that is known, or it was "
            "exported with --no-mtp. Leave speculate='mtp' out."
        )
    if model.device == "cuda" and options.speculate == "mtp":
        raise UsageError("multi-token prediction runs on the CPU: give device='cpu', or leave speculate='mtp' out.")
    if options.speculate == "auto" and (model.device == "cuda" or model.chunk_invariance != "any"):
        return None
    variant = bundle.variant_with(options.kv)
    own, whole = (bytes_read(read_regular(bundle.file(one.prefill))) for one in (head, variant))
    if options.speculate == "auto" and whole < least:
        return None
    cost = own / max(1, whole)
    if head.model_cache is not None:
        over = head.over(variant.kv.dtype)
        graphs = open_graphs(bundle, over, options)
        return CacheHead(graphs, over, variant.kv, sizes.vocab_size, sizes.max_context, cost)
    runner = InPlaceRunner(open_graphs(bundle, head, options), head, sizes.vocab_size, sizes.max_context)
    return MTPHead(runner, cost, options.prefill_chunk)
