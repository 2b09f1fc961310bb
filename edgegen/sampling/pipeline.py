"""LogitsPipeline: applies the logits processors in one fixed order.

The order of transformers (``GenerationMixin._get_logits_processor``). Processors that only llama.cpp or OpenAI has are
placed next to the others as in llama.cpp's chain:

1. at every step: guidance, logit bias, sequence bias, repetition penalty, frequency and presence penalties, DRY,
   no-repeat n-gram, bad words, least lengths, forced tokens, invalid values, exponential decay, suppressed tokens, then
   the caller's own, and the limit of thoughts;
2. when sampling: top-n-sigma, temperature, then truncation: top-k, top-p, min-p, typical-p, epsilon, eta and XTC,
   or mirostat in place of all these;
3. renormalization.

llama.cpp itself has the temperature last; transformers' place for it counts here. Top-n-sigma does not depend on it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Self

import numpy as np

from edgegen.errors import LogitsError, OptionLogitsError
from edgegen.options.sampling import LogitsSettings
from edgegen.sampling.candidates import NOT_FINITE, Candidates
from edgegen.sampling.processor import LogitsContext, LogitsProcessor
from edgegen.sampling.processors.distribution import (
    CustomProcessor,
    Guidance,
    RemoveInvalidValues,
    Renormalization,
    Temperature,
)
from edgegen.sampling.processors.masks import (
    BadWords,
    ForcedBos,
    ForcedEos,
    MinLength,
    MinNewTokens,
    SequenceBias,
    SuppressTokens,
    SuppressTokensAtBegin,
)
from edgegen.sampling.processors.mirostat import Mirostat
from edgegen.sampling.processors.penalties import (
    Dry,
    ExponentialDecayLengthPenalty,
    FrequencyPenalty,
    NoRepeatNGram,
    RepetitionPenalty,
)
from edgegen.sampling.processors.truncation import EpsilonCutoff, EtaCutoff, MinP, TopK, TopNSigma, TopP, TypicalP, Xtc


class LogitsPipeline:
    """Applies its processors one after the other; itself a processor.

    Attributes:
        stateful: whether it serves one sequence only, at each length once: no rejected proposals, no beams.
    """

    def __init__(self, processors: Sequence[LogitsProcessor] = ()) -> None:
        self.processors = tuple(processors)
        self.stateful = any(getattr(process, "stateful", False) for process in self.processors)
        self._repairs = any(isinstance(process, RemoveInvalidValues) for process in self.processors)

    @classmethod
    def from_settings(
        cls,
        settings: LogitsSettings,
        *,
        do_sample: bool,
        eos_token_ids: Collection[int] = (),
        max_new_tokens: int | None = None,
        seed: int = 0,
        first: Sequence[LogitsProcessor] = (),
        last: Sequence[LogitsProcessor] = (),
    ) -> Self:
        """``first``, and then the processors these settings ask for, in order; the defaults ask for none.

        Only guidance, which compares whole rows, goes before ``first``, and only those of sampling go after ``last``.

        ``do_sample=False`` leaves out those of sampling. ``eos_token_ids`` are what least lengths mask and the decay
        makes likelier, ``max_new_tokens`` is where the end is forced, ``seed`` decides XTC.

        Raises:
            OptionError: a value is out of its range.
        """
        guidance = [Guidance(settings.guidance_scale)] if settings.guidance_scale != 1.0 else []
        processors = [*guidance, *first, *_at_every_step(settings, eos_token_ids, max_new_tokens), *last]
        if do_sample:
            processors += _when_sampling(settings, seed)
        if settings.renormalize_logits:
            processors.append(Renormalization())
        return cls(processors)

    def state(self, token_ids: Sequence[int]) -> dict[str, float]:
        """The state that processors have learnt from ``token_ids``, the whole sequence, by name; for :meth:`resume`."""
        return {
            type(process).__name__: process.settle(token_ids)
            for process in self.processors
            if isinstance(process, Mirostat)
        }

    def resume(self, state: Mapping[str, float]) -> None:
        """Restore the state of another pipeline's processors."""
        for process in self.processors:
            if isinstance(process, Mirostat):
                process.mu = state.get(type(process).__name__, process.mu)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        """The candidates that are left, with the logits they got.

        Raises:
            LogitsError: a logit of the model is NaN or plus infinity.
            OptionLogitsError: a processor made one so, or all are masked.
        """
        if not self.processors:
            return candidates
        if not self._repairs:
            candidates.best()  # processors compare, and comparing would hide a NaN
            if context.unconditional is not None:
                Candidates(context.unconditional).best()
        try:
            # Masks may overflow, and so may what is as good as certain: an infinity is noticed at the end.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                for process in self.processors:
                    candidates = process(candidates, context)
            candidates.check()
        except LogitsError as error:
            if str(error) != NOT_FINITE:  # a processor's own
                raise
            raise OptionLogitsError(
                "the request's options make logits NaN or infinite: give smaller penalties, biases or guidance_scale"
            ) from None
        return candidates


def _at_every_step(
    settings: LogitsSettings, eos: Collection[int], max_new_tokens: int | None
) -> Iterator[LogitsProcessor]:
    if settings.logit_bias:
        yield SequenceBias({(token_id,): bias for token_id, bias in settings.logit_bias.items()})
    if settings.sequence_bias:
        yield SequenceBias(settings.sequence_bias)
    if settings.penalty_last_n != 0:
        if settings.repetition_penalty != 1.0:
            yield RepetitionPenalty(settings.repetition_penalty, settings.penalty_last_n)
        if settings.frequency_penalty != 0.0 or settings.presence_penalty != 0.0:
            yield FrequencyPenalty(settings.frequency_penalty, settings.presence_penalty, settings.penalty_last_n)
    if settings.dry_multiplier != 0.0 and settings.dry_penalty_last_n != 0:
        yield Dry(
            settings.dry_multiplier,
            settings.dry_base,
            settings.dry_allowed_length,
            settings.dry_penalty_last_n,
            settings.dry_sequence_breakers,
        )
    if settings.no_repeat_ngram_size:
        yield NoRepeatNGram(settings.no_repeat_ngram_size)
    if settings.bad_words_ids:
        yield BadWords(settings.bad_words_ids, eos)
    if settings.min_length and eos:
        yield MinLength(settings.min_length, eos)
    if settings.min_new_tokens and eos:
        yield MinNewTokens(settings.min_new_tokens, eos)
    if settings.forced_bos_token_id is not None:
        yield ForcedBos(settings.forced_bos_token_id)
    if settings.forced_eos_token_id and max_new_tokens is not None:
        yield ForcedEos(settings.forced_eos_token_id, max_new_tokens)
    if settings.remove_invalid_values:
        yield RemoveInvalidValues()
    if settings.exponential_decay_length_penalty is not None and eos:
        yield ExponentialDecayLengthPenalty(*settings.exponential_decay_length_penalty, eos)
    if settings.suppress_tokens:
        yield SuppressTokens(settings.suppress_tokens)
    if settings.begin_suppress_tokens:
        forced = settings.forced_bos_token_id is not None
        yield SuppressTokensAtBegin(settings.begin_suppress_tokens, after_forced_bos=forced)
    for function in settings.logits_processor:
        yield CustomProcessor(function)


def _when_sampling(settings: LogitsSettings, seed: int) -> Iterator[LogitsProcessor]:
    if settings.top_n_sigma > 0.0:
        yield TopNSigma(settings.top_n_sigma)
    if settings.temperature != 1.0:
        yield Temperature(settings.temperature)
    if settings.top_k:
        yield TopK(settings.top_k)
    if settings.top_p < 1.0:
        yield TopP(settings.top_p)
    if settings.min_p > 0.0:
        yield MinP(settings.min_p)
    if settings.typical_p < 1.0:
        yield TypicalP(settings.typical_p)
    if settings.epsilon_cutoff > 0.0:
        yield EpsilonCutoff(settings.epsilon_cutoff)
    if settings.eta_cutoff > 0.0:
        yield EtaCutoff(settings.eta_cutoff)
    if settings.xtc_probability > 0.0:
        yield Xtc(settings.xtc_probability, settings.xtc_threshold, seed)
    if settings.mirostat:
        yield Mirostat(settings.mirostat_tau, settings.mirostat_eta)
