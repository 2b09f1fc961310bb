"""BreakEven: how much may be guessed, so that guesses that do not come true cost next to nothing.

An account in decode steps. A guessed token costs a part of a step, an accepted one saves a step, and every token of the
text, guessed or not, adds a little, so that guesses are tried again. No clock is asked: a text is cut in the same way
each time, and with that the last bits of float32 keys and values are the same.
"""

TOKEN_COST = 0.25
"""Decode steps that one more token in a step costs, on the safe side: 0.07-0.2 were measured with float32 keys and
values, 0.16-0.3 with int8 ones (``python -m bench.studies.speculation --costs``)."""

ALLOWANCE = 0.01
"""Decode steps that may be lost per token of the text."""

DEBT = 1.0
"""Decode steps that may be lost beyond that: the balance never falls below minus this."""

CREDIT = 4.0
"""Most that is kept of what was earned: where a text stops repeating, guesses soon stop, too."""

FIRST = 2
"""Tokens of the first guess."""


class BreakEven:
    """The account of one proposer in one text.

    Attributes:
        balance: decode steps earned and not spent.
    """

    def __init__(self, longest: int, draft_cost: float = 0.0) -> None:
        """``longest``: most tokens of a guess; ``draft_cost``: decode steps that it takes to guess one."""
        self.balance = 0.0
        self._cost = TOKEN_COST + draft_cost
        self._longest = longest
        self._length = min(FIRST, longest)
        self._seen = 0

    def affordable(self, tokens: int) -> int:
        """How many tokens a guess may have now that the text has ``tokens``."""
        if self._seen:
            self._add(ALLOWANCE * max(0, tokens - self._seen))
        self._seen = tokens
        return max(0, min(self._length, int((self.balance + DEBT) / self._cost)))

    def settle(self, guessed: int, accepted: int) -> None:
        """Of ``guessed`` tokens, the first ``accepted`` came true; if all did, the next guess is longer."""
        self._add(accepted - self._cost * guessed)
        whole = accepted == guessed
        self._length = min(self._longest, 2 * self._length) if whole else max(1, self._length // 2)

    def pay(self, steps: float) -> None:
        """For what a proposer had to do beforehand."""
        self._add(-steps)

    def _add(self, steps: float) -> None:
        self.balance = min(CREDIT, self.balance + steps)
