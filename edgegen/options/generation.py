"""GenerationOptions: how an answer is generated, as a frozen dataclass under Hugging Face's names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict, get_args

from edgegen.errors import OptionError
from edgegen.options.hints import refuse_unknown
from edgegen.options.kinds import CheckedLater, Functions, Number, OneOf, StopPattern, Switch, Texts, TokenIds
from edgegen.options.option import (
    DEFAULT_ASSISTANT_TOKENS,
    DEFAULT_MTP_TOKENS,
    DEFAULT_NGRAM_SIZE,
    EFFORTS,
    MOST_PROPOSED,
    MOST_SEQUENCES,
    MOST_TOP_LOGPROBS,
    JsonWhitespace,
    option,
)
from edgegen.options.option_set import documented, options_of
from edgegen.options.sampling import CUTOFFS, LogitsFunction, LogitsSettings
from edgegen.options.validation import number

DEFAULT_TOP_K = 50

SPECULATION_OPTIONS = ("prompt_lookup_num_tokens", "max_matching_ngram_size", "num_assistant_tokens")
"""Options that change how fast an answer comes, not what it is: a model's files do not set them."""

HUGGING_FACE_MAX_LENGTH = 20
"""The ``max_length`` that transformers writes into every file; it is no limit that a user chose."""

StoppingFunction = Callable[[Any], Any]
"""``function(ids) -> bool``: ids int64 ``[T]`` of prompt and answer, read-only; true ends the text."""

ContextOverflow = Literal["error", "drop_oldest"]
"""Treatment of a chat that does not fit the context."""

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How hard a model is to think."""

THINKING_OPTIONS = ("thinking", "reasoning_effort", "max_thinking_tokens")
"""Options of chats alone: a model's files do not set them."""

EarlyStopping = bool | Literal["never"]
"""As in transformers."""


def _stop_problem(text: str) -> str | None:
    return None if text else "an empty string would stop at once"


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
    json_whitespace: JsonWhitespace | None
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
    context_overflow: ContextOverflow | None
    thinking: bool | None
    reasoning_effort: ReasoningEffort | None
    max_thinking_tokens: int | None
    priority: int | None


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions(LogitsSettings):
    """How an answer is generated: every option of a request.

    Defaults are Hugging Face's, but for ``max_new_tokens``.
    """

    top_k: int = DEFAULT_TOP_K
    seed: int | None = option(
        None,
        "Sampling",
        Number(int, 0, 2**64 - 1),
        "Same seed, same text.",
        note="On the same bundle and machine. Left out, each request draws a new seed.",
        default="random",
        common=True,
        draws=True,
    )
    do_sample: bool | None = option(
        None,
        "Sampling",
        Switch(),
        "Sample, or take the most likely token (greedy).",
        note="Left out, it is on if any sampling option is not at its default.",
        default="on with a sampling option",
        flag="--do-sample/--no-do-sample",
    )
    negative_prompt: Any = option(
        None,
        "Sampling",
        CheckedLater("text or token ids"),
        "What guidance moves away from.",
        ("generate",),
        default="the prompt's last token",
        metavar="TEXT",
        caller_only=True,
    )
    max_new_tokens: int = option(
        256,
        "Stopping",
        Number(int, 1),
        "Most tokens to generate.",
        note="Clipped to what the model's context leaves.",
        short="-n",
        common=True,
    )
    max_length: int | None = option(
        None,
        "Stopping",
        Number(int, 1),
        "Most tokens of prompt and answer; the smaller limit counts.",
        note="Given without max_new_tokens, it is the only limit.",
    )
    max_time: float | None = option(
        None,
        "Stopping",
        Number(float, 0, above=True),
        "Stop after so many seconds.",
        note="The token that is being computed still counts; seconds in which the computer sleeps do not.",
        metavar="SECONDS",
    )
    eos_token_id: tuple[int, ...] | None = option(
        None,
        "Stopping",
        TokenIds(),
        "Stop at this token id; may be repeated.",
        note="With an empty list, no such id stops it.",
        default="the bundle's",
        metavar="ID",
    )
    stop_strings: tuple[str, ...] = option(
        (), "Stopping", Texts(_stop_problem), "Stop before this text; may be repeated.", metavar="TEXT", common=True
    )
    stop_token_ids: tuple[int, ...] = option(
        (),
        "Stopping",
        TokenIds(),
        "Stop at this token id too; may be repeated.",
        note="Beside eos_token_id.",
        metavar="ID",
    )
    stop_regex: str | None = option(
        None,
        "Stopping",
        StopPattern(),
        "Stop where this regular expression matches.",
        note="Python's syntax, without lookaround, backreferences, conditional, atomic and possessive parts.",
        metavar="PATTERN",
        common=True,
    )
    include_stop_str_in_output: bool = option(
        False, "Stopping", Switch(), "Keep the stop string or the match in the text."
    )
    stopping_criteria: tuple[StoppingFunction, ...] = option(
        (),
        "Stopping",
        Functions(alone=True),
        "Your own functions: function(ids) -> bool, asked after each token.",
        (),
        caller_only=True,
    )
    response_format: Any = option(
        None,
        "Constrained output",
        CheckedLater("OpenAI's format, a pydantic class or a constraint"),
        "What the text must be, as OpenAI's API says it.",
        (),
        note="`{'type': 'json_object'}`, or a `json_schema`.",
        caller_only=True,
    )
    json_whitespace: JsonWhitespace = option(
        "compact",
        "Constrained output",
        OneOf(get_args(JsonWhitespace), "'compact', 'flexible' or 'any' expected, found"),
        "Space in JSON that a schema or a tool constrains.",
        note="`compact`: none. `flexible`: what models write by themselves, one space after commas and colons, or "
        "indented lines. `any`: all that JSON allows, without a bound. A `JsonSchema` made in Python keeps its own.",
    )
    grammar: Any = option(
        None,
        "Constrained output",
        CheckedLater("text of a grammar, or a constraint"),
        "A Lark or GBNF grammar that the text must keep to.",
        (),
        note="On the command line: one of `--json-schema`, `--regex`, `--grammar` and `--choice`.",
        caller_only=True,
    )
    num_return_sequences: int = option(
        1,
        "Several answers",
        Number(int, 1, MOST_SEQUENCES),
        "Number of answers.",
        ("generate",),
        note="Each is sampled with a seed of its own, or they are the best beams. Where a constraint leaves fewer "
        "beams, there are fewer answers.",
        common=True,
    )
    num_beams: int = option(
        1,
        "Several answers",
        Number(int, 1, MOST_SEQUENCES),
        "Beam search with so many beams.",
        ("generate",),
        note="It does not sample; 1 is off.",
        common=True,
    )
    length_penalty: float = option(
        1.0,
        "Several answers",
        Number(float, -20, 20),
        "Beam search: above 0 favours long answers.",
        ("generate",),
        note="A beam's score is divided by its length to this power.",
    )
    early_stopping: EarlyStopping = option(
        False,
        "Several answers",
        OneOf((False, True, "never"), "True, False or 'never' expected, found"),
        "Beam search: when it may end.",
        ("generate",),
        note="True: with as many answers as beams; False: once a better one is unlikely; never: once it is impossible.",
        default="false",
    )
    prompt_lookup_num_tokens: int | None = option(
        None,
        "Speed and memory",
        Number(int, 1, MOST_PROPOSED),
        "Prompt lookup: propose so many tokens where the text repeats itself.",
        ("generate", "chat"),
        note="Speculative decoding: the proposals are verified in one step, and the text stays the model's own.",
        default="off",
    )
    max_matching_ngram_size: int | None = option(
        None,
        "Speed and memory",
        Number(int, 2, MOST_PROPOSED),
        "Prompt lookup: the longest n-gram to look for.",
        ("generate", "chat"),
        note="Then for shorter ones, down to 2.",
        default=str(DEFAULT_NGRAM_SIZE),
    )
    num_assistant_tokens: int | None = option(
        None,
        "Speed and memory",
        Number(int, 1, MOST_PROPOSED),
        "Draft model or multi-token prediction: most tokens of a proposal.",
        ("generate", "chat"),
        default=f"{DEFAULT_ASSISTANT_TOKENS}, with multi-token prediction {DEFAULT_MTP_TOKENS}",
    )
    context_overflow: ContextOverflow = option(
        "error",
        "Prompt",
        OneOf(("error", "drop_oldest"), "'error' or 'drop_oldest' expected, found"),
        "What to do with a chat that does not fit the context.",
        ("generate", "chat"),
        note="`drop_oldest` leaves out the oldest turns, keeps the system message, and keeps room for the answer: "
        "`max_new_tokens`, or a quarter of the context if that is less. The result says how many `dropped_messages`.",
    )
    thinking: bool | None = option(
        None,
        "Prompt",
        Switch(),
        "Have the model think before it answers, or not.",
        note="For chats. An error where the chat template has no switch, unless it is what the model does anyway.",
        default="the model's own",
        flag="--think/--no-think",
    )
    reasoning_effort: ReasoningEffort | None = option(
        None,
        "Prompt",
        OneOf(EFFORTS, "'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max' expected, found"),
        "How hard the model is to think.",
        note="For chats. A level that the chat template does not know is the nearest that it knows; where it can only "
        "be switched, `none` is off and all others are on. See [Thinking](generating.md#thinking).",
        default="the model's own",
    )
    max_thinking_tokens: int | None = option(
        None,
        "Prompt",
        Number(int, 0),
        "Most tokens of thinking; then the answer begins.",
        note="For chats. 0 ends the thoughts at once. A character of several tokens is finished first.",
        flag="--max-think",
        metavar="N",
        default="no limit",
    )
    priority: int = option(
        0,
        "Speed and memory",
        Number(int, -(2**31), 2**31 - 1),
        "Which request is admitted and prefilled first: the lower.",
        (),
        note="A server accepts 0 and more, or any with --allow-priority.",
    )
    logprobs: bool = option(
        False,
        "Output",
        Switch(),
        "With --json: the log-probability of each token.",
        ("generate",),
        note="As the model gives it, before any sampling option.",
    )
    top_logprobs: int = option(
        0,
        "Output",
        Number(int, 0, MOST_TOP_LOGPROBS),
        "With --json: log-probabilities of so many alternatives.",
        ("generate", "score"),
        note="It asks for logprobs.",
    )

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
        if None not in (self.thinking, self.reasoning_effort) and self.thinking != (self.reasoning_effort != "none"):
            problems.append(
                f"thinking: {self.thinking} contradicts reasoning_effort {self.reasoning_effort!r}: "
                "leave one or the other out"
            )
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
        """Return the problems of options that speculative decoding does not go with."""
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
        beams, and ``num_beams`` that of sampling. ``max_length`` without ``max_new_tokens`` is the only limit, and
        ``max_new_tokens`` takes the place of a ``max_length`` of these options, as in transformers.
        ``mirostat`` switches off the cutoffs that the caller does not give beside it.

        Raises:
            OptionError: a name is unknown, a value is wrong, or ``do_sample=False`` stands beside a sampling option.
        """
        refuse_unknown(changes, [f.name for f in fields(self)])
        values = {name: value for name, value in changes.items() if value is not None}
        given = [name for name in values if name in SAMPLING_OPTIONS]
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
        elif "max_new_tokens" in values and "max_length" not in values:
            values["max_length"] = None
        if values.get("mirostat"):
            values = {**CUTOFFS, **values}
        return replace(self, **values)

    def without_thinking(self) -> "GenerationOptions":
        """These options for a text that is no chat."""
        return replace(self, **dict.fromkeys(THINKING_OPTIONS))

    def to_json(self) -> dict[str, Any]:
        """The options in effect as plain JSON values, by name; those that are None are left out.

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

        As everywhere else, a file that does not say ``do_sample`` means greedy. A ``max_length`` that no user chose, or
        of the model's context, ``max_context``, limits nothing.
        """
        known = {f.name for f in fields(cls)} - {*CALLER_ONLY, *SPECULATION_OPTIONS, *THINKING_OPTIONS}
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


SAMPLING_OPTIONS = tuple(option.name for option in options_of(GenerationOptions) if option.draws)
"""Options that only matter when tokens are sampled: any of them asks for that."""

CALLER_ONLY = tuple(option.name for option in options_of(GenerationOptions) if option.caller_only)
"""Options that no file has and that are no plain values."""


def _bias(value: float) -> float | str:
    return "-inf" if value == float("-inf") else value
