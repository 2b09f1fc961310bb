"""AdaptiveLength: how many tokens speculative decoding proposes, so that rejected proposals cost next to nothing.

An account in decode steps. A proposed token costs a part of a step, an accepted one saves a step, a rejection may cost
the accepted ones again, and every token of the answer adds a little, so that proposals are tried again. No clock is
used: the same answer is always chunked in the same way, so the last bits of a float32 KV cache are the same.
"""

TOKEN_COST = 0.25
"""Decode steps that one more token in a step costs, on the safe side: 0.07-0.2 were measured with a float32 KV cache,
0.16-0.3 with int8 (``python -m bench.studies.speculation --costs``)."""

ALLOWANCE = 0.01
"""Decode steps that may be lost per token."""

DEBT = 1.0
"""Decode steps that may be lost beyond that: the balance stays above minus this."""

CREDIT = 4.0
"""The most that is saved up: when a text stops repeating, proposals soon stop, too."""

FIRST = 2
"""Tokens of the first proposal."""


class AdaptiveLength:
    """The account of one proposer for one sequence.

    Attributes:
        balance: decode steps earned and not spent.
    """

    def __init__(self, longest: int, draft_cost: float = 0.0, *, runs_again: bool = False) -> None:
        """
        Args:
            longest: most tokens of a proposal.
            draft_cost: decode steps that it takes to draft one.
            runs_again: whether the tokens accepted before a rejected one are run again, as a model with fixed states
                has to.
        """
        self.balance = 0.0
        self._token = TOKEN_COST
        self._share = 1.0
        self._again = TOKEN_COST if runs_again else 0.0
        self._cost = TOKEN_COST + draft_cost
        self._longest = longest
        self._length = min(FIRST, longest)
        self._seen = 0

    def affordable(self, tokens: int, sequences: int = 1) -> int:
        """How many tokens a proposal may have for a sequence of ``tokens``, in a batch of ``sequences``.

        What a token costs there is counted in the sequence's share of a step: a step of several sequences takes longer
        than one, and each has so many tokens from it.
        """
        self._share = (1 + self._token * (sequences - 1)) / sequences
        if self._seen:
            self._add(ALLOWANCE * max(0, tokens - self._seen))
        self._seen = tokens
        return max(0, min(self._length, int((self.balance + DEBT) * self._share / (self._cost + self._again))))

    def settle(self, proposed: int, accepted: int) -> None:
        """Of ``proposed`` tokens, the first ``accepted`` were accepted; if all were, the next proposal is longer."""
        whole = accepted == proposed
        again = 0 if whole else self._again * (accepted + 1)
        self._add(accepted - (self._cost * proposed + again) / self._share)
        self._length = min(self._longest, 2 * self._length) if whole else max(1, self._length // 2)

    def pay(self, steps: float) -> None:
        """Pay for what a proposer had to compute beforehand."""
        self._add(-steps)

    def _add(self, steps: float) -> None:
        self.balance = min(CREDIT, self.balance + steps)
