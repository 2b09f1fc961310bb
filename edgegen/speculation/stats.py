"""Speculation: how many proposed tokens of speculative decoding were accepted for an answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Speculation:
    """Proposals of one answer, forced tokens of a grammar among them.

    Attributes:
        runs: decode steps that ran a proposal.
        proposed: tokens in these proposals.
        accepted: how many of them the answer has.
    """

    runs: int = 0
    proposed: int = 0
    accepted: int = 0

    def plus(self, proposed: int, accepted: int) -> "Speculation":
        """The counts with one more proposal."""
        return Speculation(self.runs + 1, self.proposed + proposed, self.accepted + accepted)


NOTHING_PROPOSED = Speculation()
