"""DraftModel: a small model that drafts tokens for speculative decoding of a larger one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.errors import UsageError
from edgegen.model.cache import Cache
from edgegen.model.interfaces import Runner
from edgegen.model.loading import open_runner, open_tokenizer
from edgegen.options.engine import EngineOptions
from edgegen.sampling.history import History

Logits = NDArray[np.float32]


class DraftModel:
    """Draft model with a single-sequence KV cache, which is synchronized to the given token ids before each use.

    It serves one reader at a time. Another reader starts with an empty cache: its logits must not depend on others.

    Attributes:
        cost: what one of its steps costs, in steps of the target model.
        max_context: most tokens it can read.
    """

    def __init__(self, runner: Runner[Any], cost: float, chunk: int) -> None:
        """``chunk``: most tokens to run in one call."""
        self.cost = cost
        self.max_context = runner.max_context
        self._runner = runner
        self._chunk = chunk
        self._cache: Cache = runner.new_cache()
        self._history = History()
        self._cached = 0
        self._reader: object = None

    def unread(self, ids: Sequence[int], reader: object) -> int:
        """How many of the last ``ids`` are not in the KV cache; at least one, whose logits are wanted.

        ``reader``: the proposer that asks.
        """
        if reader is not self._reader:
            self._reader, self._history, self._cached = reader, History(), 0
        self._cached = self._cache.truncatable_length(0, min(self._cached, self._history.follow(ids), len(ids) - 1))
        return len(ids) - self._cached

    def read(self, ids: Sequence[int], reader: object) -> Logits | None:
        """The logits [vocab] after ``ids``, valid until the next call.

        None if one chunk was not enough, and the rest is left for the next call, or if the model lacks a token.
        """
        start = len(ids) - self.unread(ids, reader)
        new = list(ids[start : start + self._chunk])
        if max(new) >= self._runner.vocab_size:
            return None
        self._cache.reserve(1, len(ids))
        self._cache.truncate(0, start)
        end, logits = start + len(new), None
        if end < len(ids):
            self._runner.append(self._cache, 0, new)
        elif len(new) == 1:
            logits = self._runner.decode(self._cache, np.array([new], np.int64))[0, 0]
        else:
            logits = self._runner.prefill(self._cache, 0, new)
        self._cache.checkpoint(0)  # proposals that are rejected go back
        self._cached = end
        return logits

    def close(self) -> None:
        """Free weights and KV cache; nothing can be read any more."""
        self._cache = self._runner.new_cache()
        self._runner.close()


def open_draft(draft: Bundle, bundle: Bundle, options: EngineOptions) -> DraftModel:
    """``draft`` as the draft model for ``bundle``, its weights loaded, with its own default KV cache.

    Raises:
        UsageError: their vocabularies differ.
    """
    _require_same_vocabulary(draft, bundle)
    runner = open_runner(draft, replace(options, kv=None))
    # A decode step takes as long as reading the weights.
    read = [one.weights_size for one in (draft, bundle)]
    return DraftModel(runner, read[0] / read[1], options.prefill_chunk)


def _require_same_vocabulary(draft: Bundle, bundle: Bundle) -> None:
    """Compare the draft model's tokens with the bundle's.

    Raises:
        UsageError: an id is not the same token in both.
    """
    ours, theirs = open_tokenizer(bundle), open_tokenizer(draft)
    if ours is None or theirs is None:
        without = bundle if ours is None else draft
        raise UsageError(f"a draft model needs the tokenizer of the model, and {without.path} has none: leave it out.")
    different = ours.first_difference(theirs)
    if different is not None:
        raise UsageError(
            f"{draft.path} cannot be the draft model of {bundle.path}: token {different} is not the same in both. Take "
            "a bundle with the same tokenizer."
        )
