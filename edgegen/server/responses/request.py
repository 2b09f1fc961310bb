"""Requests of ``/v1/responses``: their parameters, checked by name, type and value."""

from collections.abc import Callable, Mapping
from reprlib import repr as shortened
from typing import Any, TypeVar, cast

from edgegen.batch.openai import from_json
from edgegen.chat import Conversation
from edgegen.errors import did_you_mean, one_or_list
from edgegen.server.api_error import ApiError
from edgegen.server.openai.request import given_parameters, switch
from edgegen.server.request_settings import OPTION_NAMES, RequestSettings
from edgegen.server.responses.input import read_input
from edgegen.server.responses.reasoning import read_effort, template_variables
from edgegen.server.responses.tools import read_tools
from edgegen.server.wire import ChatPrompt, WireRequest

RESPONSES = "/v1/responses"

_T = TypeVar("_T")

_RENAMED = {
    "max_output_tokens": "max_new_tokens",
    "stop": "stop_strings",
    "text": "response_format",
    "truncation": "context_overflow",
}
_TRUNCATION = {"auto": "drop_oldest", "disabled": "error"}
_KEPT_NOWHERE = "this server keeps no responses: leave it out, and send the whole conversation as 'input'"
REFUSED = {
    "previous_response_id": _KEPT_NOWHERE,
    "conversation": _KEPT_NOWHERE,
    "store": "this server keeps no responses: leave it out, or say false",
    "background": "this server keeps no responses to be fetched later: leave it out, or stream the answer",
    "prompt": "this server keeps no prompts: send 'instructions' and 'input'",
    "moderation": "nothing is moderated here: leave it out",
    "context_management": "nothing is compacted here: truncation 'auto' drops the oldest turns",
}
"""What is not supported, and what to do; false asks for nothing."""

_ELSEWHERE = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning",
    "functions": "tools",
    "function_call": "tool_choice",
    "verbosity": "text",
}
"""Parameters of chat completions, and what says the same here."""

_INCLUDED_LOGPROBS = "message.output_text.logprobs"
INCLUDABLE = (
    _INCLUDED_LOGPROBS,
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
"""What a response may include. Thoughts come in plain text, and the other items do not occur."""

_LABELS: Mapping[str, tuple[type, int, str]] = {
    "user": (str, 512, "a text of at most 512 characters"),
    "safety_identifier": (str, 64, "a text of at most 64 characters"),
    "prompt_cache_key": (str, 512, "a text of at most 512 characters"),
    "prompt_cache_retention": (str, 64, "a text of at most 64 characters"),
    "prompt_cache_options": (dict, 16, "an object"),
    "service_tier": (str, 64, "a text of at most 64 characters"),
    "metadata": (dict, 16, "an object of at most 16 texts"),
    "client_metadata": (dict, 64, "an object of at most 64 keys"),  # Codex tells of itself
}
"""Parameters that change nothing about the answer: type and most characters or keys of each."""

_MOST_KEY, _MOST_VALUE = 64, 512
"""Characters of ``metadata``."""

_NO_TOOL: Mapping[str, Any] = {"description": None, "parameters": None, "strict": False}
"""What a tool leaves out. Arguments follow its schema if that can be enforced, which is not promised."""

_OWN = (
    "model",
    "input",
    "instructions",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tool_calls",
    "reasoning",
    "include",
    *_LABELS,
    *REFUSED,
)
KNOWN = frozenset({*_OWN, *_RENAMED, *OPTION_NAMES})


def read_request(body: Mapping[str, Any]) -> WireRequest:
    """
    Raises:
        ApiError: a parameter is unknown, not supported, of another type or beyond its limit.
    """
    for name, here in _ELSEWHERE.items():
        if name in body:
            said = f"{name!r} is not a parameter of {RESPONSES}: it is {here!r} here."
            raise ApiError(400, said, param=name, code="unknown_parameter")
    given = given_parameters(body, RESPONSES, KNOWN)
    stream, parallel = switch(given, "stream"), switch(given, "parallel_tool_calls", default=True)
    _each(given, _refusals, _label_problems, _stream_options_problems, _max_tool_calls_problems)
    effort = _checked(given, "reasoning", read_effort)
    tools, choice = read_tools(given)
    prompt = ChatPrompt(
        Conversation(read_input(given), variables=template_variables(effort)),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel,
    )
    return WireRequest((prompt,), _settings(given), stream, follows=True)


def parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a response repeats of its request, which has been read."""
    reasoning: dict[str, Any] = given.get("reasoning", {})
    repeated = ("user", "safety_identifier", "prompt_cache_key")
    drops = given.get("context_overflow") == "drop_oldest"
    return {
        "background": False,
        "instructions": given.get("instructions"),
        "max_output_tokens": given.get("max_output_tokens", given.get("max_new_tokens")),
        "max_tool_calls": given.get("max_tool_calls"),
        "metadata": given.get("metadata", {}),
        "parallel_tool_calls": given.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
        "service_tier": "default",
        "store": False,
        "text": {"format": _format(given)},
        "tool_choice": given.get("tool_choice", "auto"),
        "tools": [{**_NO_TOOL, **tool} for tool in given.get("tools", [])],
        "truncation": given.get("truncation", "auto" if drops else "disabled"),
        **{name: given[name] for name in repeated if name in given},
    }


def _format(given: Mapping[str, Any]) -> object:
    """``text.format``, or ``response_format`` as it is here: the schema beside its type."""
    text: dict[str, Any] = given.get("text", {})
    form: object = text.get("format") or given.get("response_format", {"type": "text"})
    fields = cast(dict[str, Any], form) if isinstance(form, dict) else {}
    schema: object = fields.get("json_schema")
    if isinstance(schema, dict):
        return {"type": fields.get("type"), **cast(dict[str, Any], schema)}
    return cast(object, form)


def _settings(given: Mapping[str, Any]) -> RequestSettings:
    values, problems, said_by = dict[str, Any](), list[str](), dict[str, str]()
    for name, value in given.items():
        option = _RENAMED.get(name, name)
        if name in _OWN:
            continue
        if option in said_by:
            problems.append(f"{said_by[option]} and {name} would say the same: keep one of them")
        said_by[option] = name
        if name == "text":
            value = _checked(given, "text", read_format)
        elif name == "truncation":
            value = _checked(given, "truncation", _overflow)
        values[option] = from_json(option, value)
    settings = RequestSettings(values, given, _RENAMED)
    if given.get("num_return_sequences", 1) != 1:
        problems.append("num_return_sequences: a response is one answer: leave it out")
    if problems:
        raise settings.error(one_or_list(problems))
    values.setdefault("context_overflow", "error")
    if _checked(given, "include", _includes_logprobs):
        values.setdefault("logprobs", True)
    settings.check_limits()
    return settings


def _each(given: Mapping[str, Any], *checks: Callable[[Mapping[str, Any]], list[tuple[str, str]]]) -> None:
    """
    Raises:
        ApiError: lists what the checks find; its parameter is the first of theirs.
    """
    found = [one for check in checks for one in check(given)]
    if found:
        raise ApiError(400, one_or_list([said for _, said in found]), param=found[0][0])


def _checked(given: Mapping[str, Any], name: str, read: Callable[[Mapping[str, Any], list[str]], _T]) -> _T:
    """
    Raises:
        ApiError: about ``name``, where ``read`` finds problems.
    """
    problems = list[str]()
    value = read(given, problems)
    if problems:
        raise ApiError(400, one_or_list(problems), param=name)
    return value


def _refusals(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, f"{name}: {shortened(given[name])} is not supported, as {advice}")
        for name, advice in REFUSED.items()
        if given.get(name, False) is not False
    ]


def _label_problems(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = list[tuple[str, str]]()
    for name, (kind, most, expected) in _LABELS.items():
        value = given.get(name)
        if value is not None and (not isinstance(value, kind) or len(cast(str, value)) > most):
            found.append((name, f"{name}: {expected} expected, found {shortened(value)}"))
    metadata: object = given.get("metadata")
    for key, value in cast(dict[str, object], metadata).items() if isinstance(metadata, dict) else ():
        if len(key) > _MOST_KEY or not isinstance(value, str) or len(value) > _MOST_VALUE:
            said = f"metadata: names of at most {_MOST_KEY} and texts of at most {_MOST_VALUE} characters expected"
            found.append(("metadata", f"{said}, found {shortened(key)}: {shortened(value)}"))
    return found


def _stream_options_problems(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    options: object = given.get("stream_options")
    if options is None:
        return []
    if not isinstance(options, dict) or not given.get("stream"):
        return [("stream_options", "stream_options: an object expected, and 'stream': true beside it")]
    fields = cast(dict[str, object], options)
    known = ("include_obfuscation",)
    return [
        ("stream_options", f"{name!r} is not a key of stream_options{did_you_mean(name, known)}")
        for name in fields
        if name not in known
    ] + [
        ("stream_options", f"stream_options.{name}: true or false expected, found {shortened(fields[name])}")
        for name in known
        if name in fields and not isinstance(fields[name], bool | None)
    ]


def _max_tool_calls_problems(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A limit for tools of the server's own, of which there are none."""
    most = given.get("max_tool_calls", 0)
    return [] if type(most) is int and most >= 0 else [("max_tool_calls", "max_tool_calls: a number from 0 expected")]


def read_format(given: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
    """``text.format`` as chat completions have it; None for free text."""
    text: object = given.get("text")
    fields = cast(dict[str, Any], text) if isinstance(text, dict) else {}
    if not isinstance(text, dict):
        problems.append(
            f"text: an object such as {{'format': {{'type': 'json_object'}}}} expected, found {shortened(text)}"
        )
    known = ("format", "verbosity")
    problems += [f"{name!r} is not a key of text{did_you_mean(name, known)}" for name in fields if name not in known]
    if fields.get("verbosity") not in (None, "medium"):
        problems.append("text.verbosity is not supported: leave it out, and say in 'instructions' how long to answer")
    wanted: object = fields.get("format")
    if wanted is None:
        return None
    found = shortened(wanted)
    form = cast(dict[str, Any], wanted) if isinstance(wanted, dict) else {}
    kinds = ("text", "json_object", "json_schema")
    kind = form.get("type")
    if kind not in kinds:
        hint = did_you_mean(kind, kinds) if isinstance(kind, str) else ""
        problems.append(f"text.format is an object whose type is {', '.join(kinds)}, not {found}{hint}")
    elif kind == "json_schema":
        if not isinstance(form.get("schema"), dict | bool):
            problems.append("text.format: a json_schema has its schema at 'schema', beside 'type' and 'name'")
        if not isinstance(form.get("name"), str):
            problems.append("text.format: a json_schema has a 'name'")
        return {"type": kind, "json_schema": {name: value for name, value in form.items() if name != "type"}}
    return {"type": kind} if kind == "json_object" else None


def _overflow(given: Mapping[str, Any], problems: list[str]) -> str | None:
    asked: object = given["truncation"]
    found = _TRUNCATION.get(asked) if isinstance(asked, str) else None
    if found is None:
        hint = did_you_mean(asked, _TRUNCATION) if isinstance(asked, str) else ""
        problems.append(f"truncation: {' or '.join(_TRUNCATION)} expected, found {shortened(asked)}{hint}")
    return found


def _includes_logprobs(given: Mapping[str, Any], problems: list[str]) -> bool:
    include: object = given.get("include", [])
    if not isinstance(include, list):
        problems.append(f"include: a list of names expected, found {shortened(include)}")
        return False
    for name in cast(list[object], include):
        if name not in INCLUDABLE:
            hint = did_you_mean(name, INCLUDABLE) if isinstance(name, str) else ""
            problems.append(f"include: {shortened(name)} is nothing that a response can include{hint}")
    return _INCLUDED_LOGPROBS in include
