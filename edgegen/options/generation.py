"""GenerationOptions and EngineOptions: frozen, validated, under Hugging Face's names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, Literal, TypedDict

from edgegen.bundle.manifest import KVDtype
from edgegen.errors import OptionError, did_you_mean, one_or_list
from edgegen.options.sampling import CUTOFFS, LogitsFunction, LogitsSettings, several
from edgegen.options.validation import boolean, functions, number, token_ids
from edgegen.stop_regex.regex import StopRegex

DEFAULT_TOP_K = 50

SAMPLING_OPTIONS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "seed",
)
"""Options that only matter when tokens are drawn: any of them asks for that."""

_INSTEAD = {
    "num_beam_groups": "diverse beam search is not supported: use num_beams, or num_return_sequences with sampling",
    "diversity_penalty": "diverse beam search is not supported: use num_beams, or num_return_sequences with sampling",
    "constraints": "constrained beam search is not supported: say what the text must be with grammar",
    "force_words_ids": "constrained beam search is not supported: say what the text must be with grammar",
    "penalty_alpha": "contrastive search is not supported: use top_k, or repetition_penalty",
    "dola_layers": "decoding by contrasting layers (DoLa) is not supported: leave it out",
    "assistant_model": "a draft model is loaded with the model: EngineOptions(draft=…), or --draft",
    "n": "several answers are num_return_sequences here",
    "stop": "texts that end the answer are stop_strings here",
    "json_schema": "a schema goes into response_format, as {'type': 'json_schema', 'json_schema': {'schema': …}}",
    "regex": "an expression to keep to goes into grammar, as edgegen.constraint.Regex(…)",
    "choices": "texts to choose from go into grammar, as edgegen.constraint.Choice.of([…])",
}
"""What others have and edgegen does not, or not by that name, with what to use in its place."""

CALLER_ONLY = ("logits_processor", "response_format", "grammar", "negative_prompt", "stopping_criteria")
"""Options that no file has and that are no plain values."""

DEFAULT_NGRAM_SIZE = 5
"""More change nothing, fewer make copied texts come later (``python -m bench.studies.speculation --replay``)."""

DEFAULT_ASSISTANT_TOKENS = 8

SPECULATION_OPTIONS = ("prompt_lookup_num_tokens", "max_matching_ngram_size", "num_assistant_tokens")
"""Options that say how fast a text comes, not what it is: a model's files have no say in them."""

HUGGING_FACE_MAX_LENGTH = 20
"""The ``max_length`` that transformers writes into every file; nobody means it."""

StoppingFunction = Callable[[Any], Any]
"""``function(ids) -> bool``: ids int64 ``[T]`` of prompt and answer, read-only; true ends the text."""


EarlyStopping = bool | Literal["never"]
"""As in transformers."""

MOST_GUESSED = 32
"""Tokens of a guess. Caches of layers with a window keep so many positions to go back to."""

MOST_TOP_LOGPROBS = 20
"""Alternatives that may be asked for at each position, as in OpenAI's API."""

MOST_ROWS = 64
"""Beams, and answers to one prompt: each is a row of the model's batch and has keys and values of its own."""


class GenerationOverrides(TypedDict, total=False):
    """The keyword arguments of ``generate`` and ``stream``: any field of :class:`GenerationOptions`."""

    max_new_tokens: int
    max_length: int | None
    max_time: float | None
    do_sample: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    epsilon_cutoff: float
    eta_cutoff: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    penalty_last_n: int | None
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int | None
    dry_sequence_breakers: Sequence[int]
    no_repeat_ngram_size: int
    bad_words_ids: Sequence[Sequence[int]]
    logit_bias: Mapping[int, float]
    sequence_bias: Mapping[tuple[int, ...], float] | Sequence[Any]
    min_length: int
    min_new_tokens: int
    forced_bos_token_id: int | None
    forced_eos_token_id: int | Sequence[int]
    remove_invalid_values: bool
    exponential_decay_length_penalty: tuple[int, float] | None
    suppress_tokens: Sequence[int]
    begin_suppress_tokens: Sequence[int]
    logits_processor: Sequence[LogitsFunction]
    guidance_scale: float
    negative_prompt: str | Sequence[int] | None
    num_beams: int
    length_penalty: float
    early_stopping: EarlyStopping
    num_return_sequences: int
    logprobs: bool
    top_logprobs: int
    renormalize_logits: bool
    response_format: Any
    grammar: Any
    seed: int | None
    eos_token_id: int | list[int] | tuple[int, ...] | None
    stop_strings: str | list[str] | tuple[str, ...] | None
    stop_token_ids: int | Sequence[int] | None
    stop_regex: str | None
    include_stop_str_in_output: bool
    stopping_criteria: StoppingFunction | Sequence[StoppingFunction] | None
    prompt_lookup_num_tokens: int | None
    max_matching_ngram_size: int | None
    num_assistant_tokens: int | None
    use_cache: bool
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions(LogitsSettings):
    """How a text is generated: what shapes the choice of each token (:class:`LogitsSettings`), and the following.

    Defaults are Hugging Face's, but for ``max_new_tokens``.

    Attributes:
        max_new_tokens: most tokens to generate; clipped to what the model's context leaves.
        max_length: most tokens of prompt and answer together; the smaller of both limits counts.
        max_time: seconds after which the text ends with the token that is being made.
        do_sample: draw from the distribution; otherwise the most likely token is taken each time (greedy). None, which
            is resolved at once: if any option of sampling is not at its default.
        seed: same seed, same text, on the same bundle and machine; None draws a new seed per request.
        negative_prompt: with ``guidance_scale``, what to move away from; None is the last token of the prompt.
        num_beams: beams of a beam search, which draws nothing; 1 is none.
        length_penalty: a beam's score is divided by its length to this power; above 0 favours long answers.
        early_stopping: whether a beam search ends with as many answers as beams; False once a better one is unlikely,
            "never" once it is impossible.
        num_return_sequences: how many answers: drawn anew each, or the best of the beams; where a grammar or a mask
            leaves fewer beams, there are fewer answers.
        logprobs: keep the log-probability of each token, as the model gives it.
        top_logprobs: keep those of the likeliest tokens of each place as well, up to 20 of them; asks for ``logprobs``.
        eos_token_id: ids that end a text, or one such id; none with (), the bundle's own with None.
        stop_strings: texts that end the generation; they are not part of the result.
        stop_token_ids: more ids that end a text, beside ``eos_token_id``; one such id may stand for itself.
        stop_regex: a regular expression that ends the generation where it first matches, likewise no part of the
            result. It is Python's, without lookaround, backreferences, conditional, atomic and possessive parts.
        include_stop_str_in_output: the result ends with the stop string, or what the expression matched.
        stopping_criteria: functions of the caller's own, ``function(ids) -> bool``, asked after each token.
        response_format: what the text must be, as OpenAI's API says it (``{"type": "json_object"}``, ``json_schema``),
            a pydantic model class, or a constraint (:mod:`edgegen.constraint`).
        grammar: a Lark or GBNF grammar that the text must keep to, or a constraint.
        prompt_lookup_num_tokens: guess up to so many tokens at once, where the last ones stood in the text before, and
            check them in one step (prompt lookup decoding). The text is the model's own, sooner. None guesses
            nothing so.
        max_matching_ngram_size: with it, look for the last so many tokens first, then for fewer, down to 2; None is 5.
        num_assistant_tokens: most tokens that a draft model (:class:`EngineOptions`) guesses at once; None is 8.
        use_cache: False rebuilds keys and values from the token ids at every step (slow; for debugging).
        priority: which request begins first, and has its prompt read first, where several compete; lower ones do.
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
    priority: int = 0

    def _normalize(self) -> None:
        LogitsSettings._normalize(self)
        if self.eos_token_id is not None:
            object.__setattr__(self, "eos_token_id", several(self.eos_token_id))
        for name in ("stop_strings", "stop_token_ids", "stopping_criteria"):
            object.__setattr__(self, name, several(getattr(self, name)))
        if self.do_sample is None:
            asked = any(getattr(self, f.name) != f.default for f in fields(self) if f.name in SAMPLING_OPTIONS)
            object.__setattr__(self, "do_sample", asked)
        if self.temperature == 0:
            object.__setattr__(self, "do_sample", False)
        if self.mirostat and self.top_k == DEFAULT_TOP_K:
            object.__setattr__(self, "top_k", 0)  # the default gives way, a value of the caller's own contradicts
        if self.top_logprobs:
            object.__setattr__(self, "logprobs", True)

    def _faults(self) -> list[str]:
        return [
            *LogitsSettings._faults(self),
            *self._stopping_faults(),
            *([] if self.seed is None else number("seed", self.seed, int, 0, 2**64 - 1)),
            *number("num_beams", self.num_beams, int, 1, MOST_ROWS),
            *number("priority", self.priority, int, -(2**31), 2**31 - 1),
            *number("length_penalty", self.length_penalty, float, -20, 20),
            *_early_stopping(self.early_stopping),
            *number("num_return_sequences", self.num_return_sequences, int, 1, MOST_ROWS),
            *number("top_logprobs", self.top_logprobs, int, 0, MOST_TOP_LOGPROBS),
            *_none_or_number("prompt_lookup_num_tokens", self.prompt_lookup_num_tokens, 1, MOST_GUESSED),
            *_none_or_number("max_matching_ngram_size", self.max_matching_ngram_size, 2, MOST_GUESSED),
            *_none_or_number("num_assistant_tokens", self.num_assistant_tokens, 1, MOST_GUESSED),
            *(fault for name in ("do_sample", "logprobs", "use_cache") for fault in boolean(name, getattr(self, name))),
            *(
                ["response_format and grammar both say what the text must be: leave one out"]
                if self.response_format is not None and self.grammar is not None
                else []
            ),
        ]

    def _stopping_faults(self) -> list[str]:
        return [
            *number("max_new_tokens", self.max_new_tokens, int, 1),
            *([] if self.max_length is None else number("max_length", self.max_length, int, 1)),
            *([] if self.max_time is None else number("max_time", self.max_time, float, 0, above=True)),
            *token_ids("eos_token_id", self.eos_token_id or ()),
            *(fault for text in self.stop_strings for fault in _stop_string(text)),
            *token_ids("stop_token_ids", self.stop_token_ids),
            *_stop_regex(self.stop_regex),
            *boolean("include_stop_str_in_output", self.include_stop_str_in_output),
            *functions("stopping_criteria", self.stopping_criteria),
        ]

    def _token_ids(self) -> dict[str, set[int]]:
        return LogitsSettings._token_ids(self) | {"stop_token_ids": set(self.stop_token_ids)}

    def _contradictions(self) -> list[str]:
        faults = LogitsSettings._contradictions(self)
        if self.negative_prompt is not None and self.guidance_scale == 1:
            faults.append("negative_prompt is for guidance: give a guidance_scale above 1 with it, or leave it out")
        if self.max_matching_ngram_size is not None and self.prompt_lookup_num_tokens is None:
            faults.append("max_matching_ngram_size is for prompt lookup: give prompt_lookup_num_tokens with it")
        faults += self._guessing_faults()
        if self.num_beams > 1:
            if self.do_sample:
                faults.append("num_beams: a beam search draws nothing: leave it, or the options of sampling, out")
            if self.guidance_scale != 1:
                faults.append("num_beams: guidance goes with sampling or greedy: leave it, or guidance_scale, out")
            if self.logprobs:
                faults.append("num_beams: log-probabilities are kept of single answers: leave it, or logprobs, out")
            if self.num_return_sequences > self.num_beams:
                faults.append(f"num_return_sequences: there are no more answers than the {self.num_beams} num_beams")
        elif self.num_return_sequences > 1 and not self.do_sample:
            faults.append("num_return_sequences: without sampling or num_beams all answers would be the same")
        return faults

    def _guessing_faults(self) -> list[str]:
        """What guesses do not go with."""
        guesses = [name for name in SPECULATION_OPTIONS if getattr(self, name) is not None]
        others = [
            *(["num_beams"] if self.num_beams > 1 else []),
            *(["guidance_scale"] if self.guidance_scale != 1 else []),
            *(["mirostat"] if self.mirostat else []),
        ]
        if not guesses or not others:
            return []
        return [f"{guesses[0]}: nothing can be guessed with {' or '.join(others)}: leave one or the other out"]

    def override(self, changes: Mapping[str, Any]) -> "GenerationOptions":
        """These options with ``changes``, as a caller means them.

        Any sampling option implies ``do_sample=True``, but ``temperature=0`` is greedy. Sampling takes the place of
        beams, and ``num_beams`` that of sampling. ``max_length`` without ``max_new_tokens`` is the only limit.
        ``mirostat`` switches off what it stands in for, but for what the caller asks for beside it.

        Raises:
            OptionError: a name is unknown, a value is wrong, or ``do_sample=False`` stands beside a sampling option.
        """
        known = [f.name for f in fields(self)]
        unknown = [
            f"{name}: {_INSTEAD[name]}" if name in _INSTEAD else f"{name!r} is not an option{did_you_mean(name, known)}"
            for name in changes
            if name not in known
        ]
        if unknown:
            raise OptionError(one_or_list(unknown))
        values = dict(changes)
        given = [name for name in SAMPLING_OPTIONS if values.get(name) is not None]
        if given and values.get("temperature") != 0:
            if values.get("do_sample") is False:
                raise OptionError(f"do_sample=False contradicts {', '.join(given)}: leave one or the other out")
            values["do_sample"] = True
        # Of beams and sampling, what these options already say gives way to what is asked for now.
        if values.get("do_sample") is True:
            values.setdefault("num_beams", 1)
        elif values.get("num_beams") not in (None, 1):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How a bundle is run.

    Attributes:
        threads: threads of ONNX Runtime; None is one per physical core, which is the fastest.
        prefill_chunk: most prompt tokens per step; smaller chunks need less memory.
        sessions: ``one`` runs the prefill graph for both phases over one packed copy of the weights; ``two`` opens a
            session per graph.
        packed_weights: map weights that were packed for this processor before and are kept in ``EDGEGEN_HOME``, 2.3
            times the size of the bundle's, and make them the first time: a start takes less memory and time.
        fast_prefill: read prompts with matrices of their own, rounded for speed: about half the time, for the memory of
            the layers' weights once more and a little exactness; for bundles exported with ``--fast-prefill``.
        draft: the name or path of a bundle with the same tokenizer and a smaller model, which guesses what comes next;
            guesses are checked, several in one step, and the text stays the model's own.
        kv: how keys and values are kept: ``float32``, or ``int8`` in a quarter of the memory, with which a text does
            not depend on how its computation was cut; None is what the bundle prefers (its first variant).
        max_batch_size: most answers (and beams) at work at once; a request of more runs by itself.
        kv_budget: most bytes of keys and values of all that are at work; who does not fit waits. None is half the
            memory that is free when the model is loaded.
        prefix_cache: texts that have ended lend their keys and values to those that begin alike, for as long as their
            place in the cache is not needed; with a number, so many bytes of them are kept beyond that; 0 is off.
        deterministic: take no short cut that changes a bit, so that an answer depends on its request alone. With
            keys and values in int8 none does, and this costs nothing; with float32, proposals are not verified, and
            of an answer that goes on only the prompt's keys and values are used again.
    """

    threads: int | None = None
    prefill_chunk: int = 128
    sessions: Literal["one", "two"] = "one"
    packed_weights: bool = False
    fast_prefill: bool = False
    kv: KVDtype | None = None
    max_batch_size: int = 8
    kv_budget: int | None = None
    prefix_cache: int | None = None
    deterministic: bool = False
    draft: str | Path | None = None

    def __post_init__(self) -> None:
        faults = [
            *([] if self.threads is None else number("threads", self.threads, int, 1, 1024)),
            *number("prefill_chunk", self.prefill_chunk, int, 2),
            *([] if self.sessions in ("one", "two") else [f"sessions: 'one' or 'two', not {self.sessions!r}"]),
            *boolean("packed_weights", self.packed_weights),
            *boolean("fast_prefill", self.fast_prefill),
            *(["packed_weights are those of sessions='one'"] if self.packed_weights and self.sessions == "two" else []),
            *(["packed_weights go without fast_prefill"] if self.packed_weights and self.fast_prefill else []),
            *_draft(self.draft),
            *([] if self.kv in (None, "float32", "int8") else [f"kv: 'float32' or 'int8', not {self.kv!r}"]),
            *number("max_batch_size", self.max_batch_size, int, 1, MOST_ROWS),
            *([] if self.kv_budget is None else number("kv_budget", self.kv_budget, int, 1)),
            *([] if self.prefix_cache is None else number("prefix_cache", self.prefix_cache, int, 0)),
            *boolean("deterministic", self.deterministic),
        ]
        if faults:
            raise OptionError(one_or_list(faults))


def _none_or_number(name: str, value: object, low: int, high: int) -> list[str]:
    return [] if value is None else number(name, value, int, low, high)


def _bias(value: float) -> float | str:
    return "-inf" if value == float("-inf") else value


def _stop_string(value: object) -> list[str]:
    if not isinstance(value, str):
        return [f"stop_strings: text expected, found {value!r}"]
    return [] if value else ["stop_strings: an empty string would stop at once"]


def _draft(value: object) -> list[str]:
    known = value is None or isinstance(value, Path) or (isinstance(value, str) and value)
    return [] if known else [f"draft: a bundle's name or path expected, found {shortened(value)}"]


def _early_stopping(value: object) -> list[str]:
    known = isinstance(value, bool) or (isinstance(value, str) and value == "never")
    return [] if known else [f"early_stopping: True, False or 'never' expected, found {shortened(value)}"]


def _stop_regex(pattern: object) -> list[str]:
    if pattern is None:
        return []
    if not isinstance(pattern, str):
        return [f"stop_regex: text expected, found {shortened(pattern)}"]
    try:
        StopRegex.of(pattern)
    except OptionError as error:
        return [f"stop_regex: {error}"]
    return []
