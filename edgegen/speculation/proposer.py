"""Proposer: the interface of speculative decoding, where one step verifies several proposed tokens.

The engine runs a proposal through one decode of several tokens and samples the target at each position, with that
position's own random number, for as long as the samples are what was proposed. So the ids are the target's own,
whatever is proposed, and no distribution has to be corrected.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2022 (arXiv:2211.17192), whose
acceptance rule this one replaces: it keeps the ids, not only their distribution.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edgegen.model.cache import Cache

OnHiddenAt = Callable[[int, NDArray[np.float32]], None]
"""Receives the model's hidden states [tokens, size] of a sequence's positions from the first argument on, valid until
the next call."""


class Proposer(Protocol):
    """Proposes tokens for one sequence."""

    @property
    def always_accepted(self) -> bool:
        """Whether proposals are always accepted, such as tokens that a grammar forces: they run in any batch."""
        ...

    def propose(self, token_ids: Sequence[int]) -> Sequence[int]:
        """The tokens that may follow ``token_ids`` (prompt and answer); none if there is no proposal."""
        ...

    def verified(self, proposed: int, accepted: int) -> None:
        """Of the last proposal, ``proposed`` tokens were run, and the first ``accepted`` were accepted."""
        ...


@runtime_checkable
class BatchProposer(Proposer, Protocol):
    """Proposes for a sequence of a batch too."""

    def propose_in_batch(self, token_ids: Sequence[int], sequences: int) -> Sequence[int]:
        """As :meth:`propose`, where a step runs ``sequences`` sequences, each with more tokens for a proposal."""
        ...


@runtime_checkable
class CacheReader(Protocol):
    """A proposer that reads what the model's KV cache has of its sequence."""

    def read_from(self, cache: Cache, slot: Callable[[], int]) -> None:
        """Told when the sequence gets a slot: ``slot`` returns the one that it is in, for it may be moved."""
        ...
