"""LogitsSettings: the options that shape the choice of the next token, as a frozen dataclass."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgegen.errors import OptionError, one_or_list
from edgegen.options.option_set import OptionSet, documented

TokenSequence = tuple[int, ...]
"""A sequence of token ids."""

LogitsFunction = Callable[[Any, Any], Any]
"""``function(ids, logits) -> logits``: ids int64 ``[T]`` so far, read-only; logits float32 ``[vocab]``, a copy."""

CUTOFFS: Mapping[str, float] = {
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "top_n_sigma": 0.0,
    "xtc_probability": 0.0,
}
"""The cutoffs that mirostat takes the place of, each with the value that switches it off."""


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsSettings(OptionSet):
    """Which processors a pipeline has; all are off by default. Names are Hugging Face's, where it has them.

    Lists may stand for tuples, one token id for a list of one, and ``[[ids, bias], …]`` for ``sequence_bias``.
    """

    guidance_scale: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    sequence_bias: Mapping[TokenSequence, float] = field(default_factory=dict[TokenSequence, float])
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int | None = None
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: tuple[int, ...] = ()
    no_repeat_ngram_size: int = 0
    bad_words_ids: tuple[TokenSequence, ...] = ()
    min_length: int = 0
    min_new_tokens: int = 0
    forced_bos_token_id: int | None = None
    forced_eos_token_id: tuple[int, ...] = ()
    remove_invalid_values: bool = False
    exponential_decay_length_penalty: tuple[int, float] | None = None
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    logits_processor: tuple[LogitsFunction, ...] = ()
    top_n_sigma: float = 0.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    eta_cutoff: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    renormalize_logits: bool = False

    def check_vocabulary(self, size: int) -> None:
        """
        Raises:
            OptionError: token ids of these settings are not below ``size``; all of them are listed.
        """
        problems = [
            f"{name}: token id {token_id} is outside the model's vocabulary of {size}"
            for name, ids in self._token_ids().items()
            for token_id in sorted(ids)
            if token_id >= size
        ]
        if problems:
            raise OptionError(one_or_list(problems))

    def _token_ids(self) -> dict[str, set[int]]:
        """The ids that must be the vocabulary's, by option."""
        return {
            "logit_bias": set(self.logit_bias),
            "sequence_bias": {i for ids in self.sequence_bias for i in ids},
            "bad_words_ids": {i for ids in self.bad_words_ids for i in ids},
            "dry_sequence_breakers": set(self.dry_sequence_breakers),
            "suppress_tokens": set(self.suppress_tokens),
            "begin_suppress_tokens": set(self.begin_suppress_tokens),
            "forced_bos_token_id": set() if self.forced_bos_token_id is None else {self.forced_bos_token_id},
            "forced_eos_token_id": set(self.forced_eos_token_id),
        }

    def _contradictions(self) -> list[str]:
        beside = [name for name, off in CUTOFFS.items() if getattr(self, name) != off]
        problems = [f"mirostat stands in for all that cuts off: leave {', '.join(beside)} out"] if self.mirostat else []
        problems = problems if beside else []
        suppressed = set(self.suppress_tokens)
        if self.forced_bos_token_id in suppressed:
            problems.append(f"forced_bos_token_id: {self.forced_bos_token_id} is one of suppress_tokens")
        if self.forced_eos_token_id and suppressed.issuperset(self.forced_eos_token_id):
            forced = ", ".join(map(str, self.forced_eos_token_id))
            problems.append(f"forced_eos_token_id: {forced} stands in suppress_tokens, which leaves no token to force")
        return problems
