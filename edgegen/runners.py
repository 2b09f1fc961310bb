"""The one interface of what runs a variant's graphs, and the one place where the kind of its cache chooses who does.

``in_place`` (edgegen's own graphs): :class:`ModelRunner` and :class:`KVCache`. ``concat`` (graphs traced by optimum):
:class:`ConcatRunner` and :class:`ConcatCache`.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgegen.concat_runner import ConcatRunner
from edgegen.errors import UsageError
from edgegen.manifest import CacheKind, GraphVariant
from edgegen.ort_session import GraphPair, RunSwitch
from edgegen.runner import Logits, ModelRunner


class Cache(Protocol):
    """Keys and values of rows, each in a slot; the live slots are the first ones.

    ``lengths``: int32 [slots], the valid positions of each slot; ``copied_bytes``: bytes moved so far.
    """

    lengths: NDArray[np.int32]
    copied_bytes: int

    @property
    def slots(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Bytes that keys and values take."""
        ...

    def reserve(self, slots: int, length: int) -> None:
        """Have at least ``slots`` slots, with room for ``length`` positions in each where room is made beforehand."""
        ...

    def fork(self, source: int, target: int) -> None:
        """Make slot ``target`` a copy of slot ``source``."""
        ...

    def compact(self, leaver: int, live: int) -> int:
        """Free slot ``leaver`` of ``live`` live ones by moving the last live slot into it; returns that slot."""
        ...

    def truncate(self, slot: int, length: int) -> None:
        """Forget the positions of ``slot`` from ``length`` on."""
        ...


C = TypeVar("C", bound=Cache)


class Runner(Protocol[C]):
    """Token ids in, logits out, over caches of its own kind ``C``. Logits are valid until the next call.

    ``switch`` fails a run from another thread; what it had appended to the cache is not counted.
    """

    vocab_size: int
    max_context: int
    switch: RunSwitch

    @property
    def cache_kind(self) -> CacheKind: ...

    def new_cache(self) -> C: ...

    def prefill(self, cache: C, slot: int, ids: Sequence[int]) -> Logits:
        """Append ``ids`` to ``slot``; logits float32 [vocab] after the last of them."""
        ...

    def decode(self, cache: C, ids: NDArray[np.int64], first_slot: int = 0) -> Logits:
        """Append ids [rows, tokens] to ``rows`` slots from ``first_slot``; logits float32 [rows, tokens, vocab]."""
        ...


def make_runner(graphs: GraphPair, variant: GraphVariant, vocab_size: int, max_context: int) -> Runner[Any]:
    """The runner for the variant's kind of cache."""
    match variant.kv.kind:
        case "in_place":
            return ModelRunner(graphs, variant, vocab_size, max_context)
        case "concat":
            return ConcatRunner(graphs, variant, vocab_size, max_context)


def require_in_place(runner: Runner[Any], feature: str) -> None:
    """For what only a cache in place can do; ``feature`` names it as a user knows it.

    Raises:
        UsageError: the runner's cache is of another kind.
    """
    if runner.cache_kind != "in_place":
        raise UsageError(
            f"{feature} needs keys and values in place, and the graphs of this bundle, traced by optimum, return them "
            "anew at every step: leave it out, or export the model without --via optimum if edgegen knows its family."
        )
