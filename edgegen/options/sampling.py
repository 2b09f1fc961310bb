"""LogitsSettings: the options that shape the choice of the next token, as a frozen dataclass."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgegen.errors import OptionError, refuse_any
from edgegen.options.kinds import (
    Biases,
    Functions,
    Number,
    OneOf,
    StartAndFactor,
    Switch,
    TokenId,
    TokenIds,
    TokenSequences,
)
from edgegen.options.option import option
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

    repetition_penalty: float = option(
        1.0,
        "Penalties",
        Number(float, 0, above=True),
        "Above 1: repeat less.",
        note="Applies to the tokens of prompt and answer; 1 is off.",
        common=True,
    )
    frequency_penalty: float = option(
        0.0, "Penalties", Number(float, -2, 2), "Subtract this for each time a token was generated."
    )
    presence_penalty: float = option(
        0.0, "Penalties", Number(float, -2, 2), "Subtract this once if a token was generated."
    )
    penalty_last_n: int | None = option(
        None,
        "Penalties",
        Number(int, 0),
        "The three penalties look at the last n tokens only.",
        note="Of prompt and answer; left out, each looks at what it is defined over.",
    )
    dry_multiplier: float = option(
        0.0, "Penalties", Number(float, 0), "DRY: penalty on continuing a repetition; 0 is off."
    )
    dry_base: float = option(1.75, "Penalties", Number(float, 1), "DRY: how fast it grows with the repetition.")
    dry_allowed_length: int = option(2, "Penalties", Number(int, 1), "DRY: the shortest repetition that is penalized.")
    dry_penalty_last_n: int | None = option(
        None,
        "Penalties",
        Number(int, 0),
        "DRY looks at the last n tokens only.",
        note="Of prompt and answer; left out, at all of them.",
    )
    no_repeat_ngram_size: int = option(0, "Penalties", Number(int, 0), "No n tokens in a row twice; 0 is off.")
    forced_bos_token_id: int | None = option(
        None, "Penalties", TokenId(), "The first token behind a prompt of one token.", ()
    )
    remove_invalid_values: bool = option(
        False, "Sampling", Switch(), "Make NaN and infinite logits finite: no error.", ()
    )
    temperature: float = option(
        1.0, "Sampling", Number(float, 0, 1e30), "Divide the logits by this; 0 is greedy.", common=True, draws=True
    )
    top_k: int = option(
        0, "Sampling", Number(int, 0), "Keep the k most likely tokens; 0 keeps all.", common=True, draws=True
    )
    top_p: float = option(
        1.0,
        "Sampling",
        Number(float, 0, 1),
        "Nucleus sampling up to this probability.",
        note="Keep the most likely tokens up to this total probability; 1 is off.",
        common=True,
        draws=True,
    )
    min_p: float = option(
        0.0,
        "Sampling",
        Number(float, 0, 1),
        "Drop tokens below this share of the best.",
        note="That is, tokens less likely than this times the most likely one; 0 is off.",
        common=True,
        draws=True,
    )
    typical_p: float = option(
        1.0,
        "Sampling",
        Number(float, 0, 1, above=True),
        "Locally typical sampling: keep the most typical tokens up to this total probability.",
        note="1 is off.",
        draws=True,
    )
    epsilon_cutoff: float = option(
        0.0, "Sampling", Number(float, 0, 1, below=True), "Keep tokens at least this likely; 0 is off.", draws=True
    )
    eta_cutoff: float = option(
        0.0,
        "Sampling",
        Number(float, 0, 1, below=True),
        "Eta sampling: an epsilon cutoff that is lower where the distribution is flat.",
        note="0 is off.",
        draws=True,
    )
    top_n_sigma: float = option(
        0.0,
        "Sampling",
        Number(float, 0),
        "Keep logits within n standard deviations of the highest; 0 is off.",
        draws=True,
    )
    xtc_probability: float = option(
        0.0,
        "Sampling",
        Number(float, 0, 1),
        "XTC: how often the top choices but the last are left out; 0 is off.",
        draws=True,
    )
    xtc_threshold: float = option(
        0.1, "Sampling", Number(float, 0, 0.5), "XTC: the probability from which a token is a top choice.", draws=True
    )
    mirostat: int = option(
        0,
        "Sampling",
        OneOf((0, 2), "0 (off) or 2, not"),
        "2: mirostat version 2 in place of all cutoffs; 0 is off.",
        note="It switches off the cutoffs that are not given beside it; a cutoff that is given contradicts it.",
        draws=True,
    )
    mirostat_tau: float = option(
        5.0, "Sampling", Number(float, 0, above=True), "Mirostat: target surprise, in bits.", draws=True
    )
    mirostat_eta: float = option(
        0.1, "Sampling", Number(float, 0, 1, above=True), "Mirostat: learning rate.", draws=True
    )
    guidance_scale: float = option(
        1.0,
        "Sampling",
        Number(float, 0),
        "Classifier-free guidance: above 1 moves away from the negative prompt.",
        ("generate",),
        note="Below 1 moves towards it; 1 is off.",
    )
    renormalize_logits: bool = option(False, "Sampling", Switch(), "Turn logits into log-probabilities in the end.", ())
    logit_bias: Mapping[int, float] = option(
        dict[int, float](),
        "Penalties",
        Biases(),
        "Add BIAS to the logit of token ID; may be repeated.",
        metavar="ID=BIAS",
    )
    sequence_bias: Mapping[TokenSequence, float] = option(
        dict[TokenSequence, float](),
        "Penalties",
        Biases(sequences=True),
        "Add to the logit of a sequence's last token, behind its other tokens.",
        (),
        note="`[[ids, bias], …]` may stand for the mapping.",
    )
    dry_sequence_breakers: tuple[int, ...] = option(
        (), "Penalties", TokenIds(), "DRY: token ids that no repetition reaches across.", ()
    )
    bad_words_ids: tuple[TokenSequence, ...] = option(
        (), "Penalties", TokenSequences(), "Token sequences that are never generated.", ()
    )
    forced_eos_token_id: tuple[int, ...] = option(
        (), "Stopping", TokenIds(), "The token, or one of several, that must be the last within max_new_tokens.", ()
    )
    exponential_decay_length_penalty: tuple[int, float] | None = option(
        None,
        "Stopping",
        StartAndFactor(),
        "(start, factor): after start tokens, the end becomes likelier by the factor.",
        (),
    )
    suppress_tokens: tuple[int, ...] = option(
        (), "Penalties", TokenIds(), "Never generate this token id; may be repeated.", metavar="ID"
    )
    begin_suppress_tokens: tuple[int, ...] = option(
        (), "Penalties", TokenIds(), "Token ids that are never generated first.", ()
    )
    logits_processor: tuple[LogitsFunction, ...] = option(
        (), "Penalties", Functions(), "Your own functions: function(ids, logits) -> logits.", (), caller_only=True
    )
    min_length: int = option(0, "Stopping", Number(int, 0), "Least tokens of prompt and answer together.", ())
    min_new_tokens: int = option(0, "Stopping", Number(int, 0), "Least tokens to generate.")

    def check_vocabulary(self, size: int) -> None:
        """Refuse token ids that the vocabulary has not.

        Raises:
            OptionError: token ids of these settings are not below ``size``; all of them are listed.
        """
        problems = [
            f"{name}: token id {token_id} is outside the model's vocabulary of {size}"
            for name, ids in self._token_ids().items()
            for token_id in sorted(ids)
            if token_id >= size
        ]
        refuse_any(problems, OptionError)

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
