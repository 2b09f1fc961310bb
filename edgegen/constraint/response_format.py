"""Reads ``response_format`` as a constraint, in the spellings of OpenAI's API and of other servers."""

import re
from collections.abc import Iterable, Mapping
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.constraint.any_json import AnyJson
from edgegen.constraint.constraint import Constraint, Whitespace
from edgegen.constraint.grammar import Grammar
from edgegen.constraint.json_schema import JsonSchema
from edgegen.constraint.regex import Regex
from edgegen.errors import ConstraintError, did_you_mean, refuse_any

_TYPES = ("text", "json_object", "json_schema", "regex", "grammar")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "text": (),
    "json_object": ("schema", "value"),  # llama.cpp, Together, Fireworks; TGI
    "json_schema": ("json_schema", "schema", "value"),  # OpenAI, vLLM; llama.cpp, Together; TGI
    "json": ("schema", "value"),  # TensorRT-LLM; TGI
    "regex": ("regex", "pattern", "value"),  # TensorRT-LLM; Together; TGI
    "grammar": ("grammar",),  # Fireworks
    "ebnf": ("ebnf",),  # TensorRT-LLM
}
"""Types, and the keys beside them at which a server has the schema, the expression or the grammar."""

_ABOUT = ("name", "description", "strict")
"""Keys that may stand beside a schema. It is enforced whether it is strict or not."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def read_response_format(value: object, whitespace: Whitespace = "compact") -> Constraint | None:
    """The constraint of a ``response_format``; None for free text.

    Args:
        value: None, a constraint, a pydantic model class, or a mapping as OpenAI's API has it:
            ``{"type": "text"}``, ``{"type": "json_object"}``, or
            ``{"type": "json_schema", "json_schema": {"name": …, "schema": …}}``; or as other servers have it, with
            the schema, the regular expression or the grammar beside ``type``.

    Raises:
        ConstraintError: it is something else, or a key is unknown or wrong; all of this is listed.
    """
    if value is None:
        return None
    if callable(getattr(value, "source", None)):
        return cast(Constraint, value)
    if callable(getattr(value, "model_json_schema", None)):
        return JsonSchema.of(value, whitespace)
    if not isinstance(value, Mapping):
        raise ConstraintError(
            f"response_format is a mapping with a 'type', a pydantic model or a constraint, not {type(value).__name__}"
        )
    asked = cast(Mapping[str, Any], value)
    kind: object = asked.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ConstraintError(_unknown_type(kind))
    problems = list[str]()
    content = _content(asked, kind, problems)
    refuse_any(problems, ConstraintError)
    match kind:
        case "text":
            return None
        case "regex":
            return Regex(content)
        case "grammar" | "ebnf":
            return Grammar(content, "gbnf" if kind == "ebnf" else None)
        case "json_object" if content in (None, True, {}):
            return AnyJson(whitespace=whitespace)
        case _:
            return JsonSchema.of(content, whitespace)


def schema_problems(where: str, about: Mapping[str, Any]) -> list[str]:
    """Return the problems of the ``name``, the ``description`` and ``strict``, which stand beside a schema."""
    problems = list[str]()
    name, description, strict = map(about.get, _ABOUT)
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        problems.append(f"{where}.name: 1 to 64 letters, digits, _ and - expected, found {shortened(name)}")
    if not isinstance(description, str | None):
        problems.append(f"{where}.description: text expected, found {shortened(description)}")
    if not isinstance(strict, bool | None):
        problems.append(f"{where}.strict: true or false expected, found {shortened(strict)}")
    return problems


def unknown_keys(where: str, given: Iterable[object], known: Iterable[str]) -> list[str]:
    """A problem for each key that is not among the known ones, with the nearest of them."""
    names = list(known)
    return [
        f"{shortened(key)} is not a key of {where}{did_you_mean(key, names) if isinstance(key, str) else ''}"
        for key in given
        if key not in names
    ]


def _unknown_type(kind: object) -> str:
    if kind == "structural_tag":
        return "response_format's type structural_tag is not supported: use 'tools' for calls, or write a grammar"
    hint = did_you_mean(kind, _KEYS) if isinstance(kind, str) else ""
    return (
        f"response_format's type is {', '.join(_TYPES)}, not {shortened(kind)}{hint}; "
        "a schema goes into {'type': 'json_schema', 'json_schema': {'schema': …}}"
    )


def _content(asked: Mapping[str, Any], kind: str, problems: list[str]) -> Any:
    """The schema, expression or grammar; None if it is missing, or ``problems`` say what is wrong with it."""
    where, keys, is_json = "response_format", _KEYS[kind], kind.startswith("json")
    problems += unknown_keys(where, asked, ("type", *keys, *(_ABOUT if is_json else ())))
    problems += schema_problems(where, asked) if is_json else []
    present = [key for key in keys if asked.get(key) is not None]
    if len(present) > 1:
        problems.append(f"{where}: {' and '.join(map(repr, present))} would say the same: keep one of them")
        return None
    if not present:
        if kind not in ("text", "json_object"):
            problems.append(f"{where} {kind!r} holds {_what(kind, keys[0])}")
        return None
    key, content = present[0], asked[present[0]]
    if kind == "json_schema" and key != "schema":
        wrapped: Mapping[str, Any] = cast(Mapping[str, Any], content) if isinstance(content, Mapping) else {}
        problems += unknown_keys(f"{where}.{key}", wrapped, ("schema", *_ABOUT))
        problems += schema_problems(f"{where}.{key}", wrapped)
        content = wrapped.get("schema")
        if content is None:
            problems.append(f"{where} {kind!r} holds {_what(kind, key)}")
    elif not is_json and not isinstance(content, str):
        problems.append(f"{where}.{key}: text expected, found {shortened(content)}")
    return content


def _what(kind: str, key: str) -> str:
    """Say what belongs into a ``response_format`` of this type, and where."""
    if kind == "json_schema":
        return f"the schema at [{key!r}]['schema']"
    return f"the {'schema' if kind == 'json' else 'regular expression' if kind == 'regex' else 'grammar'} at [{key!r}]"
