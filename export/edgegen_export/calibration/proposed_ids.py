"""Which ids a multi-token prediction head proposes: of a large vocabulary the frequent ones, so that it reads less."""

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

FIRST_IDS = 32_768
"""Number of first ids that are proposed: merges and scores order vocabularies by how frequent tokens are."""


def proposed_ids(vocab_size: int, seen: Collection[int]) -> NDArray[np.int32] | None:
    """The first ids and those ``seen``, in order; None where they would be half of all ids or more."""
    found = np.union1d(np.arange(min(FIRST_IDS, vocab_size)), np.fromiter(seen, np.int64, len(seen)))
    return found.astype(np.int32) if 2 * len(found) < vocab_size else None


def runs(ids: NDArray[np.int32]) -> Iterator[tuple[int, int]]:
    """Where ids in order follow one another: the first of each run, and the last plus one."""
    for run in np.split(ids, np.flatnonzero(np.diff(ids) > 1) + 1):
        yield int(run[0]), int(run[-1]) + 1
