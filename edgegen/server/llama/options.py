"""Options of llama-server's requests: which are options here, which change nothing, and which are refused."""

from collections.abc import Mapping
from typing import Any

from edgegen.openai.request import UNLIMITED, from_json
from edgegen.options.generation import GenerationOptions
from edgegen.server.wire import ported_options
from edgegen.server.wire.llama_fields import SAMPLERS
from edgegen.server.wire.request_settings import named_options
from edgegen.server.wire.schemas import no_op_schemas, option_schemas, refused_schemas
from edgegen.strict_json.schema import (
    ANYTHING,
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    STRING,
    Schema,
    advised,
    any_of,
    array_of,
    checked_later,
    described,
    enum,
    expecting,
)

RENAMED: Mapping[str, str] = {
    "n_predict": "max_new_tokens",
    "max_tokens": "max_new_tokens",
    "repeat_penalty": "repetition_penalty",
    "repeat_last_n": "penalty_last_n",
    "typ_p": "typical_p",
    "stop": "stop_strings",
    "n_probs": "top_logprobs",
    "json_schema": "response_format",
    "t_max_predict_ms": "max_time",
}
"""llama-server's options, and the name that each has here."""

NO_OPS: Mapping[str, tuple[Schema, str]] = {
    **{name: ported_options.NO_OPS[name] for name in ("cache_prompt", "id_slot")},
    "n_keep": (INTEGER, "nothing is shifted out of a full context: the answer ends there"),
    "n_discard": (INTEGER, "nothing is shifted out of a full context"),
    "dynatemp_exponent": (NUMBER, "there is no dynamic temperature, and dynatemp_range is 0"),
    "user": (ANYTHING, "it is not passed on"),
}
"""Options that are checked and change no text, each with what happens instead."""

_BREAKERS = "dry_sequence_breakers"
"""Texts in llama-server, and ids of tokens here."""
REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    **{name: ported_options.REFUSED[name] for name in ("dynatemp_range", "lora")},
    "min_keep": ((0, 1), "samplers leave at least one token: leave it out"),
    "n_indent": ((0,), "lines are not held to an indentation: use stop_regex"),
    "n_cmpl": ((1,), "one answer a prompt: send the request again for another"),
    "post_sampling_probs": ((False,), "probabilities are those of the model, before any sampler: leave it out"),
    "image_data": (([],), "models here read text only: leave it out"),
    "tfs_z": ((1,), "use min_p or typical_p in place of tail-free sampling"),
    _BREAKERS: ((["\n", ":", '"', "*"],), "give the ids of tokens in place of texts"),
}
"""Options that are not supported, but for values that ask for nothing."""

_ALL_OF = ("penalty_last_n", "dry_penalty_last_n")
"""Of these -1 is the whole text, which is what leaving them out is."""


def completion_options() -> dict[str, Schema]:
    """The schemas of all options of a request: llama-server's, and every option here under its own name."""
    options = option_schemas()
    whole_text: Schema = {"type": "integer", "minimum": -1}
    tokens: Schema = {"type": "integer", "minimum": -2}
    names = enum(*SAMPLERS)
    single = ("logprobs", "num_return_sequences")
    return {
        **{name: schema for name, schema in options.items() if name not in single},
        **{name: described(options[option], f"llama-server's name of {option}.") for name, option in RENAMED.items()},
        "n_predict": described(tokens, "Most tokens to generate; -1: all that fit; 0: the prompt is read only."),
        "max_tokens": described(tokens, "Another name of n_predict."),
        **dict.fromkeys(
            ("repeat_last_n", "penalty_last_n"), described(whole_text, "Tokens that penalties look at: 0 none, -1 all.")
        ),
        "dry_penalty_last_n": described(whole_text, "Tokens that DRY looks at: 0 none, -1 all."),
        "temperature": described(NUMBER, "0 and less: the likeliest token."),
        "top_k": described(INTEGER, "0 and less: all tokens."),
        "top_n_sigma": described(NUMBER, "0 and less: off."),
        "stop": any_of(options["stop_strings"], array_of(STRING, most=0)),
        "json_schema": described(OBJECT, "A JSON Schema that the text must fit."),
        "t_max_predict_ms": described(NUMBER, "Most milliseconds of the answer; 0 and less: no limit."),
        "ignore_eos": described(BOOLEAN, "No token that ends an answer is chosen."),
        "logit_bias": checked_later(
            described(ANYTHING, "Pairs of a token id, or a text of one token, and a bias; false: never.")
        ),
        "samplers": described(
            expecting(array_of(names), f"a list of {', '.join(SAMPLERS)}"), "Those that are on; their order is fixed."
        ),
        **no_op_schemas(NO_OPS),
        **refused_schemas({name: told for name, told in REFUSED.items() if name != _BREAKERS}),
        _BREAKERS: advised(any_of(enum(*REFUSED[_BREAKERS][0]), options[_BREAKERS]), REFUSED[_BREAKERS][1]),
    }


def read_options(params: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The generation options in a body that fits its schema; what two say, and what is no bias, are problems."""
    values = dict[str, Any]()
    asked = {name: value for name, value in params.items() if name not in REFUSED or value not in REFUSED[name][0]}
    for name, option, value in named_options(asked, RENAMED, problems):
        _set(values, name, option, value, problems)
    if params.get("ignore_eos"):
        values["min_new_tokens"] = values.get("max_new_tokens", UNLIMITED)
    if "samplers" in params:
        off = GenerationOptions()
        for sampler in SAMPLERS.keys() - {*params["samplers"]}:
            values |= {option: getattr(off, option) for option in SAMPLERS[sampler]}
    return values


def _set(values: dict[str, Any], name: str, option: str, value: Any, problems: list[str]) -> None:
    """Put an option into ``values``, with llama-server's meaning of what is below its range."""
    match name:
        case "n_predict" | "max_tokens":
            values[option] = UNLIMITED if value < 0 else max(1, value)
        case "temperature":
            values[option] = max(0.0, value)
        case "top_k" | "top_n_sigma":
            values[option] = max(0, value)
        case "n_probs":
            values |= {"logprobs": True, "top_logprobs": value} if value else {}
        case "json_schema":
            if value:
                values[option] = {"type": "json_schema", "json_schema": {"name": "json_schema", "schema": value}}
        case "t_max_predict_ms":
            if value > 0:
                values[option] = value / 1000
        case "grammar" if value == "":
            pass
        case "stop" if value == []:
            pass
        case "logit_bias":
            values[option] = ported_options.read_biases(value, problems)
        case _ if option in _ALL_OF and value < 0:
            pass
        case _:
            values[option] = from_json(option, value)
