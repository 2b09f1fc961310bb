"""HeadProposer: what speculative decoding with any draft head of a bundle has in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from edgegen.speculation.expected_length import ExpectedLength
from edgegen.speculation.token_choice import TokenChoice


class HeadProposer(ABC):
    """Proposes for one sequence: tokens of its ``choice``, as many as ``pace`` has them."""

    always_accepted = False

    def __init__(self, choice: TokenChoice, pace: ExpectedLength) -> None:
        self._choice = choice
        self._pace = pace
        self.verified = pace.settle

    def propose(self, token_ids: Sequence[int]) -> list[int]:
        """Tokens of the head; none before the hidden states of the last token but one are known.

        Raises:
            EdgegenError: a processor fails, or no token can be chosen.
        """
        return self.propose_in_batch(token_ids, 1)

    @abstractmethod
    def propose_in_batch(self, token_ids: Sequence[int], sequences: int) -> list[int]:
        """As :meth:`propose`, where a step runs ``sequences`` sequences."""
