"""Runner: the interface of model execution, with one implementation for each kind of KV cache.

``in_place`` (edgegen's own graphs): :class:`InPlaceRunner` and :class:`KVCache`. ``concat`` (graphs traced by optimum):
:class:`ConcatRunner` and :class:`ConcatCache`.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import CacheKind, GraphVariant
from edgegen.model.cache import Cache
from edgegen.model.in_place_runner import InPlaceRunner, Logits, OnHidden
from edgegen.model.ort_session import GraphPair, RunSwitch

C = TypeVar("C", bound=Cache)

ChunkInvariance = Literal["any", "chunks", "none"]
"""Which chunkings of a sequence give the same bits: any, those into chunks of several tokens, or none but its own."""


class Runner(Protocol[C]):
    """Token ids in, logits out, over a KV cache of its kind ``C``. Logits are valid until the next call.

    ``switch`` makes a run fail from another thread; what the run had appended to the cache is not counted.
    """

    vocab_size: int
    max_context: int
    switch: RunSwitch

    @property
    def device(self) -> Literal["cpu", "cuda"]: ...

    @property
    def cache_kind(self) -> CacheKind: ...

    @property
    def chunk_invariance(self) -> ChunkInvariance: ...

    @property
    def rollback_limit(self) -> int | None:
        """Most tokens of a rejected proposal that cost nothing more: after longer ones, those that were accepted are
        run again; None: never."""
        ...

    @property
    def verifies_batches(self) -> bool:
        """Whether a decode may have several tokens of several rows, whose bits are those of single steps."""
        ...

    def new_cache(self, budget: int | None = None) -> C:
        """An empty cache, which grows to ``budget`` bytes at most."""
        ...

    def prefill(self, cache: C, slot: int, ids: Sequence[int], on_hidden: OnHidden | None = None) -> Logits:
        """Append ``ids`` to ``slot``; logits float32 [vocab] after the last of them."""
        ...

    def append(self, cache: C, slot: int, ids: Sequence[int]) -> None:
        """Append ``ids`` to ``slot``: a prefill whose logits nobody wants, so that the head need not be multiplied."""
        ...

    def decode(
        self, cache: C, ids: NDArray[np.int64], first_slot: int = 0, on_hidden: OnHidden | None = None
    ) -> Logits:
        """Append ids [rows, tokens] to ``rows`` slots from ``first_slot``; logits float32 [rows, tokens, vocab]."""
        ...

    def close(self) -> None:
        """Free the sessions with their weights; nothing can be run any more."""
        ...


def make_runner(graphs: GraphPair, variant: GraphVariant, vocab_size: int, max_context: int) -> Runner[Any]:
    """The runner for the variant's kind of cache."""
    match variant.kv.kind:
        case "in_place":
            return InPlaceRunner(graphs, variant, vocab_size, max_context)
        case "concat":
            from edgegen.model.concat_runner import ConcatRunner

            return ConcatRunner(graphs, variant, vocab_size, max_context)
