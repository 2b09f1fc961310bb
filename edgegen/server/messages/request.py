"""Anthropic's requests: what parameters of ``/v1/messages``, which fit their schemas, ask of a model."""

from collections.abc import Collection, Mapping
from reprlib import repr as shortened
from typing import Any

from edgegen.chat import Conversation
from edgegen.chat.tools import ToolChoice, Tools
from edgegen.errors import ConversationError, did_you_mean
from edgegen.openai.request import each_problem, from_json
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import THREAD_UNSUPPORTED
from edgegen.server.messages.blocks import read_messages
from edgegen.server.messages.schema import COUNT_REQUEST, RENAMED, REQUEST
from edgegen.server.wire.parameters import refusal
from edgegen.server.wire.request_settings import RequestSettings, named_options
from edgegen.server.wire.wire import ChatPrompt, WireRequest

_THINKS = {"enabled": True, "disabled": False, "adaptive": None}
"""Types of ``thinking``, and whether the model is to think; None leaves it to the model."""


def read_request(body: Mapping[str, Any]) -> WireRequest:
    """The request for a message.

    Raises:
        ApiError: lists everything that is wrong with the body.
    """
    _refuse_thread(body)
    given, problems = REQUEST.read(body), list[str]()
    prompt, values = _prompt(given, problems), _options(given, problems)
    settings = RequestSettings(values, given, RENAMED, wishes=_wishes(given))
    settings.check_limits()
    return WireRequest((_checked(prompt, problems),), settings, given.get("stream", False))


def read_count(body: Mapping[str, Any]) -> WireRequest:
    """The request for the number of tokens of a prompt.

    Raises:
        ApiError: as :func:`read_request`.
    """
    _refuse_thread(body)
    given, problems = COUNT_REQUEST.read(body), list[str]()
    prompt = _prompt(given, problems)
    settings = RequestSettings(_budget(given), given, {}, wishes=_wishes(given))
    return WireRequest((_checked(prompt, problems),), settings, stream=False, generates=False)


def _refuse_thread(body: Mapping[str, Any]) -> None:
    """Refuse a thread, before anything else: the SDK's tool runner begins with one, and then sends whole conversations.

    Raises:
        ApiError: there is one.
    """
    if body.get("thread") is not None:
        said = "thread: conversations are not kept here: leave it out, and send the whole conversation."
        raise ApiError(400, said, param="thread", code=THREAD_UNSUPPORTED)


def _checked(prompt: ChatPrompt | None, problems: list[str]) -> ChatPrompt:
    if prompt is None or problems:
        raise refusal(problems)
    return prompt


def _prompt(given: Mapping[str, Any], problems: list[str]) -> ChatPrompt | None:
    """The prompt; None where something is wrong with it."""
    read = read_messages(given.get("system"), given["messages"], problems)
    tools = _tools(given.get("tools", []), read.loaded, problems)
    choice, parallel = _tool_choice(given.get("tool_choice"), tools, problems)
    if problems:
        return None
    try:
        conversation = Conversation(read.messages, continue_final_message=read.continued)
    except ConversationError as error:
        raise ApiError.of(error) from None
    return ChatPrompt(conversation, tools, choice, parallel)


def _options(params: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    values, asked = dict[str, Any](), {name: value for name, value in params.items() if name != "thinking"}
    for name, option, value in named_options(asked, RENAMED, problems):
        # In Anthropic's API no number stands for all that fits.
        values[option] = value if name == "max_tokens" else from_json(option, value)
    budget, most = _budget(params), params.get("max_tokens")
    if budget and "max_thinking_tokens" in values:
        problems.append("max_thinking_tokens and thinking.budget_tokens would say the same: keep one of them")
    if budget and most is not None and (found := budget["max_thinking_tokens"]) >= most:
        problems.append(f"thinking.budget_tokens: less than max_tokens, {most}, expected, found {found}")
    values |= budget
    form = params.get("output_config", {}).get("format") or params.get("output_format")
    if form is not None:
        if "response_format" in values:
            problems.append("response_format and output_config.format would say the same: keep one of them")
        values["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": form["schema"]},
        }
    return values


def _budget(given: Mapping[str, Any]) -> dict[str, Any]:
    """The limit of the thoughts, as the option."""
    budget = given.get("thinking", {}).get("budget_tokens")
    return {} if budget is None else {"max_thinking_tokens": budget}


def _wishes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Whether to think, and how hard: limits and hints, which a model that cannot be told so leaves aside."""
    thinking = _THINKS[given["thinking"]["type"]] if "thinking" in given else None
    effort = given.get("output_config", {}).get("effort") if thinking is not False else None
    wishes = {"thinking": thinking, "reasoning_effort": effort}
    return {name: value for name, value in wishes.items() if value is not None}


def _tools(tools: list[Mapping[str, Any]], loaded: Collection[str], problems: list[str]) -> list[dict[str, Any]]:
    """The definitions in OpenAI's form, without those that are to be loaded later and have not been."""
    definitions = [_definition(tool) for tool in tools]
    try:
        Tools.read(definitions)
    except ConversationError as error:
        problems += each_problem(error)
    return [
        definition
        for tool, definition in zip(tools, definitions, strict=True)
        if tool.get("defer_loading") is not True or tool["name"] in loaded
    ]


def _definition(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool["input_schema"]
    if examples := tool.get("input_examples"):
        schema = {**schema, "examples": examples}
    told = {"name": tool["name"], "description": tool.get("description"), "parameters": schema}
    return {"type": "function", "function": {name: value for name, value in told.items() if value is not None}}


def _tool_choice(
    choice: Mapping[str, Any] | None, tools: list[dict[str, Any]], problems: list[str]
) -> tuple[ToolChoice | None, bool | None]:
    """The choice in OpenAI's form, and whether there may be several calls, if that is said."""
    if choice is None:
        return None, None
    kind, single = choice["type"], choice.get("disable_parallel_tool_use")
    names = [tool["function"]["name"] for tool in tools]
    if kind == "tool" and (name := choice["name"]) not in names:
        near = did_you_mean(name, names)
        problems.append(f"tool_choice.name: the name of one of tools expected, found {shortened(name)}{near}")
    elif kind == "any" and not names:
        problems.append("tool_choice: there are no tools: give tools with it, or leave it out")
    chosen: dict[str, ToolChoice] = {
        "any": "required",
        "tool": {"type": "function", "function": {"name": choice.get("name")}},
    }
    return chosen.get(kind, kind), None if single is None else not single
