"""Reads the parameters with which llama.cpp, SGLang and vLLM ask for constrained output beside ``response_format``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.constraint.any_json import AnyJson
from edgegen.constraint.choice import Choice
from edgegen.constraint.constraint import Constraint, Whitespace, read_whitespace_pattern
from edgegen.constraint.grammar import Grammar
from edgegen.constraint.json_schema import JsonSchema
from edgegen.constraint.regex import Regex
from edgegen.constraint.response_format import unknown_keys
from edgegen.errors import ConstraintError, refuse_any

_KINDS = ("json", "regex", "choice", "grammar", "json_object")
_PARAMETERS: Mapping[str, str] = {
    "json_schema": "json",  # llama.cpp, SGLang
    "regex": "regex",  # SGLang
    "ebnf": "ebnf",
    **{f"guided_{kind}": kind for kind in _KINDS},  # vLLM
}
_REFUSED = ("structural_tag",)
_PATTERN, _PATTERN_INSIDE = "guided_whitespace_pattern", "whitespace_pattern"
_SWITCHES = ("disable_additional_properties", "disable_any_whitespace", "disable_fallback")
_REFUSED_INSIDE = ("structural_tag",)
_OUTPUTS = "structured_outputs"

STRUCTURED_OUTPUT = frozenset({*_PARAMETERS, *_REFUSED, _PATTERN, _OUTPUTS, "guided_decoding_backend"})
"""The names of the parameters. Which library compiles a grammar (``guided_decoding_backend``) changes no text."""


def read_structured_output(params: Mapping[str, Any], whitespace: Whitespace = "compact") -> Constraint | None:
    """The constraint that those parameters in ``params`` ask for that are in ``STRUCTURED_OUTPUT``; None for free text.

    Two that say the same are one. ``whitespace``: of JSON, where no parameter says it.

    Raises:
        ConstraintError: two say what the text must be, one is not supported, or its value is wrong; all of this is
            listed.
    """
    problems = [f"{name} is not supported: leave it out" for name in _REFUSED if params.get(name) is not None]
    asked: object = params.get(_OUTPUTS)
    inside: Mapping[str, Any] = cast(Mapping[str, Any], asked) if isinstance(asked, Mapping) else {}
    if not isinstance(asked, Mapping | None):
        problems.append(f"{_OUTPUTS}: an object expected, found {shortened(asked)}")
    problems += unknown_keys(_OUTPUTS, inside, (*_KINDS, *_SWITCHES, _PATTERN_INSIDE, *_REFUSED_INSIDE))
    problems += [
        f"{_OUTPUTS}.{key} is not supported: leave it out" for key in _REFUSED_INSIDE if inside.get(key) is not None
    ]
    problems += [
        f"{_OUTPUTS}.{key}: true or false expected, found {shortened(inside[key])}"
        for key in _SWITCHES
        if not isinstance(inside.get(key), bool | None)
    ]
    wishes = [(name, kind, params[name]) for name, kind in _PARAMETERS.items() if params.get(name) is not None]
    wishes += [(f"{_OUTPUTS}.{kind}", kind, inside[kind]) for kind in _KINDS if inside.get(kind) is not None]
    if isinstance(asked, Mapping) and not wishes and not problems:
        problems.append(f"{_OUTPUTS} does not say what the text must be: give one of {', '.join(_KINDS)}")
    if any(_asked(*one[1:]) != _asked(*wishes[0][1:]) for one in wishes[1:]):
        names = " and ".join(name for name, _, _ in wishes)
        problems.append(f"{names} each say what the text must be: keep one of them")
    pattern = _whitespace_pattern(params, inside, wishes, problems)
    problems += [problem for name, kind, value in wishes if (problem := _problem(name, kind, value))]
    refuse_any(problems, ConstraintError)
    if inside.get("disable_any_whitespace"):
        whitespace = "compact"
    additional = inside.get("disable_additional_properties") is False
    made = _constraint(*wishes[0][1:], whitespace, additional_properties=additional) if wishes else None
    return replace(made, whitespace_pattern=pattern) if isinstance(made, JsonSchema | AnyJson) else made


def _asked(kind: str, value: object) -> tuple[str, object]:
    """Return kind and value of a parameter in a form to compare: a schema may be JSON or its text."""
    if kind != "json" or not isinstance(value, str):
        return kind, value
    try:
        return kind, json.loads(value)
    except (ValueError, RecursionError):
        return kind, value


def _whitespace_pattern(
    params: Mapping[str, Any],
    inside: Mapping[str, Any],
    wishes: Sequence[tuple[str, str, object]],
    problems: list[str],
) -> str | None:
    """The regular expression of the space in JSON, where a parameter has one."""
    said = {_PATTERN: params.get(_PATTERN), f"{_OUTPUTS}.{_PATTERN_INSIDE}": inside.get(_PATTERN_INSIDE)}
    patterns = {name: pattern for name, pattern in said.items() if pattern is not None}
    for name, pattern in patterns.items():
        if not isinstance(pattern, str):
            problems.append(f"{name}: text expected, found {shortened(pattern)}")
        elif not any(kind in ("json", "json_object") for _, kind, _ in wishes):
            problems.append(f"{name} goes with a JSON schema or json_object beside it, and there is none")
        else:
            try:
                read_whitespace_pattern(pattern)
            except ConstraintError as error:
                problems.append(f"{name}: {error}")
    if not problems and len(set(patterns.values())) > 1:
        problems.append(f"{' and '.join(patterns)} differ: keep one of them")
    return next(iter(patterns.values()), None)


def _problem(name: str, kind: str, value: object) -> str:
    match kind:
        case "json":
            return ""
        case "json_object":
            right, expected = value is True, "true"
        case "choice":
            right, expected = isinstance(value, list), "a list of texts"
        case _:
            right, expected = isinstance(value, str), "text"
    return "" if right else f"{name}: {expected} expected, found {shortened(value)}"


def _constraint(kind: str, value: Any, whitespace: Whitespace, *, additional_properties: bool) -> Constraint:
    match kind:
        case "json":
            return JsonSchema.of(value, whitespace, additional_properties=additional_properties)
        case "json_object":
            return AnyJson(whitespace=whitespace)
        case "choice":
            return Choice.of(value)
        case "regex":
            return Regex(value)
        case _:
            return Grammar(value, "gbnf" if kind == "ebnf" else None)
