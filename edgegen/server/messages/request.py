"""Anthropic's requests: parameters, tools and thinking of ``/v1/messages``, checked by name and type."""

from collections.abc import Collection, Mapping
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.batch.openai import each_problem, from_json
from edgegen.chat import Conversation
from edgegen.chat.tools import ToolChoice, Tools
from edgegen.errors import ConversationError, did_you_mean, one_or_list
from edgegen.server.api_error import ApiError
from edgegen.server.messages.blocks import read_messages, strange_keys
from edgegen.server.messages_error import MESSAGES
from edgegen.server.options import MOST_TOOLS
from edgegen.server.parameters import given_parameters, switch
from edgegen.server.request_settings import OPTION_NAMES, RequestSettings
from edgegen.server.wire import ChatPrompt, WireRequest

PROMPT = ("messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format")
"""Parameters that make the prompt."""

ASKS_NOTHING = (
    "model",
    "metadata",
    "cache_control",
    "context_management",
    "service_tier",
    "speed",
    "inference_geo",
    "user_profile_id",
    "workspace_id",
    "diagnostics",
    "billing_policy",
    "fallbacks",
    "fallback_credit_token",
    "betas",
)
"""Parameters that change no text here. Prefix caching needs no ``cache_control``."""

_UNSUPPORTED = ("container", "mcp_servers", "compaction", "thread")
_RENAMED = {"max_tokens": "max_new_tokens", "stop_sequences": "stop_strings"}
_ONE_ANSWER: Mapping[str, Any] = {"num_return_sequences": 1, "logprobs": False, "top_logprobs": 0}
"""Options that a message has no place for, with the value that asks for nothing."""

COUNTED = frozenset({*PROMPT, *ASKS_NOTHING, *_UNSUPPORTED})
KNOWN = COUNTED | {"stream", *_RENAMED, *OPTION_NAMES}

_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""Anthropic's levels, and those that templates know."""

TOOL_KEYS = (
    "name",
    "description",
    "input_schema",
    "type",
    "cache_control",
    "strict",
    "defer_loading",
    "input_examples",
    "allowed_callers",
    "eager_input_streaming",
)
THINKING_KEYS: Mapping[str, tuple[str, ...]] = {
    "enabled": ("type", "budget_tokens", "display", "block_binding"),
    "disabled": ("type",),
    "adaptive": ("type", "display", "block_binding"),
}
_LEAST_BUDGET = 1024
"""Tokens that ``thinking`` may be given at least, by Anthropic's rule."""


def read_request(body: Mapping[str, Any]) -> WireRequest:
    """The request for a message.

    Raises:
        ApiError: lists everything that is wrong with the body.
    """
    given, problems = given_parameters(body, MESSAGES, KNOWN), list[str]()
    stream = switch(given, "stream")
    prompt = _prompt(given, problems)
    values = _options(given, problems)
    settings = RequestSettings(values, given, _RENAMED)
    settings.check_limits()
    return WireRequest((_checked(prompt, problems),), settings, stream)


def read_count(body: Mapping[str, Any], url: str) -> WireRequest:
    """The request for the number of tokens of a prompt.

    Raises:
        ApiError: as :func:`read_request`.
    """
    given, problems = given_parameters(body, url, COUNTED), list[str]()
    prompt = _prompt(given, problems)
    _response_format(given, problems)
    settings = RequestSettings({}, given, {})
    return WireRequest((_checked(prompt, problems),), settings, stream=False, generates=False)


def hides_thoughts(given: Mapping[str, Any]) -> bool:
    """Whether ``thinking`` asks for blocks without their text."""
    return _part(given, "thinking").get("display") == "omitted"


def _checked(prompt: ChatPrompt | None, problems: list[str]) -> ChatPrompt:
    if prompt is None or problems:
        raise ApiError(400, one_or_list(problems) + ("." if len(problems) == 1 else ""))
    return prompt


def _prompt(given: Mapping[str, Any], problems: list[str]) -> ChatPrompt | None:
    """The prompt; None where something is wrong with it."""
    problems += [f"{name} is not supported: leave it out" for name in _UNSUPPORTED if given.get(name) not in (None, [])]
    read = read_messages(given.get("system"), given.get("messages"), problems)
    tools = _tools(given.get("tools"), read.loaded, problems)
    choice, parallel = _tool_choice(given, tools, problems)
    variables = _thinking(given, problems) | _effort(given, problems)
    if problems:
        return None
    try:
        conversation = Conversation(read.messages, continue_final_message=read.continued, variables=variables)
    except ConversationError as error:
        raise ApiError.of(error) from None
    return ChatPrompt(conversation, tools, choice, parallel)


def _options(given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    values, said_by = dict[str, Any](), dict[str, str]()
    for name, value in given.items():
        option = _RENAMED.get(name, name)
        if option not in OPTION_NAMES:
            continue
        if name in _ONE_ANSWER and value != _ONE_ANSWER[name]:
            problems.append(f"{name}: a message is one answer without log-probabilities: leave it out")
        elif option in values:
            problems.append(f"{said_by[option]} and {name} would say the same: keep one of them")
        else:
            values[option], said_by[option] = from_json(option, value), name
    if "max_new_tokens" not in values:
        problems.append("max_tokens is missing: say how many tokens the answer may have")
    if (wanted := _response_format(given, problems)) is not None:
        if "response_format" in values:
            problems.append("response_format and output_config.format would say the same: keep one of them")
        values["response_format"] = wanted
    return values


def _response_format(given: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
    """The ``output_config`` as the option that constrains an answer; ``output_format`` is its older name."""
    config = _part(given, "output_config")
    if not isinstance(given.get("output_config", {}), dict):
        problems.append("output_config: an object expected")
    problems += strange_keys("output_config", config, ("format", "effort"))
    where, value = "output_config.format", cast(object, config.get("format"))
    if value is None:
        where, value = "output_format", cast(object, given.get("output_format"))
    if value is None:
        return None
    form: Mapping[str, Any] = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    if form.get("type") != "json_schema" or not isinstance(form.get("schema"), dict):
        problems.append(f"{where}: {{'type': 'json_schema', 'schema': {{…}}}} expected")
        return None
    problems += strange_keys(where, form, ("type", "schema"))
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": form["schema"]}}


def _effort(given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The variable of templates that can be told how hard to think."""
    effort = _part(given, "output_config").get("effort")
    if effort is None:
        return {}
    if not isinstance(effort, str) or effort not in _EFFORTS:
        near = did_you_mean(effort, _EFFORTS) if isinstance(effort, str) else ""
        problems.append(f"output_config.effort: {', '.join(_EFFORTS)} expected, found {shortened(effort)}{near}")
        return {}
    return {"reasoning_effort": _EFFORTS[effort]}


def _thinking(given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The variables by which templates switch thinking on and off; none where a model is to decide by itself."""
    if "thinking" not in given:
        return {}
    entry, kinds = _part(given, "thinking"), tuple(THINKING_KEYS)
    kind, budget, display = entry.get("type"), entry.get("budget_tokens"), entry.get("display")
    if not isinstance(kind, str) or kind not in kinds:
        near = did_you_mean(kind, kinds) if isinstance(kind, str) else ""
        problems.append(f"thinking: an object whose type is {', '.join(kinds)} expected{near}")
        return {}
    problems += strange_keys("thinking", entry, THINKING_KEYS[kind])
    if display not in (None, "summarized", "updates", "omitted"):
        problems.append(f"thinking.display: summarized, updates or omitted expected, found {shortened(display)}")
    if kind == "enabled":
        most: Any = given.get("max_tokens")
        if type(budget) is not int or budget < _LEAST_BUDGET:
            problems.append(f"thinking.budget_tokens: at least {_LEAST_BUDGET} expected, found {shortened(budget)}")
        elif type(most) is int and budget >= most:
            problems.append(f"thinking.budget_tokens: less than max_tokens, {most}, expected, found {budget}")
        return {"enable_thinking": True, "thinking": True, "thinking_budget": budget}
    if kind == "disabled":
        return {"enable_thinking": False, "thinking": False, "thinking_budget": 0}
    return {}


def _tools(tools: object, loaded: Collection[str], problems: list[str]) -> list[dict[str, Any]]:
    """The definitions in OpenAI's form, without those that are to be loaded later and have not been."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        problems.append(f"tools: a list expected, found {shortened(tools)}")
        return []
    entries, known = cast(list[object], tools), len(problems)
    if len(entries) > MOST_TOOLS:
        problems.append(f"tools: at most {MOST_TOOLS}, found {len(entries)}")
        return []
    definitions = [_definition(f"tools[{n}]", entry, problems) for n, entry in enumerate(entries)]
    if len(problems) > known:
        return []
    try:
        Tools.read(definitions)
    except ConversationError as error:
        named = ((".function.name", ".name"), (".function.parameters", ".input_schema"))
        for problem in each_problem(error):
            for theirs, ours in named:
                problem = problem.replace(theirs, ours)
            problems.append(problem.removesuffix("."))
    later = [cast(dict[str, Any], entry).get("defer_loading") is True for entry in entries]
    return [
        definition
        for definition, deferred in zip(definitions, later, strict=True)
        if not deferred or definition["function"].get("name") in loaded
    ]


def _definition(where: str, tool: object, problems: list[str]) -> dict[str, Any]:
    if not isinstance(tool, dict):
        problems.append(f"{where}: a tool such as {{'name': …, 'input_schema': {{…}}}} expected")
        return {}
    entry = cast(dict[str, Any], tool)
    if entry.get("type") not in (None, "custom"):
        said = "only custom tools, with an input_schema, are supported"
        problems.append(f"{where} is of type {shortened(entry['type'])}: {said}")
        return {}
    problems += strange_keys(where, entry, TOOL_KEYS)
    schema, description = entry.get("input_schema"), entry.get("description")
    if not isinstance(schema, dict):
        problems.append(f"{where}.input_schema: a JSON schema expected, found {shortened(schema)}")
        return {}
    if description is not None and not isinstance(description, str):
        problems.append(f"{where}.description: text expected, found {shortened(description)}")
    parameters = cast(dict[str, Any], schema)
    if examples := entry.get("input_examples"):
        parameters = {**parameters, "examples": examples}
    told = {"name": entry.get("name"), "description": description, "parameters": parameters}
    return {"type": "function", "function": {name: value for name, value in told.items() if value is not None}}


def _tool_choice(
    given: Mapping[str, Any], tools: list[dict[str, Any]], problems: list[str]
) -> tuple[ToolChoice | None, bool]:
    """The choice in OpenAI's form, and whether there may be several calls."""
    if "tool_choice" not in given:
        return None, True
    entry, kinds = _part(given, "tool_choice"), ("auto", "any", "tool", "none")
    kind, name, single = entry.get("type"), entry.get("name"), entry.get("disable_parallel_tool_use", False)
    if kind not in kinds:
        near = did_you_mean(kind, kinds) if isinstance(kind, str) else ""
        problems.append(f"tool_choice: an object whose type is {', '.join(kinds)} expected{near}")
        return None, True
    known = ("type", *(["name"] if kind == "tool" else []), *(["disable_parallel_tool_use"] if kind != "none" else []))
    problems += strange_keys("tool_choice", entry, known)
    if not isinstance(single, bool):
        problems.append("tool_choice.disable_parallel_tool_use: true or false expected")
    names = [found for tool in tools if isinstance(found := tool.get("function", {}).get("name"), str)]
    if kind == "tool" and (not isinstance(name, str) or name not in names):
        near = did_you_mean(name, names) if isinstance(name, str) else ""
        problems.append(f"tool_choice.name: the name of one of tools expected, found {shortened(name)}{near}")
    elif kind == "any" and not names:
        problems.append("tool_choice: there are no tools: give tools with it, or leave it out")
    choices: dict[str, ToolChoice] = {"any": "required", "tool": {"type": "function", "function": {"name": name}}}
    return choices.get(kind, kind), single is not True


def _part(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object in a body; empty where it is none."""
    value: Any = given.get(name)
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
