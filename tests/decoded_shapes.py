"""The shapes of the ids that models decode: whether tokens of several sequences were verified in one run."""

from typing import Any

import pytest

from edgegen.model.in_place_runner import InPlaceRunner
from edgegen.model.kv_cache import KVCache


def decoded_shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """[sequences, tokens] of each decode from now on."""
    shapes, decode = list[tuple[int, ...]](), InPlaceRunner.decode

    def watched(self: InPlaceRunner, cache: KVCache, ids: Any, *others: Any) -> Any:
        shapes.append(ids.shape)
        return decode(self, cache, ids, *others)

    monkeypatch.setattr(InPlaceRunner, "decode", watched)
    return shapes
