"""Options of ollama's requests: which are options here, which change nothing, and which are refused."""

import re
from collections.abc import Mapping
from typing import Any

from edgegen.openai.request import UNLIMITED, from_json
from edgegen.options.validation import LARGEST
from edgegen.server.wire.request_settings import named_options
from edgegen.server.wire.schemas import no_op_schemas, option_schemas, refused_schemas
from edgegen.strict_json.schema import (
    BOOLEAN,
    ELSEWHERE,
    INTEGER,
    Schema,
    any_of,
    described,
    expecting,
    object_of,
    parameters,
)

HONOURED: Mapping[str, str] = {
    "num_predict": "max_new_tokens",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "seed": "seed",
    "stop": "stop_strings",
    "repeat_penalty": "repetition_penalty",
    "repeat_last_n": "penalty_last_n",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
"""Ollama's options, and the name that each has here."""

_THREADS = "`--threads` of the server says how many"
_DEVICE = "the bundle and the server say where the model runs"
NO_OPS: Mapping[str, tuple[Schema, str]] = {
    "num_ctx": (INTEGER, "the context is the bundle's, and `/api/show` tells it; its memory is taken as it fills"),
    "num_keep": (INTEGER, "nothing is shifted out of a full context: the system message always stays"),
    "num_batch": (INTEGER, "`--prefill-chunk` of the server"),
    "num_thread": (INTEGER, _THREADS),
    "num_gpu": (INTEGER, _DEVICE),
    "main_gpu": (INTEGER, _DEVICE),
    "num_gqa": (INTEGER, "the bundle knows it"),
    "low_vram": (BOOLEAN, _DEVICE),
    "f16_kv": (BOOLEAN, "`--kv` of the server"),
    "logits_all": (BOOLEAN, "`logprobs` asks for log-probabilities"),
    "embedding_only": (BOOLEAN, "a bundle with hidden states does both"),
    "use_mmap": (BOOLEAN, "weights are mapped where they can be"),
    "use_mlock": (BOOLEAN, "the system decides what stays in memory"),
    "numa": (BOOLEAN, _THREADS),
}
"""Options that are checked and change no text, each with what decides instead."""

REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "tfs_z": ((1,), "use min_p or typical_p in place of tail-free sampling"),
    "penalize_newline": ((True,), "penalties are the same for every token: leave it out"),
    "vocab_only": ((False,), "a model is loaded as a whole: leave it out"),
    "rope_frequency_base": ((), "the bundle has its RoPE: leave it out"),
    "rope_frequency_scale": ((), "the bundle has its RoPE: leave it out"),
}
"""Options that are not supported, but for values that ask for nothing."""

_OF_THE_REQUEST = ("logprobs", "top_logprobs")
_ONE_ANSWER = "num_return_sequences"


def _options() -> Schema:
    options = option_schemas()
    fields: dict[str, Schema] = {
        **{name: schema for name, schema in options.items() if name not in (*_OF_THE_REQUEST, _ONE_ANSWER)},
        **{name: described(options[option], f"Ollama's name of {option}.") for name, option in _renamed().items()},
        "num_predict": described(
            {"type": "integer", "minimum": -2}, "Most tokens to generate; 0 and less: all that fit."
        ),
        "repeat_last_n": described(
            {"type": "integer", "minimum": -1}, "Tokens that penalties look at: 0 none, -1 all; left out, all too."
        ),
        **no_op_schemas(NO_OPS),
        **refused_schemas(REFUSED),
    }
    elsewhere = dict.fromkeys(_OF_THE_REQUEST, "it is a parameter of the request, beside options")
    return {**object_of({}, parameters(fields)), ELSEWHERE: elsewhere}


def _renamed() -> dict[str, str]:
    return {name: option for name, option in HONOURED.items() if name != option}


RENAMED: Mapping[str, str] = _renamed()
OPTIONS: Schema = _options()
"""Schema of ``options``: ollama's, and every option of a request under its own name."""


def read_options(given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The generation options in ``options``, which fit their schema; two that say the same are problems."""
    values, twice = dict[str, Any](), list[str]()
    said = {name: value for name, value in given.items() if value is not None}
    for name, option, value in named_options(said, RENAMED, twice):
        if name == "num_predict" and value <= 0:
            value = UNLIMITED
        if name == "repeat_last_n" and value < 0:
            continue
        values[option] = from_json(option, value)
    problems += [f"options: {problem}" for problem in twice]
    return values


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_UNIT = f"(?:{'|'.join(_UNITS)})"
KEEP_ALIVE: Schema = expecting(
    any_of(
        {"type": "number", "minimum": -LARGEST, "maximum": LARGEST},
        {"type": "string", "maxLength": 64, "pattern": f"^[+-]?(?:{_NUMBER}|(?:{_NUMBER}{_UNIT})+)$"},
    ),
    "seconds, or a time such as '5m'",
)
"""How long the model stays loaded: Go's durations, or seconds, also as text."""


def keep_alive_seconds(value: float | str | None) -> float | None:
    """The seconds of ``keep_alive``; below 0 it is forever."""
    if value is None:
        return None
    if isinstance(value, str):
        parts = re.findall(f"({_NUMBER})({_UNIT})", value)
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts) if parts else abs(float(value))
        return float("inf") if value.startswith("-") and seconds else seconds
    return float("inf") if value < 0 else float(value)
