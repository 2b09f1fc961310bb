"""UnreadStates: a model's hidden states that its multi-token prediction head has not read yet."""

import numpy as np
from numpy.typing import NDArray

LONGEST = 1024
"""Positions that are kept; of a longer text without proposals, the head reads the end."""


class UnreadStates:
    """The hidden states of the positions from ``first`` to ``end``."""

    def __init__(self) -> None:
        self.first = 0
        self._count = 0
        self._rows = np.zeros((0, 0), np.float32)

    @property
    def end(self) -> int:
        return self.first + self._count

    def put(self, first: int, hidden: NDArray[np.float32]) -> None:
        """Add the states of the positions from ``first`` on, [tokens, size]. Earlier ones stay, unless there is a
        gap."""
        if not self.first <= first <= self.end:
            self.first = first
        self._count = first - self.first
        together = self._count + len(hidden)
        if together > len(self._rows):
            rows = np.zeros((max(together, 2 * len(self._rows)), hidden.shape[1]), np.float32)
            if self._count:
                rows[: self._count] = self._rows[: self._count]
            self._rows = rows
        self._rows[self._count : together] = hidden
        self._count = together
        if together > 2 * LONGEST:  # seldom, so that a token does not move them all
            self.take(self.end - LONGEST)

    def take(self, end: int) -> NDArray[np.float32]:
        """Return the states of the positions before ``end``, [tokens, size], and forget them."""
        taken = end - self.first
        result = self._rows[:taken].copy()
        self._count -= taken
        self._rows[: self._count] = self._rows[taken : taken + self._count].copy()
        self.first = end
        return result
