"""The oracle of a KV cache: logits computed anew from the ids, in the chunks of an engine that has kept them."""

from collections.abc import Sequence as Ids
from typing import Any

import numpy as np

from edgegen.engine.chunked_prefill import chunk_end
from edgegen.model.in_place_runner import Logits
from edgegen.model.interfaces import Runner


def recomputed(runner: Runner[Any], ids: Ids[int], prompt_length: int, chunk: int) -> Logits:
    """Return the logits [vocab] after ``ids``: the prompt in chunks, then single tokens: others round otherwise."""
    cache, at, logits = runner.new_cache(), 0, np.zeros(0, np.float32)
    while at < prompt_length:
        stop = chunk_end(at, prompt_length, chunk)
        logits = runner.prefill(cache, 0, ids[at:stop])
        at = stop
    for token in ids[prompt_length:]:
        logits = runner.decode(cache, np.array([[token]], np.int64))[0, -1]
    return logits.copy()
