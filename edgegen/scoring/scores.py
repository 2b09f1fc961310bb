"""Score and Perplexity: how likely a model finds a given text."""

import math
from dataclasses import dataclass

from edgegen.sampling.logprobs import TokenLogprob


@dataclass(frozen=True, slots=True, repr=False)
class Score:
    """A continuation of a context, as the model sees it.

    Attributes:
        token_ids: the continuation's.
        logprobs: of each of them, given the context and those before it.
        is_greedy: whether greedy decoding, which takes the likeliest token each time, would have said just this.
        complete: False if scoring was cancelled before the last token; then the rest is of those that were scored.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    is_greedy: bool
    complete: bool = True

    def __repr__(self) -> str:
        return f"Score({len(self.token_ids)} tokens, logprob={self.logprob:.4g}, is_greedy={self.is_greedy})"

    @property
    def logprob(self) -> float:
        """The natural logarithm of the whole continuation's probability: by the chain rule, the sum over its tokens."""
        return math.fsum(entry.logprob for entry in self.logprobs)

    @property
    def perplexity(self) -> float:
        """e to the mean negative log-probability of a token: 1 for what is certain; NaN without a token."""
        return perplexity_of(-self.logprob, len(self.logprobs))


@dataclass(frozen=True, slots=True)
class Perplexity:
    """The perplexity of a text.

    Attributes:
        nll_per_token: mean negative log-likelihood, in nats (divide by ln 2 for bits).
        tokens: how many tokens were scored; a text's first is not.
        window, stride: tokens the model saw at once, and by how many the next window was further on.
        complete: False if scoring was cancelled before the end of the text.
    """

    nll_per_token: float
    tokens: int
    window: int
    stride: int
    complete: bool = True

    @property
    def perplexity(self) -> float:
        """e to ``nll_per_token``."""
        return perplexity_of(self.nll_per_token, 1)


def perplexity_of(nll: float, tokens: int) -> float:
    """Perplexity of ``tokens`` tokens with a negative log-likelihood ``nll``; infinite where no float is as large."""
    if not tokens:
        return math.nan
    try:
        return math.exp(nll / tokens)
    except OverflowError:
        return math.inf
