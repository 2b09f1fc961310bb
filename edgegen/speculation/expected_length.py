"""ExpectedLength: how many tokens a multi-token prediction head proposes, by how many of its tokens were accepted."""

from edgegen.speculation.adaptive_length import AdaptiveLength

FIRST_RATE = 0.7
"""The acceptance rate that is assumed at first."""

CHANGE = 0.1
"""How far each token that is accepted or rejected moves the rate towards 1 or 0."""

LIKELY_COST = 0.15
"""Decode steps that one more token in a step costs, in the middle of what was measured: see ``TOKEN_COST``."""


class ExpectedLength(AdaptiveLength):
    """The account of :class:`AdaptiveLength`, and proposals of the length that promises most tokens for their cost.

    A head that is right seven times in ten is wrong often, and yet two tokens of it pay: what is wrong once is no
    reason to propose less, unlike where a text stops repeating itself.
    """

    def __init__(self, longest: int, draft_cost: float, *, runs_again: bool = False) -> None:
        """As :class:`AdaptiveLength`."""
        super().__init__(longest, draft_cost, runs_again=runs_again)
        self._rate = FIRST_RATE
        self._token = LIKELY_COST
        self._cost = LIKELY_COST + draft_cost
        self._again = LIKELY_COST if runs_again else 0.0
        self._length = self._best()

    def affordable(self, tokens: int, sequences: int = 1) -> int:
        """As :class:`AdaptiveLength`; in a batch, nothing where it is not expected to pay."""
        before = self._share
        found = super().affordable(tokens, sequences)
        if self._share == before:
            return found
        self._length = self._best()
        return super().affordable(tokens, sequences)

    def settle(self, proposed: int, accepted: int) -> None:
        """Of ``proposed`` tokens, the first ``accepted`` were accepted."""
        super().settle(proposed, accepted)
        for right in (*[1.0] * accepted, *[0.0] * (accepted < proposed)):
            self._rate += CHANGE * (right - self._rate)
        self._length = self._best()

    def _best(self) -> int:
        """The length that yields most tokens for what a step is expected to cost; of a sequence alone at least 1, to
        see whether the text has changed."""
        best, length = (0.0, 1) if self._share == 1.0 else (1.0, 0)
        tokens, again, reached = 1.0, 0.0, 1.0  # reached: how probably all before are accepted
        for count in range(1, self._longest + 1):
            again += reached * (1 - self._rate) * count * self._again
            reached *= self._rate
            tokens += reached
            worth = tokens / (1 + (count * self._cost + again) / self._share)
            if worth > best:
                best, length = worth, count
        return length
