"""GenerationOptions and EngineOptions: frozen, validated, under Hugging Face's names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict

from edgegen.errors import OptionError, did_you_mean, one_or_list
from edgegen.faults import boolean, number, token_ids
from edgegen.logits_settings import CUTOFFS, LogitsFunction, LogitsSettings, several

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

UNSUPPORTED = {"guidance_scale": "guidance by a negative prompt is not supported yet: leave it out"}
"""Settings that the pipeline knows and no request can ask for."""

CALLER_ONLY = ("logits_processor", "response_format", "grammar")
"""Options that no file has and that are no plain values."""


class GenerationOverrides(TypedDict, total=False):
    """The keyword arguments of ``generate`` and ``stream``: any field of :class:`GenerationOptions`."""

    max_new_tokens: int
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
    renormalize_logits: bool
    response_format: Any
    grammar: Any
    seed: int | None
    eos_token_id: int | list[int] | tuple[int, ...] | None
    stop_strings: str | list[str] | tuple[str, ...] | None
    use_cache: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions(LogitsSettings):
    """How a text is generated: what shapes the choice of each token (:class:`LogitsSettings`), and the following.

    Defaults are Hugging Face's, but for ``max_new_tokens``.

    Attributes:
        max_new_tokens: most tokens to generate; clipped to what the model's context leaves.
        do_sample: draw from the distribution; otherwise the most likely token is taken each time (greedy). None, which
            is resolved at once: if any option of sampling is not at its default.
        seed: same seed, same text, on the same bundle and machine; None draws a new seed per request.
        eos_token_id: ids that end a text, or one such id; none with (), the bundle's own with None.
        stop_strings: texts that end the generation; they are not part of the result.
        response_format: what the text must be, as OpenAI's API says it (``{"type": "json_object"}``, ``json_schema``),
            a pydantic model class, or a constraint (:mod:`edgegen.constraint`).
        grammar: a Lark or GBNF grammar that the text must keep to, or a constraint.
        use_cache: False rebuilds keys and values from the token ids at every step (slow; for debugging).
    """

    max_new_tokens: int = 256
    do_sample: bool | None = None
    top_k: int = DEFAULT_TOP_K
    seed: int | None = None
    eos_token_id: tuple[int, ...] | None = None
    stop_strings: tuple[str, ...] = ()
    response_format: Any = None
    grammar: Any = None
    use_cache: bool = True

    def _normalize(self) -> None:
        LogitsSettings._normalize(self)
        if self.eos_token_id is not None:
            object.__setattr__(self, "eos_token_id", several(self.eos_token_id))
        object.__setattr__(self, "stop_strings", several(self.stop_strings))
        if self.do_sample is None:
            asked = any(getattr(self, f.name) != f.default for f in fields(self) if f.name in SAMPLING_OPTIONS)
            object.__setattr__(self, "do_sample", asked)
        if self.temperature == 0:
            object.__setattr__(self, "do_sample", False)
        if self.mirostat and self.top_k == DEFAULT_TOP_K:
            object.__setattr__(self, "top_k", 0)  # the default gives way, a value of the caller's own contradicts

    def _faults(self) -> list[str]:
        return [
            *LogitsSettings._faults(self),
            *number("max_new_tokens", self.max_new_tokens, int, 1),
            *([] if self.seed is None else number("seed", self.seed, int, 0, 2**64 - 1)),
            *token_ids("eos_token_id", self.eos_token_id or ()),
            *(fault for name in ("do_sample", "use_cache") for fault in boolean(name, getattr(self, name))),
            *(fault for text in self.stop_strings for fault in _stop_string(text)),
            *(
                ["response_format and grammar both say what the text must be: leave one out"]
                if self.response_format is not None and self.grammar is not None
                else []
            ),
            *(
                f"{f.name}: {UNSUPPORTED[f.name]}"
                for f in fields(self)
                if f.name in UNSUPPORTED and getattr(self, f.name) != f.default
            ),
        ]

    def override(self, changes: Mapping[str, Any]) -> "GenerationOptions":
        """These options with ``changes``, as a caller means them.

        Any sampling option implies ``do_sample=True``, but ``temperature=0`` is greedy. ``mirostat`` switches off what
        it stands in for, but for what the caller asks for beside it.

        Raises:
            OptionError: a name is unknown, a value is wrong, or ``do_sample=False`` stands beside a sampling option.
        """
        known = [f.name for f in fields(self)]
        unknown = [f"{name!r} is not an option{did_you_mean(name, known)}" for name in changes if name not in known]
        if unknown:
            raise OptionError(one_or_list(unknown))
        values = dict(changes)
        given = [name for name in SAMPLING_OPTIONS if values.get(name) is not None]
        if given and values.get("temperature") != 0:
            if values.get("do_sample") is False:
                raise OptionError(f"do_sample=False contradicts {', '.join(given)}: leave one or the other out")
            values["do_sample"] = True
        if values.get("mirostat"):
            values = {**CUTOFFS, **values}
        return replace(self, **values)

    def to_json(self) -> dict[str, Any]:
        """The options in effect as plain JSON values, by name; those that are none are left out."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in (*UNSUPPORTED, *CALLER_ONLY)}
        return values | {"sequence_bias": [[list(ids), bias] for ids, bias in self.sequence_bias.items()]}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "GenerationOptions":
        """From a ``generation_config.json``: the keys that are options here; all others are left alone.

        As everywhere else, a file that does not say ``do_sample`` means greedy.
        """
        known = {f.name for f in fields(cls)} - UNSUPPORTED.keys() - set(CALLER_ONLY)
        given: dict[str, Any] = {"do_sample": False}
        given |= {name: value for name, value in config.items() if name in known and value is not None}
        return cls(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How a bundle is run.

    Attributes:
        threads: threads of ONNX Runtime; None is one per physical core, which is the fastest.
        prefill_chunk: most prompt tokens per step; smaller chunks need less memory.
        sessions: ``pair`` shares one packed copy of the weights, ``two`` opens a session per graph.
    """

    threads: int | None = None
    prefill_chunk: int = 128
    sessions: Literal["pair", "two"] = "pair"

    def __post_init__(self) -> None:
        faults = [
            *([] if self.threads is None else number("threads", self.threads, int, 1, 1024)),
            *number("prefill_chunk", self.prefill_chunk, int, 2),
            *([] if self.sessions in ("pair", "two") else [f"sessions: 'pair' or 'two', not {self.sessions!r}"]),
        ]
        if faults:
            raise OptionError(one_or_list(faults))


def _stop_string(value: object) -> list[str]:
    if not isinstance(value, str):
        return [f"stop_strings: text expected, found {value!r}"]
    return [] if value else ["stop_strings: an empty string would stop at once"]
