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
    from edgegen.speculation.draft_model import DraftModel
    from edgegen.speculation.mtp_head import MTPHead

Speculate = Literal["auto", "off", "mtp", "lookup", "draft"]
"""What is to propose tokens; see :class:`EngineOptions`."""


@dataclass(frozen=True, slots=True)
class SpeculationSources:
    """``draft``: a draft model; ``head``: the bundle's multi-token prediction head; each None where it is not used."""

    speculate: Speculate = "auto"
    draft: DraftModel | None = None
    head: MTPHead | None = None

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
        runs_again: bool,
    ) -> tuple[list[Proposer], OnHiddenAt | None]:
        """Those of one sequence, prompt lookup first; and what is to hear the model's hidden states.

        ``vocab_size``: that of the model's logits; ``runs_again``: as in :class:`AdaptiveLength`.
        """
        proposers, on_hidden = list[Proposer](), None
        lookup = options.prompt_lookup_num_tokens or (DEFAULT_LOOKUP_TOKENS if self.speculate == "lookup" else None)
        if lookup is not None:
            from edgegen.speculation.ngram_proposer import NGramProposer

            size = options.max_matching_ngram_size or DEFAULT_NGRAM_SIZE
            proposers.append(NGramProposer(lookup, size, runs_again=runs_again))
        if self.draft is not None:
            from edgegen.speculation.draft_proposer import DraftProposer

            drafted = DraftProposer(
                self.draft,
                pipeline,
                sampler,
                prompt_length=prompt_length,
                vocab_size=vocab_size,
                longest=options.num_assistant_tokens or DEFAULT_ASSISTANT_TOKENS,
                runs_again=runs_again,
            )
            proposers.append(drafted)
        if self.head is not None and options.use_cache:
            from edgegen.speculation.mtp_proposer import MTPProposer

            of_head = MTPProposer(
                self.head,
                pipeline,
                sampler,
                prompt_length=prompt_length,
                longest=options.num_assistant_tokens or DEFAULT_MTP_TOKENS,
                runs_again=runs_again,
            )
            proposers.append(of_head)
            on_hidden = of_head.on_hidden
        return proposers, on_hidden


NO_DRAFTS = SpeculationSources()
"""Prompt lookup alone, where a request asks for it."""
