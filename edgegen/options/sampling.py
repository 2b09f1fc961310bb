"""Everything that shapes the choice of the next token, in one frozen value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.errors import OptionError, one_or_list
from edgegen.options.validation import boolean, functions, number, token_ids

TokenSequence = tuple[int, ...]
"""Token ids in a row."""

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
"""What mirostat stands in for, each with the value that switches it off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsSettings:
    """Which processors a pipeline has; all are off by default. Names are Hugging Face's, where it has them.

    Lists may stand for tuples, one token id for a list of one, and ``[[ids, bias], …]`` for ``sequence_bias``.

    Attributes:
        guidance_scale: above 1 moves away from the negative prompt, below 1 towards it; 1 is off.
        logit_bias: token id to what is added to its logit.
        sequence_bias: token ids in a row to what is added to the last one's logit behind the others.
        repetition_penalty: above 1, tokens of prompt and text become less likely; 1 is off.
        frequency_penalty: subtracted for each time a token was generated, from -2 to 2.
        presence_penalty: subtracted once if a token was generated, from -2 to 2.
        penalty_last_n: the three penalties look at the last n tokens of prompt and text; None as they are defined.
        dry_multiplier: strength of the penalty on continued repetitions; 0 is off.
        dry_base: how fast it grows with the repetition's length.
        dry_allowed_length: the shortest repetition that costs something.
        dry_penalty_last_n: it looks at the last n tokens of prompt and text; None at all.
        dry_sequence_breakers: token ids that no repetition reaches across.
        no_repeat_ngram_size: no n tokens in a row twice; 0 is off.
        bad_words_ids: sequences that must not be generated.
        min_length: tokens of prompt and text before the end may come.
        min_new_tokens: tokens of the text before the end may come.
        forced_bos_token_id: the token behind a prompt of one.
        forced_eos_token_id: the token, or one of them, that must be the last within ``max_new_tokens``.
        remove_invalid_values: NaN and infinite logits are made finite instead of an error.
        exponential_decay_length_penalty: ``(start, factor)``: the end becomes likelier after ``start`` tokens.
        suppress_tokens: never generated.
        begin_suppress_tokens: never generated first.
        logits_processor: functions of the caller's own, ``function(ids, logits) -> logits``.
        top_n_sigma: only logits within n standard deviations of the highest; 0 is off.
        temperature: logits are divided by it; 1 is off. Whoever draws decides that 0 is greedy.
        top_k: only the k likeliest; 0 is off.
        top_p: only the likeliest that together reach it; 1 is off.
        min_p: only those at least that many times as likely as the likeliest; 0 is off.
        typical_p: only those of typical surprise that together reach it; 1 is off.
        epsilon_cutoff: only those at least that likely; 0 is off.
        eta_cutoff: the same, lower where the distribution is flat; 0 is off.
        xtc_probability: how often the top choices but the last go; 0 is off.
        xtc_threshold: from which probability on a token is a top choice.
        mirostat: 2 steers the surprise by mirostat, version 2, in place of all that cuts off; 0 is off.
        mirostat_tau: the surprise to aim at, in bits.
        mirostat_eta: how fast it is steered.
        renormalize_logits: in the end, logits become log-probabilities.

    Raises:
        OptionError: values are out of range or contradict each other; all of them are listed.
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

    def __post_init__(self) -> None:
        self._normalize()
        if faults := self._faults() or self._contradictions():
            raise OptionError(one_or_list(faults))

    def _normalize(self) -> None:
        for name in ("dry_sequence_breakers", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens"):
            object.__setattr__(self, name, several(getattr(self, name)))
        for name in ("bad_words_ids", "exponential_decay_length_penalty", "logits_processor"):
            object.__setattr__(self, name, _tuples(getattr(self, name)))
        object.__setattr__(self, "sequence_bias", _mapping(self.sequence_bias))

    def check_vocabulary(self, size: int) -> None:
        """
        Raises:
            OptionError: token ids of these settings are not below ``size``; all of them are listed.
        """
        faults = [
            f"{name}: token id {token_id} is outside the model's vocabulary of {size}"
            for name, ids in self._token_ids().items()
            for token_id in sorted(ids)
            if token_id >= size
        ]
        if faults:
            raise OptionError(one_or_list(faults))

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

    def _faults(self) -> list[str]:
        return [*self._range_faults(), *self._list_faults()]

    def _range_faults(self) -> list[str]:
        return [
            *number("guidance_scale", self.guidance_scale, float, 0),
            *number("repetition_penalty", self.repetition_penalty, float, 0, above=True),
            *number("frequency_penalty", self.frequency_penalty, float, -2, 2),
            *number("presence_penalty", self.presence_penalty, float, -2, 2),
            *_none_or_whole("penalty_last_n", self.penalty_last_n),
            *number("dry_multiplier", self.dry_multiplier, float, 0),
            *number("dry_base", self.dry_base, float, 1),
            *number("dry_allowed_length", self.dry_allowed_length, int, 1),
            *_none_or_whole("dry_penalty_last_n", self.dry_penalty_last_n),
            *number("no_repeat_ngram_size", self.no_repeat_ngram_size, int, 0),
            *number("min_length", self.min_length, int, 0),
            *number("min_new_tokens", self.min_new_tokens, int, 0),
            *_none_or_token("forced_bos_token_id", self.forced_bos_token_id),
            *boolean("remove_invalid_values", self.remove_invalid_values),
            *number("top_n_sigma", self.top_n_sigma, float, 0),
            *number("temperature", self.temperature, float, 0, 1e30),
            *number("top_k", self.top_k, int, 0),
            *number("top_p", self.top_p, float, 0, 1),
            *number("min_p", self.min_p, float, 0, 1),
            *number("typical_p", self.typical_p, float, 0, 1, above=True),
            *number("epsilon_cutoff", self.epsilon_cutoff, float, 0, 1, below=True),
            *number("eta_cutoff", self.eta_cutoff, float, 0, 1, below=True),
            *number("xtc_probability", self.xtc_probability, float, 0, 1),
            *number("xtc_threshold", self.xtc_threshold, float, 0, 0.5),
            *([] if self.mirostat in (0, 2) else [f"mirostat: 0 (off) or 2, not {shortened(self.mirostat)}"]),
            *number("mirostat_tau", self.mirostat_tau, float, 0, above=True),
            *number("mirostat_eta", self.mirostat_eta, float, 0, 1, above=True),
            *boolean("renormalize_logits", self.renormalize_logits),
        ]

    def _list_faults(self) -> list[str]:
        return [
            *_biases("logit_bias", self.logit_bias, lambda token_id: (token_id,)),
            *_biases("sequence_bias", self.sequence_bias, lambda ids: ids),
            *token_ids("dry_sequence_breakers", self.dry_sequence_breakers),
            *_words("bad_words_ids", self.bad_words_ids),
            *token_ids("forced_eos_token_id", self.forced_eos_token_id),
            *_decay("exponential_decay_length_penalty", self.exponential_decay_length_penalty),
            *token_ids("suppress_tokens", self.suppress_tokens),
            *token_ids("begin_suppress_tokens", self.begin_suppress_tokens),
            *functions("logits_processor", self.logits_processor),
        ]

    def _contradictions(self) -> list[str]:
        beside = [name for name, off in CUTOFFS.items() if getattr(self, name) != off]
        faults = [f"mirostat stands in for all that cuts off: leave {', '.join(beside)} out"] if self.mirostat else []
        faults = faults if beside else []
        suppressed = set(self.suppress_tokens)
        if self.forced_bos_token_id in suppressed:
            faults.append(f"forced_bos_token_id: {self.forced_bos_token_id} is one of suppress_tokens")
        if self.forced_eos_token_id and suppressed.issuperset(self.forced_eos_token_id):
            forced = ", ".join(map(str, self.forced_eos_token_id))
            faults.append(f"forced_eos_token_id: {forced} stands in suppress_tokens, which leaves no token to force")
        return faults


def several(value: Any) -> Any:
    """A tuple for one id or a list of them, and for None; what is neither stays for the check."""
    if value is None:
        return ()
    return tuple(cast(list[Any], value)) if isinstance(value, list | tuple) else (value,)


def _tuples(value: Any) -> Any:
    """Tuples for lists, inner ones too."""
    return tuple(_tuples(v) for v in cast(list[Any], value)) if isinstance(value, list | tuple) else value


def _mapping(value: Any) -> Any:
    """A mapping for a list of pairs, as JSON has it."""
    pairs = _tuples(value)
    try:
        return dict(cast(Any, pairs)) if isinstance(pairs, tuple) else value
    except (TypeError, ValueError):
        return value


def _none_or_whole(name: str, value: object) -> list[str]:
    return [] if value is None else number(name, value, int, 0)


def _none_or_token(name: str, value: object) -> list[str]:
    return [] if value is None else token_ids(name, (value,))


def _biases(name: str, value: object, ids_of: Callable[[Any], object]) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{name}: a mapping of token ids to biases expected, found {shortened(value)}"]
    faults: list[str] = []
    for key, bias in cast(Mapping[object, object], value).items():
        faults += token_ids(name, ids_of(key), least=1)
        if bias != float("-inf"):
            faults += number(f"{name} of {shortened(key)}", bias, float)
    return faults


def _words(name: str, value: object) -> list[str]:
    if not isinstance(value, tuple):
        return [f"{name}: a list of lists of token ids expected, found {shortened(value)}"]
    return [fault for word in cast(tuple[object, ...], value) for fault in token_ids(name, word, least=1)]


def _decay(name: str, value: object) -> list[str]:
    if value is None:
        return []
    pair = cast(tuple[object, ...], value) if isinstance(value, tuple) else ()
    if len(pair) != 2:
        return [f"{name}: a start and a factor expected, found {shortened(cast(object, value))}"]
    start, factor = pair
    return [
        *number(f"the start of {name}", start, int, 0),
        *number(f"the factor of {name}", factor, float, 0, above=True),
    ]
