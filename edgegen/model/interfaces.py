"""The one interface of what runs a variant's graphs, and the one place where the kind of its cache chooses who does.

``in_place`` (edgegen's own graphs): :class:`ModelRunner` and :class:`KVCache`. ``concat`` (graphs traced by optimum):
:class:`ConcatRunner` and :class:`ConcatCache`.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import CacheKind, GraphVariant
from edgegen.model.concat_runner import ConcatRunner
from edgegen.model.in_place_runner import Logits, ModelRunner
from edgegen.model.kv_snapshot import KVSnapshot
from edgegen.model.ort_session import GraphPair, RunSwitch


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

    def bytes_for(self, slots: int, length: int) -> int:
        """Bytes that keys and values of ``slots`` slots take, with ``length`` positions in each."""
        ...

    def fork(self, source: int, target: int) -> None:
        """Make slot ``target`` a copy of slot ``source``."""
        ...

    def swap(self, a: int, b: int) -> None:
        """Exchange two slots."""
        ...

    def save(self, slot: int) -> KVSnapshot:
        """The keys and values of ``slot``, outside of the cache."""
        ...

    def restore(self, slot: int, snapshot: KVSnapshot, length: int) -> None:
        """Give ``slot`` the first ``length`` positions of ``snapshot``, one of a cache like this."""
        ...

    def can_truncate(self, slot: int, length: int) -> bool:
        """Whether ``slot`` still has all that is seen of the positions before ``length``."""
        ...

    def can_restore(self, snapshot: KVSnapshot, length: int) -> bool:
        """Whether ``snapshot`` has all that is seen of the positions before ``length``."""
        ...

    def compact(self, leaver: int, live: int) -> int:
        """Free slot ``leaver`` of ``live`` live ones by moving the last live slot into it; returns that slot."""
        ...

    def truncate(self, slot: int, length: int) -> None:
        """Forget the positions of ``slot`` from ``length`` on."""
        ...


C = TypeVar("C", bound=Cache)

Cuts = Literal["any", "chunks", "none"]
"""How a text may be cut into runs without changing a bit: in any way, into chunks of several tokens, or not at all."""


class Runner(Protocol[C]):
    """Token ids in, logits out, over caches of its own kind ``C``. Logits are valid until the next call.

    ``switch`` fails a run from another thread; what it had appended to the cache is not counted.
    """

    vocab_size: int
    max_context: int
    switch: RunSwitch

    @property
    def cache_kind(self) -> CacheKind: ...

    @property
    def cuts(self) -> Cuts: ...

    def new_cache(self, budget: int | None = None) -> C:
        """An empty cache; ``budget``: bytes that its growth keeps to."""
        ...

    def prefill(self, cache: C, slot: int, ids: Sequence[int]) -> Logits:
        """Append ``ids`` to ``slot``; logits float32 [vocab] after the last of them."""
        ...

    def decode(self, cache: C, ids: NDArray[np.int64], first_slot: int = 0) -> Logits:
        """Append ids [rows, tokens] to ``rows`` slots from ``first_slot``; logits float32 [rows, tokens, vocab]."""
        ...

    def close(self) -> None:
        """Free the sessions with their weights; nothing can be run any more."""
        ...


def make_runner(graphs: GraphPair, variant: GraphVariant, vocab_size: int, max_context: int) -> Runner[Any]:
    """The runner for the variant's kind of cache."""
    match variant.kv.kind:
        case "in_place":
            return ModelRunner(graphs, variant, vocab_size, max_context)
        case "concat":
            return ConcatRunner(graphs, variant, vocab_size, max_context)
