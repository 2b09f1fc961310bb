"""Schemas that the APIs share: the generation options, made from the table of options, and a few others."""

from collections.abc import Mapping
from math import inf
from typing import Any

from edgegen.options.kinds import (
    Biases,
    CheckedLater,
    Functions,
    Kind,
    Number,
    OneOf,
    StartAndFactor,
    StopPattern,
    Switch,
    Texts,
    TokenId,
    TokenIds,
    TokenSequences,
)
from edgegen.options.option import Option
from edgegen.options.table import GENERATION_OPTIONS
from edgegen.options.validation import LARGEST
from edgegen.server.http.options import MOST_BIASES, MOST_MESSAGES, MOST_STOP_CHARACTERS, MOST_STOPS
from edgegen.strict_json.schema import (
    ANYTHING,
    BOOLEAN,
    NUMBER,
    STRING,
    Schema,
    advised,
    any_of,
    array_of,
    checked_later,
    const,
    described,
    enum,
    expecting,
    map_of,
    object_of,
    ref,
)

TOKEN_ID: Schema = ref("TokenId")
TOKEN_IDS: Schema = array_of(TOKEN_ID, most=MOST_BIASES)
STOP_TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": MOST_STOP_CHARACTERS}
PROMPT_IDS: Schema = expecting(array_of(TOKEN_ID, least=1), "a list of token ids that is not empty")

TOOL_NAME: Schema = expecting(
    {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"}, "1 to 128 letters, digits, _, - and ."
)
_OBJECT = advised(const("object"), "the arguments of a tool are an object")
TOOL_ARGUMENTS: Schema = expecting({"type": "object", "properties": {"type": _OBJECT}}, "a JSON schema")
NOTHING: Schema = described(ANYTHING, "Accepted, as it changes no text.")
STREAM: Schema = described(BOOLEAN, "Answer with server-sent events, piece by piece.")
PARALLEL_CALLS: Schema = described(BOOLEAN, "False: one call at most.")

COMPONENTS: dict[str, Schema] = {
    "TokenId": expecting(
        {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "description": "A token id of the vocabulary."},
        "a token id",
    ),
    "ModelName": described(STRING, "The name of a served model; left out, it is the first one."),
    "Bias": any_of({"type": "number", "minimum": -LARGEST, "maximum": LARGEST}, const("-inf")),
    "JsonSchema": any_of(map_of({}), BOOLEAN),
    "ResponseFormat": any_of(
        object_of({"type": enum("text", "json_object")}, more=True),
        object_of({"type": const("json_schema"), "json_schema": ref("NamedJsonSchema")}, more=True),
    ),
    "NamedJsonSchema": object_of(
        {"schema": ref("JsonSchema")}, {"name": {}, "strict": {}, "description": {}}, more=True
    ),
}

_CHECKED_LATER: dict[str, Schema] = {
    "response_format": ref("ResponseFormat"),
    "grammar": STRING,
    "negative_prompt": any_of(STRING, PROMPT_IDS),
}
_READ_HERE = ("grammar", "negative_prompt")
"""Options that may be more in Python than in JSON."""

_SAID = {
    "logprobs": "The log-probability of each token, as the model gives it, before any sampling option.",
    "top_logprobs": "Log-probabilities of so many alternatives at each position; it asks for logprobs.",
    "grammar": "A Lark or GBNF grammar that the text must keep to.",
    "response_format": "What the text must be: free text, JSON, or what a JSON Schema says.",
}
"""Descriptions in place of the table's help, which speaks of the command line or of Python."""


def messages_of(schema: Schema, least: int | None = 1) -> Schema:
    """The schema of a list of messages, each of which fits ``schema``."""
    asked = "a list of messages such as {'role': 'user', 'content': 'Hello'}"
    return expecting(array_of(schema, least, MOST_MESSAGES), asked)


def no_op_schemas(no_ops: Mapping[str, tuple[Schema, str]]) -> dict[str, Schema]:
    """Return the schemas of parameters that are checked and change no text, each given with what happens instead."""
    return {name: described(schema, f"Changes nothing: {why}.") for name, (schema, why) in no_ops.items()}


def refused_schemas(refused: Mapping[str, tuple[tuple[Any, ...], str]]) -> dict[str, Schema]:
    """Return the schemas of unsupported parameters, each given with the values that ask for nothing, and what to do."""
    return {name: advised(enum(*values), why) for name, (values, why) in refused.items()}


def option_schemas() -> dict[str, Schema]:
    """The schema of every option that a request may have, by the option's name; the table's own checks read them."""
    return {
        option.name: _schema(option) if option.name in _READ_HERE else checked_later(_schema(option))
        for option in GENERATION_OPTIONS
        if not isinstance(option.kind, Functions)
    }


def _schema(option: Option) -> dict[str, Any]:
    kind = option.kind
    schema = _CHECKED_LATER[option.name] if isinstance(kind, CheckedLater) else kind_schema(kind)
    if option.name in ("seed", "max_new_tokens"):  # any seed, all that fits
        schema = any_of(schema, const(-1))
    return described(schema, _SAID.get(option.name) or " ".join(filter(None, (option.help, option.note))))


def kind_schema(kind: Kind) -> Schema:
    """Return the JSON Schema of an option's kind."""
    match kind:
        case Number():
            return _number(kind)
        case Switch():
            return BOOLEAN
        case OneOf():
            return enum(*kind.values)
        case TokenId():
            return TOKEN_ID
        case TokenIds():
            return any_of(TOKEN_ID, TOKEN_IDS)
        case TokenSequences():
            return array_of(array_of(TOKEN_ID, least=1), most=MOST_BIASES)
        case Biases() if kind.sequences:
            pair = {"type": "array", "prefixItems": [PROMPT_IDS, ref("Bias")], "minItems": 2, "maxItems": 2}
            return any_of(array_of(pair, most=MOST_BIASES), {"type": "object", "maxProperties": 0})
        case Biases():
            names = {"pattern": "^[0-9]{1,9}$"}
            return {**map_of(ref("Bias")), "propertyNames": names, "maxProperties": MOST_BIASES}
        case StartAndFactor():
            factor = {"type": "number", "exclusiveMinimum": 0, "maximum": LARGEST}
            parts = [{"type": "integer", "minimum": 0}, factor]
            return {"type": "array", "prefixItems": parts, "minItems": 2, "maxItems": 2}
        case Texts():
            return any_of(STOP_TEXT, array_of(STOP_TEXT, most=MOST_STOPS))
        case StopPattern():
            return STRING
        case _:
            raise TypeError(f"JSON has no value of the kind {kind}")


def _number(kind: Number) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"} if kind.type is int else {**NUMBER}
    low, high = kind.low, kind.high
    if kind.type is float:
        low, high = max(low, -LARGEST), min(high, LARGEST)
    if low > -inf:
        schema["exclusiveMinimum" if kind.above else "minimum"] = low
    if high < inf:
        schema["exclusiveMaximum" if kind.below else "maximum"] = high
    return schema
