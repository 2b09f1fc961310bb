"""Tools of a chat: reads OpenAI's tool definitions and Python functions, and which of them a request may call."""

import inspect
import json
import re
import secrets
import string
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from reprlib import repr as shortened
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from edgegen.errors import ConversationError, did_you_mean, one_or_list, sentence_or_list

ToolChoice = str | Mapping[str, Any]
"""``auto``, ``none``, ``required``, or ``{"type": "function", "function": {"name": …}}``."""

_CHOICES = ("auto", "none", "required")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_SIMPLE: Mapping[Any, Mapping[str, Any]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    list: {"type": "array"},
    dict: {"type": "object"},
    type(None): {"type": "null"},
    Any: {},
}
_TOOL_KEYS = ("type", "function")
_FUNCTION_KEYS = ("name", "description", "parameters", "strict", "return")
"""``return`` describes what a function returns, in the definitions that transformers makes of functions."""
_ASKS_NOTHING = ("cache_control",)
"""Keys that some clients send; prefix caching needs none, and no template gets them to read."""
_ARGUMENT_LINE = re.compile(r"(\w+)\s*(?:\([^)]*\))?:\s*(.*)")
_CHOICES_IN_TEXT = re.compile(r"\(choices:\s*(\[.*?\])\)\s*$", re.IGNORECASE)
_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns?|Raises|Yields|Examples?):\s*")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model wants called.

    Attributes:
        id: what the tool's answer refers to as ``tool_call_id``.
        arguments_json: the arguments as the JSON text that OpenAI's API gives.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    arguments_json: str

    @classmethod
    def new(cls, name: str, arguments: dict[str, Any]) -> "ToolCall":
        """A call with an id of its own."""
        return cls(new_call_id(), name, arguments, argument_json(arguments))

    def to_message(self) -> dict[str, Any]:
        """The entry of ``tool_calls`` in an assistant's message."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call in a stream.

    Attributes:
        index: which of the answer's calls, from 0.
        id: of the call, in its first piece; None in later ones.
        name: of the function, in the call's first piece; None in later ones.
        arguments: a piece of the JSON text of the arguments. Joined, they are the call's ``arguments_json``.
    """

    index: int
    id: str | None
    name: str | None
    arguments: str


def joined_deltas(deltas: Sequence[ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    """The deltas with one for each call: a step may yield several of one, and clients read one entry an index."""
    joined: dict[int, ToolCallDelta] = {}
    for delta in deltas:
        before = joined.get(delta.index)
        joined[delta.index] = (
            ToolCallDelta(delta.index, before.id, before.name, before.arguments + delta.arguments) if before else delta
        )
    return tuple(joined.values())


def new_call_id() -> str:
    """Nine letters and digits, which every template accepts."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


def argument_json(value: object) -> str:
    """JSON text of arguments, or of one of them."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which a model wrote as an escape
        return json.dumps(value)
    return text


@dataclass(frozen=True)
class Tools:
    """The tools of a request, and whether it must call one.

    Attributes:
        definitions: in OpenAI's form, as a chat template reads them.
        required: an answer is calls, and nothing else.
        parallel: it may have several.
    """

    definitions: tuple[Mapping[str, Any], ...]
    required: bool = False
    parallel: bool = True

    @classmethod
    def read(cls, tools: Sequence[object], choice: ToolChoice = "auto", *, parallel: bool = True) -> "Tools | None":
        """Tools as a caller passes them; None where none may be called.

        ``parallel``: an answer may have several calls, unless the choice is one tool.

        Raises:
            ConversationError: a definition is malformed or given twice, or the choice is not a ``tool_choice``.
        """
        if not isinstance(cast(object, parallel), bool):
            raise ConversationError(f"parallel_tool_calls is True or False, not {parallel!r}.")
        if isinstance(tools, str | bytes | Mapping) or not isinstance(cast(object, tools), Sequence):
            raise ConversationError(f"tools must be a list of tools or functions, not {type(tools).__name__}.")
        definitions, problems = list[Mapping[str, Any]](), list[str]()
        for n, tool in enumerate(tools):
            try:
                definitions.append(function_schema(cast(Any, tool)) if callable(tool) else _definition(tool))
            except _DefinitionError as error:
                problems += [f"tools[{n}]{problem}" for problem in error.problems]
            except ConversationError as error:
                problems.append(f"tools[{n}] {error}")
        names = [definition["function"]["name"] for definition in definitions]
        problems += [f"tools has {name!r} twice" for name in sorted({name for name in names if names.count(name) > 1})]
        if problems:
            raise ConversationError(sentence_or_list(problems))
        named = _chosen_name(choice, names)
        if choice == "none" or (not definitions and choice == "auto"):
            return None
        if not definitions:
            raise ConversationError("tool_choice asks for a call, and there are no tools: give tools.")
        if named is not None:
            definitions = [definition for definition in definitions if definition["function"]["name"] == named]
        return cls(tuple(definitions), required=choice != "auto", parallel=parallel and named is None)

    @cached_property
    def parameters(self) -> Mapping[str, Mapping[str, Any]]:
        """The JSON schema of each tool's arguments, by the tool's name."""
        return {
            entry["function"]["name"]: entry["function"].get("parameters") or _NO_PARAMETERS
            for entry in self.definitions
        }


def function_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """The tool definition of a Python function: its name, docstring and type hints.

    As transformers' ``get_json_schema``, but ``None`` is a type like others, and what is returned is left out.

    Raises:
        ConversationError: it has no docstring, or a parameter no type hint that a JSON schema can express.
    """
    name = getattr(function, "__name__", type(function).__name__)
    described = inspect.getdoc(function)
    if not described or not _NAME.fullmatch(name):
        what = "has no docstring to tell the model what it does" if not described else "has no name to call it by"
        raise ConversationError(f"is the function {name}, which {what}")
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError) as error:
        raise ConversationError(f"is the function {name}, whose type hints cannot be read: {error}") from None
    summary, texts = _docstring(described)
    properties, required = dict[str, Any](), list[str]()
    for parameter in inspect.signature(function).parameters.values():
        where = f"is the function {name}, whose parameter {parameter.name}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConversationError(f"{where} cannot be given by name")
        if parameter.name not in hints:
            raise ConversationError(f"{where} has no type hint")
        schema = _schema_of(hints[parameter.name], where)
        properties[parameter.name] = schema | _described(texts.get(parameter.name), where)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    parameters = {"type": "object", "properties": properties, **({"required": required} if required else {})}
    return {"type": "function", "function": {"name": name, "description": summary, "parameters": parameters}}


def _schema_of(hint: Any, where: str) -> dict[str, Any]:
    if hint in _SIMPLE:
        return dict(_SIMPLE[hint])
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal and all(isinstance(value, int | float | str | None) for value in inner):
        kinds = [*dict.fromkeys(_SIMPLE[cast(Any, type)(value)]["type"] for value in inner)]
        return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(inner)}
    if origin in (Union, types.UnionType):
        branches = [_schema_of(branch, where) for branch in inner]
        simple = all(branch.keys() == {"type"} for branch in branches)
        simple = simple and all(isinstance(branch["type"], str) for branch in branches)
        return {"type": sorted(branch["type"] for branch in branches)} if simple else {"anyOf": branches}
    if origin is list:
        return {"type": "array", "items": _schema_of(inner[0], where)}
    if origin is tuple and len(inner) == 2 and inner[1] is ...:
        return {"type": "array", "items": _schema_of(inner[0], where)}
    if origin is tuple and inner:
        return {"type": "array", "prefixItems": [_schema_of(entry, where) for entry in inner]}
    if origin is dict and inner[0] is str:
        return {"type": "object", "additionalProperties": _schema_of(inner[1], where)}
    raise ConversationError(
        f"{where} has the type hint {hint}, which is not int, float, str, bool, list, tuple, dict, Optional and Literal"
    )


def _described(text: str | None, where: str) -> dict[str, Any]:
    """The description of a parameter; ``(choices: ["tea", "coffee"])`` at its end are its values."""
    choices = _CHOICES_IN_TEXT.search(text or "")
    if text is None or choices is None:
        return {} if text is None else {"description": text}
    try:
        values: Any = json.loads(choices[1])
    except ValueError:
        raise ConversationError(f"{where} has choices that are no JSON list: {choices[1]}") from None
    return {"enum": values, "description": text[: choices.start()].strip()}


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the function's description and the descriptions of parameters in a section ``Args:``."""
    summary, texts = list[str](), dict[str, str]()
    section, name, indent = "", "", 0
    for line in text.splitlines():
        if heading := _SECTION.fullmatch(line):
            section, name, indent = heading[1], "", 0
        elif not section:
            summary.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            depth = len(line) - len(line.lstrip())
            indent = indent or depth
            if depth <= indent and (entry := _ARGUMENT_LINE.fullmatch(line.strip())):
                name = entry[1]
                texts[name] = entry[2]
            elif name:
                texts[name] = f"{texts[name]} {line.strip()}".strip()
    return "\n".join(summary).strip(), texts


class _DefinitionError(ConversationError):
    """A tool's definition is malformed; each problem begins with the place in it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(one_or_list(problems))
        self.problems = problems


def _definition(tool: object) -> Mapping[str, Any]:
    if not isinstance(tool, Mapping):
        raise ConversationError(f"must be a dict or a function, not {type(tool).__name__}")
    entry = cast(Mapping[str, Any], tool)
    if entry.get("type") != "function" or not isinstance(entry.get("function"), Mapping):
        raise ConversationError("must be a dict such as {'type': 'function', 'function': {'name': …}}")
    function = cast(Mapping[str, Any], entry["function"])
    problems = _unknown_keys(": {} is not a key of a tool", entry, _TOOL_KEYS)
    problems += _unknown_keys(".function: {} is not a key of a function", function, _FUNCTION_KEYS)
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        problems.append(f".function.name must be 1 to 128 letters, digits, _, - and ., not {name!r}")
    if parameters is not None and not isinstance(parameters, Mapping):
        problems.append(f".function.parameters must be a JSON schema, not {type(parameters).__name__}")
    elif parameters and (kind := cast(Mapping[str, Any], parameters).get("type", "object")) != "object":
        problems.append(f".function.parameters must be of type 'object', not {kind!r}")
    for key, kind, expected in (("description", str, "a text"), ("strict", bool, "true or false")):
        if not isinstance(value := function.get(key), kind | None):
            problems.append(f".function.{key} must be {expected}, not {shortened(value)}")
    if problems:
        raise _DefinitionError(problems)
    if entry.keys().isdisjoint(_ASKS_NOTHING) and function.keys().isdisjoint(_ASKS_NOTHING):
        return entry
    return {**_asking(entry), "function": _asking(function)}


def _asking(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key not in _ASKS_NOTHING}


def _unknown_keys(said: str, given: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    keys = [key for key in given if key not in known and key not in _ASKS_NOTHING]
    return [f"{said.format(repr(key))}{did_you_mean(str(key), known)}" for key in keys]


def _chosen_name(choice: object, names: Sequence[str]) -> str | None:
    """The tool that a ``tool_choice`` names, or None where it is a word such as ``auto``.

    Raises:
        ConversationError: the choice is not a ``tool_choice``, or names no tool.
    """
    if isinstance(choice, str):
        if choice in _CHOICES:
            return None
        hint = did_you_mean(choice, _CHOICES)
        raise ConversationError(
            f"tool_choice is {', '.join(_CHOICES)} or {{'type': 'function', 'function': {{'name': …}}}}, "
            f"not {choice!r}{hint}."
        )
    entry: Mapping[str, Any] = cast(Mapping[str, Any], choice) if isinstance(choice, Mapping) else {}
    function: Any = entry.get("function")
    name: Any = cast(Mapping[str, Any], function).get("name") if isinstance(function, Mapping) else None
    known = entry.keys() <= {"type", "function"} and isinstance(function, Mapping) and {*function} == {"name"}
    if entry.get("type") != "function" or not isinstance(name, str) or not known:
        raise ConversationError("a tool_choice by name is {'type': 'function', 'function': {'name': …}}.")
    if name not in names:
        raise ConversationError(f"tool_choice names {name!r}, which is no tool{did_you_mean(name, names)}.")
    return name
