"""HeadProposer: what speculative decoding with any draft head of a bundle has in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler
from edgegen.speculation.expected_length import ExpectedLength
from edgegen.speculation.token_choice import TokenChoice


class HeadProposer(ABC):
    """Proposes for one sequence; ``pipeline``, which must not be stateful, and ``sampler`` are the sequence's own."""

    always_accepted = False

    def __init__(
        self,
        cost: float,
        pipeline: LogitsPipeline,
        sampler: Sampler,
        *,
        prompt_length: int,
        longest: int,
        runs_again: bool,
    ) -> None:
        """``cost``: of one step of the head, in steps of the model; ``longest``: most tokens of a proposal;
        ``runs_again``: as in :class:`AdaptiveLength`, of the model."""
        self._choice = TokenChoice(pipeline, sampler, prompt_length)
        self._pace = ExpectedLength(longest, cost, runs_again=runs_again)

    def propose(self, token_ids: Sequence[int]) -> list[int]:
        """Tokens of the head; none before the hidden states of the last token but one are known.

        Raises:
            EdgegenError: a processor fails, or no token can be chosen.
        """
        return self.propose_in_batch(token_ids, 1)

    @abstractmethod
    def propose_in_batch(self, token_ids: Sequence[int], sequences: int) -> list[int]:
        """As :meth:`propose`, where a step runs ``sequences`` sequences."""

    def verified(self, proposed: int, accepted: int) -> None:
        """How much of the last proposal was accepted."""
        self._pace.settle(proposed, accepted)
