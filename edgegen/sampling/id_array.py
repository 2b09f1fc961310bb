"""IdArray: a sequence's ids as a NumPy array that grows with the sequence."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling.history import History


class IdArray:
    """Turns a list of ids into an array at the cost of the new ones."""

    def __init__(self) -> None:
        self._history = History()
        self._buffer = np.empty(256, np.int64)

    def view(self, token_ids: Sequence[int]) -> NDArray[np.int64]:
        """``token_ids`` as ``[len(token_ids)]`` int64, read-only, good until the next call."""
        same, size = self._history.follow(token_ids), len(token_ids)
        if size > self._buffer.size:
            self._buffer = np.concatenate([self._buffer[:same], np.empty(2 * size - same, np.int64)])
        self._buffer[same:size] = token_ids[same:]
        view = self._buffer[:size]
        view.flags.writeable = False
        return view
