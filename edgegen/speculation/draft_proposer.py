"""DraftProposer: speculative decoding with a draft model.

It samples with the sampler, processors and random numbers of the target's sequence, so that both models choose the same
token wherever their distributions agree.
"""

from collections.abc import Sequence

import numpy as np

from edgegen.speculation.adaptive_length import TOKEN_COST, AdaptiveLength
from edgegen.speculation.draft_model import DraftModel, Logits
from edgegen.speculation.token_choice import TokenChoice


class DraftProposer:
    """Proposes for one sequence: tokens of its ``choice``, as many as ``pace`` has them."""

    always_accepted = False

    def __init__(self, model: DraftModel, choice: TokenChoice, pace: AdaptiveLength, vocab_size: int) -> None:
        """``vocab_size``: of the target model's logits."""
        self._model = model
        self._choice = choice
        self._pace = pace
        self.verified = pace.settle
        self._vocab_size = vocab_size

    def propose(self, token_ids: Sequence[int]) -> list[int]:
        """Tokens of the draft model; none beyond its context, and none while it still prefills the prompt.

        Raises:
            EdgegenError: a processor fails, or no token can be chosen.
        """
        length = min(self._pace.affordable(len(token_ids)), self._model.max_context - len(token_ids) + 1)
        if length < 1:
            return []
        ids, unread = list(token_ids), self._model.unread(token_ids, self)
        logits = self._model.read(ids, self)
        if logits is not None:
            # For tokens that the target generated meanwhile, but not for the prompt, nor for the last token.
            generated = min(unread, len(ids) - self._choice.prompt_length)
            self._pace.pay(max(0, generated - 1) * TOKEN_COST * self._model.cost)
        while logits is not None:
            ids.append(self._choice.of(self._fitted(logits), ids))
            logits = self._model.read(ids, self) if len(ids) < len(token_ids) + length else None
        return ids[len(token_ids) :]

    def _fitted(self, logits: Logits) -> Logits:
        """As many logits as the target has: models of several sizes pad the same vocabulary differently."""
        missing = self._vocab_size - len(logits)
        return logits[: self._vocab_size] if missing <= 0 else np.pad(logits, (0, missing), constant_values=-np.inf)
