"""GenerationOptions: how an answer is generated, as a frozen dataclass under Hugging Face's names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict

from edgegen.errors import OptionError
from edgegen.options.hints import refuse_unknown
from edgegen.options.option_set import documented
from edgegen.options.sampling import CUTOFFS, LogitsFunction, LogitsSettings
from edgegen.options.table import GENERATION_OPTIONS
from edgegen.options.validation import number

DEFAULT_TOP_K = 50

SAMPLING_OPTIONS = tuple(option.name for option in GENERATION_OPTIONS if option.draws)
"""Options that only matter when tokens are sampled: any of them asks for that."""

CALLER_ONLY = tuple(option.name for option in GENERATION_OPTIONS if option.caller_only)
"""Options that no file has and that are no plain values."""

SPECULATION_OPTIONS = ("prompt_lookup_num_tokens", "max_matching_ngram_size", "num_assistant_tokens")
"""Options that change how fast an answer comes, not what it is: a model's files do not set them."""

HUGGING_FACE_MAX_LENGTH = 20
"""The ``max_length`` that transformers writes into every file; nobody means it."""

StoppingFunction = Callable[[Any], Any]
"""``function(ids) -> bool``: ids int64 ``[T]`` of prompt and answer, read-only; true ends the text."""

ContextOverflow = Literal["error", "drop_oldest"]
"""What becomes of a chat that does not fit the context."""

EarlyStopping = bool | Literal["never"]
"""As in transformers."""


class GenerationOverrides(TypedDict, total=False):
    """Keyword arguments of ``generate``: every field of :class:`GenerationOptions`; None leaves it out."""

    max_new_tokens: int | None
    max_length: int | None
    max_time: float | None
    do_sample: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    epsilon_cutoff: float | None
    eta_cutoff: float | None
    top_n_sigma: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    penalty_last_n: int | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: Sequence[int] | None
    no_repeat_ngram_size: int | None
    bad_words_ids: Sequence[Sequence[int]] | None
    logit_bias: Mapping[int, float] | None
    sequence_bias: Mapping[tuple[int, ...], float] | Sequence[Any] | None
    min_length: int | None
    min_new_tokens: int | None
    forced_bos_token_id: int | None
    forced_eos_token_id: int | Sequence[int] | None
    remove_invalid_values: bool | None
    exponential_decay_length_penalty: tuple[int, float] | None
    suppress_tokens: Sequence[int] | None
    begin_suppress_tokens: Sequence[int] | None
    logits_processor: Sequence[LogitsFunction] | None
    guidance_scale: float | None
    negative_prompt: str | Sequence[int] | None
    num_beams: int | None
    length_penalty: float | None
    early_stopping: EarlyStopping | None
    num_return_sequences: int | None
    logprobs: bool | None
    top_logprobs: int | None
    renormalize_logits: bool | None
    response_format: Any
    grammar: Any
    seed: int | None
    eos_token_id: int | list[int] | tuple[int, ...] | None
    stop_strings: str | list[str] | tuple[str, ...] | None
    stop_token_ids: int | Sequence[int] | None
    stop_regex: str | None
    include_stop_str_in_output: bool | None
    stopping_criteria: StoppingFunction | Sequence[StoppingFunction] | None
    prompt_lookup_num_tokens: int | None
    max_matching_ngram_size: int | None
    num_assistant_tokens: int | None
    use_cache: bool | None
    context_overflow: ContextOverflow | None
    priority: int | None


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions(LogitsSettings):
    """How an answer is generated: every option of a request.

    Defaults are Hugging Face's, but for ``max_new_tokens``.
    """

    max_new_tokens: int = 256
    max_length: int | None = None
    max_time: float | None = None
    do_sample: bool | None = None
    top_k: int = DEFAULT_TOP_K
    seed: int | None = None
    negative_prompt: Any = None
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    num_return_sequences: int = 1
    logprobs: bool = False
    top_logprobs: int = 0
    eos_token_id: tuple[int, ...] | None = None
    stop_strings: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    stop_regex: str | None = None
    include_stop_str_in_output: bool = False
    stopping_criteria: tuple[StoppingFunction, ...] = ()
    response_format: Any = None
    grammar: Any = None
    prompt_lookup_num_tokens: int | None = None
    max_matching_ngram_size: int | None = None
    num_assistant_tokens: int | None = None
    use_cache: bool = True
    context_overflow: ContextOverflow = "error"
    priority: int = 0

    def _resolve(self) -> None:
        if self.do_sample is None:
            asked = any(getattr(self, f.name) != f.default for f in fields(self) if f.name in SAMPLING_OPTIONS)
            object.__setattr__(self, "do_sample", asked)
        if self.temperature == 0:
            object.__setattr__(self, "do_sample", False)
        if self.mirostat and self.top_k == DEFAULT_TOP_K:
            object.__setattr__(self, "top_k", 0)  # the default gives way, a value of the caller's own contradicts
        if self.top_logprobs:
            object.__setattr__(self, "logprobs", True)

    def _problems(self) -> list[str]:
        twice = self.response_format is not None and self.grammar is not None
        return [
            *LogitsSettings._problems(self),
            *(["response_format and grammar both say what the text must be: leave one out"] if twice else []),
        ]

    def _token_ids(self) -> dict[str, set[int]]:
        return LogitsSettings._token_ids(self) | {"stop_token_ids": set(self.stop_token_ids)}

    def _contradictions(self) -> list[str]:
        problems = LogitsSettings._contradictions(self)
        if self.negative_prompt is not None and self.guidance_scale == 1:
            problems.append("negative_prompt is for guidance: give a guidance_scale above 1 with it, or leave it out")
        if self.max_matching_ngram_size is not None and self.prompt_lookup_num_tokens is None:
            problems.append("max_matching_ngram_size is for prompt lookup: give prompt_lookup_num_tokens with it")
        problems += self._speculation_problems()
        if self.num_beams > 1:
            if self.do_sample:
                problems.append("num_beams: a beam search draws nothing: leave it, or the options of sampling, out")
            if self.guidance_scale != 1:
                problems.append("num_beams: guidance goes with sampling or greedy: leave it, or guidance_scale, out")
            if self.logprobs:
                problems.append("num_beams: log-probabilities are kept of single answers: leave it, or logprobs, out")
            if self.num_return_sequences > self.num_beams:
                problems.append(f"num_return_sequences: there are no more answers than the {self.num_beams} num_beams")
        elif self.num_return_sequences > 1 and not self.do_sample:
            problems.append("num_return_sequences: without sampling or num_beams all answers would be the same")
        return problems

    def _speculation_problems(self) -> list[str]:
        """What speculative decoding does not go with."""
        proposing = [name for name in SPECULATION_OPTIONS if getattr(self, name) is not None]
        others = [
            *(["num_beams"] if self.num_beams > 1 else []),
            *(["guidance_scale"] if self.guidance_scale != 1 else []),
            *(["mirostat"] if self.mirostat else []),
        ]
        if not proposing or not others:
            return []
        return [
            f"{proposing[0]}: speculative decoding does not go with {' or '.join(others)}: leave one or the other out"
        ]

    def override(self, changes: Mapping[str, Any]) -> "GenerationOptions":
        """These options with ``changes``, as a caller means them; None is no change.

        Any sampling option implies ``do_sample=True``, but ``temperature=0`` is greedy. Sampling takes the place of
        beams, and ``num_beams`` that of sampling. ``max_length`` without ``max_new_tokens`` is the only limit.
        ``mirostat`` switches off the cutoffs that the caller does not give beside it.

        Raises:
            OptionError: a name is unknown, a value is wrong, or ``do_sample=False`` stands beside a sampling option.
        """
        refuse_unknown(changes, [f.name for f in fields(self)])
        values = {name: value for name, value in changes.items() if value is not None}
        given = [name for name in SAMPLING_OPTIONS if name in values]
        if given and values.get("temperature") != 0:
            if values.get("do_sample") is False:
                raise OptionError(f"do_sample=False contradicts {', '.join(given)}: leave one or the other out")
            values["do_sample"] = True
        # Of beams and sampling, what these options already say gives way to what is asked for now.
        if values.get("do_sample") is True:
            values.setdefault("num_beams", 1)
        elif values.get("num_beams", 1) != 1:
            values.setdefault("do_sample", False)
        if not number("max_length", values.get("max_length"), int, 1):
            values.setdefault("max_new_tokens", values["max_length"])  # or the default for new ones would count
        if values.get("mirostat"):
            values = {**CUTOFFS, **values}
        return replace(self, **values)

    def to_json(self) -> dict[str, Any]:
        """The options in effect as plain JSON values, by name; those that are none are left out.

        A bias of minus infinity, which JSON has not, is the text ``"-inf"``.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in CALLER_ONLY}
        return values | {
            "logit_bias": {token_id: _bias(bias) for token_id, bias in self.logit_bias.items()},
            "sequence_bias": [[list(ids), _bias(bias)] for ids, bias in self.sequence_bias.items()],
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], max_context: int | None = None) -> "GenerationOptions":
        """From a ``generation_config.json``: the keys that are options here; all others are left alone.

        As everywhere else, a file that does not say ``do_sample`` means greedy. A ``max_length`` that nobody chose, or
        of the model's context, ``max_context``, limits nothing.
        """
        known = {f.name for f in fields(cls)} - {*CALLER_ONLY, *SPECULATION_OPTIONS}
        given: dict[str, Any] = {"do_sample": False}
        given |= {name: value for name, value in config.items() if name in known and value is not None}
        if given.get("num_beams", 1) != 1:
            given["do_sample"] = False
        options = cls(**given)
        length = options.max_length
        if length == HUGGING_FACE_MAX_LENGTH or (
            length is not None and max_context is not None and length >= max_context
        ):
            return replace(options, max_length=None)
        return options


def _bias(value: float) -> float | str:
    return "-inf" if value == float("-inf") else value
