"""DraftProposer: guesses what a smaller model would say.

It draws with the very sampler, processors and random numbers of the text it guesses for, so that its choice is that of
the large model wherever the two distributions agree.
"""

from collections.abc import Sequence

import numpy as np

from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline
from edgegen.sampling.sampler import Sampler
from edgegen.speculation.adaptive_length import TOKEN_COST, AdaptiveLength
from edgegen.speculation.draft_model import DraftModel, Logits


class DraftProposer:
    """Guesses for one text; ``pipeline``, which must not be stateful, and ``sampler`` are that text's own."""

    always_accepted = False

    def __init__(
        self,
        model: DraftModel,
        pipeline: LogitsPipeline,
        sampler: Sampler,
        *,
        prompt_length: int,
        vocab_size: int,
        longest: int,
    ) -> None:
        """``vocab_size``: that of the large model's logits; ``longest``: most tokens of a guess."""
        self._model = model
        self._pipeline = pipeline
        self._sampler = sampler
        self._prompt_length = prompt_length
        self._vocab_size = vocab_size
        self._pace = AdaptiveLength(longest, model.cost)

    def propose(self, token_ids: Sequence[int]) -> list[int]:
        """What the smaller model says; nothing where its context ends, and while it still reads the prompt.

        Raises:
            EdgegenError: a processor fails, or no token can be chosen.
        """
        length = min(self._pace.affordable(len(token_ids)), self._model.max_context - len(token_ids) + 1)
        if length < 1:
            return []
        ids, unread = list(token_ids), self._model.unread(token_ids, self)
        logits = self._model.read(ids, self)
        if logits is not None:
            self._pay_for_reading(min(unread, len(ids) - self._prompt_length))
        while logits is not None:
            ids.append(self._choose(logits, ids))
            logits = self._model.read(ids, self) if len(ids) < len(token_ids) + length else None
        return ids[len(token_ids) :]

    def verified(self, proposed: int, accepted: int) -> None:
        """What became of the last proposal."""
        self._pace.settle(proposed, accepted)

    def _pay_for_reading(self, tokens: int) -> None:
        """For what the large model said meanwhile; the last token is part of the guess's price, the prompt is free."""
        self._pace.pay(max(0, tokens - 1) * TOKEN_COST * self._model.cost)

    def _choose(self, logits: Logits, ids: Sequence[int]) -> int:
        context = LogitsContext(ids, self._prompt_length, None)
        return self._sampler.sample(self._pipeline(Candidates(self._fitted(logits)), context), len(ids))

    def _fitted(self, logits: Logits) -> Logits:
        """As many as the large model has: of one vocabulary, models of several sizes pad their heads to several."""
        missing = self._vocab_size - len(logits)
        return logits[: self._vocab_size] if missing <= 0 else np.pad(logits, (0, missing), constant_values=-np.inf)
