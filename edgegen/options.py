"""GenerationOptions and EngineOptions: frozen, validated, under Hugging Face's names."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict, cast

from edgegen.errors import OptionError, did_you_mean, one_or_list

SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "seed")


class GenerationOverrides(TypedDict, total=False):
    """The keyword arguments of ``generate`` and ``stream``: any field of :class:`GenerationOptions`."""

    max_new_tokens: int
    do_sample: bool
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    seed: int | None
    eos_token_id: int | list[int] | tuple[int, ...] | None
    stop_strings: str | list[str] | tuple[str, ...] | None
    use_cache: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """How a text is generated. Defaults are Hugging Face's, but for ``max_new_tokens``.

    Attributes:
        max_new_tokens: most tokens to generate; clipped to what the model's context leaves.
        do_sample: draw from the distribution; otherwise the most likely token is taken each time (greedy). None, which
            is resolved at once: if any option of sampling is not at its default.
        temperature: logits are divided by it; 0 is greedy.
        top_k: only the k most likely tokens are drawn from; 0 is no limit.
        top_p: only the smallest set of most likely tokens with at least this probability is drawn from.
        repetition_penalty: above 1, tokens that were there before become less likely, greedily too; 1 is none.
        seed: same seed, same text, on the same bundle and machine; None draws a new seed per request.
        eos_token_id: ids that end a text, or one such id; none with (), the bundle's own with None.
        stop_strings: texts that end the generation; they are not part of the result.
        use_cache: False rebuilds keys and values from the token ids at every step (slow; for debugging).
    """

    max_new_tokens: int = 256
    do_sample: bool | None = None
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    eos_token_id: tuple[int, ...] | None = None
    stop_strings: tuple[str, ...] = ()
    use_cache: bool = True

    def __post_init__(self) -> None:
        if self.eos_token_id is not None:
            object.__setattr__(self, "eos_token_id", _several(self.eos_token_id))
        object.__setattr__(self, "stop_strings", _several(self.stop_strings))
        if self.do_sample is None:
            asked = any(getattr(self, f.name) != f.default for f in fields(self) if f.name in SAMPLING_OPTIONS)
            object.__setattr__(self, "do_sample", asked)
        faults = [
            fault
            for fault in (
                _number("max_new_tokens", self.max_new_tokens, int, 1),
                _number("temperature", self.temperature, float, 0, 1e30),
                _number("top_k", self.top_k, int, 0),
                _number("top_p", self.top_p, float, 0, 1),
                _number("repetition_penalty", self.repetition_penalty, float, 0.01, 100),
                None if self.seed is None else _number("seed", self.seed, int, 0, 2**64 - 1),
                *(_number("eos_token_id", token, int, 0) for token in self.eos_token_id or ()),
                *(_boolean(name, getattr(self, name)) for name in ("do_sample", "use_cache")),
                *(_stop_string(s) for s in self.stop_strings),
            )
            if fault
        ]
        if faults:
            raise OptionError(one_or_list(faults))
        if self.temperature == 0:
            object.__setattr__(self, "do_sample", False)

    def override(self, changes: Mapping[str, Any]) -> "GenerationOptions":
        """These options with ``changes``, as a caller means them.

        Any sampling option implies ``do_sample=True``, but ``temperature=0`` is greedy.

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
        return replace(self, **values)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "GenerationOptions":
        """From a ``generation_config.json``: the keys that are options here; all others are left alone.

        As everywhere else, a file that does not say ``do_sample`` means greedy.
        """
        known = {f.name for f in fields(cls)}
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
            fault
            for fault in (
                None if self.threads is None else _number("threads", self.threads, int, 1, 1024),
                _number("prefill_chunk", self.prefill_chunk, int, 2),
                None if self.sessions in ("pair", "two") else f"sessions: 'pair' or 'two', not {self.sessions!r}",
            )
            if fault
        ]
        if faults:
            raise OptionError(one_or_list(faults))


def _several(value: Any) -> tuple[Any, ...]:
    """Callers and files write one id or a list of them, one stop string or several, or None."""
    if value is None:
        return ()
    return tuple(cast(list[Any], value)) if isinstance(value, list | tuple) else (value,)


def _number(name: str, value: object, kind: type, low: float, high: float = math.inf) -> str | None:
    accepted = (int,) if kind is int else (int, float)
    if not isinstance(value, accepted) or isinstance(value, bool):
        return f"{name}: {kind.__name__} expected, found {value!r}"
    if not low <= value <= high or value == math.inf:
        limits = f"at least {low}" if high == math.inf else f"between {low} and {high}"
        return f"{name}: must be {limits}, found {value!r}"
    return None


def _stop_string(value: object) -> str | None:
    if not isinstance(value, str):
        return f"stop_strings: text expected, found {value!r}"
    return None if value else "stop_strings: an empty string would stop at once"


def _boolean(name: str, value: object) -> str | None:
    return None if isinstance(value, bool) else f"{name}: True or False expected, found {value!r}"
