"""Replay: recomputes a sequence's KV cache before each step, for ``use_cache=False``, a mode for debugging.

The cache is recomputed in the same chunks as the first time. Other chunks would be as right, but not bit for bit the
same, and a debugging mode must not change the output by itself.
"""

from collections.abc import Sequence as Ids
from typing import Protocol

from edgegen.engine.sequence import Logits, Sequence


class Forward(Protocol):
    """Runs tokens of a sequence on the model and appends them to its KV cache."""

    def prefill(self, row: Sequence) -> Logits:
        """The next chunk of the prompt."""

    def decode(self, rows: Ids[Sequence]) -> Logits:
        """One token of each sequence."""

    def feed(self, row: Sequence, ids: Ids[int]) -> Logits:
        """Several tokens; ``row.kv.cached`` stays as it is."""


class Replay:
    """Remembers which proposals were verified in each sequence: these are the chunks of its answer."""

    def __init__(self) -> None:
        # By sequence and by the position they start at: the proposal, and how many of its tokens were kept.
        self._verified: dict[Sequence, dict[int, tuple[tuple[int, ...], int]]] = {}

    def note(self, row: Sequence, proposal: tuple[int, ...], taken: int) -> None:
        """``proposal`` was run behind what is cached of ``row``, and ``taken`` tokens were kept."""
        self._verified.setdefault(row, {})[row.kv.cached] = (proposal, taken)

    def fork(self, source: Sequence, target: Sequence) -> None:
        """``target`` has the KV cache of ``source`` from now on."""
        self._verified[target] = dict(self._verified.get(source, {}))

    def forget(self, row: Sequence) -> None:
        """``row`` has ended."""
        self._verified.pop(row, None)

    def rebuild(self, row: Sequence, model: Forward) -> None:
        """Compute everything that is cached of ``row`` again."""
        verified = self._verified.get(row, {})
        cached, row.kv.cached = row.kv.cached, 0
        while not row.prefilled:
            model.prefill(row)
        while row.kv.cached < cached:
            if row.kv.cached in verified:
                proposal, taken = verified[row.kv.cached]
                model.feed(row, (row.ids[row.kv.cached], *proposal))
                row.kv.cached += taken
            else:
                model.decode([row])
