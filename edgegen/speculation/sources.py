"""SpeculationSources: what proposes tokens for the requests of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edgegen.options.option import (
    DEFAULT_ASSISTANT_TOKENS,
    DEFAULT_LOOKUP_TOKENS,
    DEFAULT_MTP_TOKENS,
    DEFAULT_NGRAM_SIZE,
)
from edgegen.speculation.proposer import OnHiddenAt, Proposer

if TYPE_CHECKING:  # what only some models have is imported where it is used
    from edgegen.options.generation import GenerationOptions
    from edgegen.sampling import LogitsPipeline
    from edgegen.sampling.sampler import Sampler
    from edgegen.speculation.cache_proposer import CacheProposer
    from edgegen.speculation.draft_model import DraftModel
    from edgegen.speculation.expected_length import ExpectedLength
    from edgegen.speculation.mtp_head import Head
    from edgegen.speculation.mtp_proposer import MTPProposer
    from edgegen.speculation.token_choice import TokenChoice

Speculate = Literal["auto", "off", "mtp", "lookup", "draft"]
"""Source of proposed tokens; see :class:`EngineOptions`."""


@dataclass(frozen=True, slots=True)
class SpeculationSources:
    """``draft``: a draft model; ``head``: the bundle's multi-token prediction head; each None where it is not used;
    ``rollback_limit``: as of the :class:`Runner`."""

    speculate: Speculate = "auto"
    draft: DraftModel | None = None
    head: Head | None = None
    rollback_limit: int | None = None

    @property
    def drafts(self) -> bool:
        """Whether a model or a head drafts tokens."""
        return self.draft is not None or self.head is not None

    def proposers(
        self,
        options: GenerationOptions,
        pipeline: LogitsPipeline,
        sampler: Sampler,
        *,
        prompt_length: int,
        vocab_size: int,
    ) -> tuple[list[Proposer], OnHiddenAt | None]:
        """Return the proposers of one sequence, prompt lookup first, and the callback for the model's hidden states.

        ``vocab_size``: of the model's logits.
        """
        proposers, on_hidden = list[Proposer](), None
        lookup = options.prompt_lookup_num_tokens or (DEFAULT_LOOKUP_TOKENS if self.speculate == "lookup" else None)
        if lookup is not None:
            from edgegen.speculation.ngram_proposer import NGramProposer

            size = options.max_matching_ngram_size or DEFAULT_NGRAM_SIZE
            proposers.append(NGramProposer(lookup, size, runs_again=self._runs_again(lookup)))
        if self.draft is not None:
            from edgegen.speculation.adaptive_length import AdaptiveLength
            from edgegen.speculation.draft_proposer import DraftProposer
            from edgegen.speculation.token_choice import TokenChoice

            longest = options.num_assistant_tokens or DEFAULT_ASSISTANT_TOKENS
            pace = AdaptiveLength(longest, self.draft.cost, runs_again=self._runs_again(longest))
            choice = TokenChoice(pipeline, sampler, prompt_length)
            proposers.append(DraftProposer(self.draft, choice, pace, vocab_size))
        if self.head is not None:
            from edgegen.speculation.expected_length import ExpectedLength
            from edgegen.speculation.token_choice import TokenChoice

            longest = options.num_assistant_tokens or DEFAULT_MTP_TOKENS
            pace = ExpectedLength(longest, self.head.cost, runs_again=self._runs_again(longest))
            of_head = _of_head(self.head, TokenChoice(pipeline, sampler, prompt_length), pace)
            proposers.append(of_head)
            on_hidden = of_head.on_hidden
        return proposers, on_hidden

    def _runs_again(self, longest: int) -> bool:
        """Whether a rejection after a proposal of ``longest`` tokens costs those again that were accepted before it."""
        return self.rollback_limit is not None and longest > self.rollback_limit


def _of_head(head: Head, choice: TokenChoice, pace: ExpectedLength) -> MTPProposer | CacheProposer:
    """The proposer of one sequence, of either kind of head."""
    from edgegen.speculation.mtp_head import MTPHead

    if isinstance(head, MTPHead):
        from edgegen.speculation.mtp_proposer import MTPProposer

        return MTPProposer(head, choice, pace)
    from edgegen.speculation.cache_proposer import CacheProposer

    return CacheProposer(head, choice, pace)


NO_DRAFTS = SpeculationSources()
"""Prompt lookup alone, where a request asks for it."""
