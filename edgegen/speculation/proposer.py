"""Proposer: who knows, or guesses, the tokens that come next, so that one step can run several of them.

A proposal is never taken as it is. The engine runs it through one decode of several tokens and samples the target
at each position, with that position's own random number, for as long as what comes out is what was proposed. So the
ids are the target's own, whoever proposes, and no distribution has to be corrected.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2022 (arXiv:2211.17192), whose
acceptance rule this one replaces: it keeps the ids, and not only their distribution.
"""

from collections.abc import Sequence
from typing import Protocol


class Proposer(Protocol):
    """Proposes tokens for one sequence."""

    @property
    def always_accepted(self) -> bool:
        """Whether proposals are always accepted: they are then run whoever else is running."""
        ...

    def propose(self, token_ids: Sequence[int]) -> Sequence[int]:
        """The tokens that may come behind ``token_ids`` (prompt and answer); none if nobody can tell."""
        ...

    def verified(self, proposed: int, accepted: int) -> None:
        """Of the last proposal, ``proposed`` tokens were run, of which the first ``accepted`` came true."""
        ...
