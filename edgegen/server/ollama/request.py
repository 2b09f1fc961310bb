"""Ollama's requests: what parameters of ``/api/chat`` and ``/api/generate``, which fit their schemas, ask for."""

from collections.abc import Mapping, Sequence
from typing import Any

from edgegen.chat.tools import Tools
from edgegen.constraint.response_format import read_response_format
from edgegen.errors import ConversationError, OptionError, one_or_list, refuse_any
from edgegen.openai.request import each_problem
from edgegen.openai.request import read_chat as read_conversation
from edgegen.options.generation import GenerationOptions
from edgegen.server.ollama.options import RENAMED, keep_alive_seconds, read_options
from edgegen.server.ollama.prompt import GeneratePrompt, Memory
from edgegen.server.ollama.schema import CHAT_REQUEST, GENERATE_REQUEST
from edgegen.server.wire.fill import FillPrompt
from edgegen.server.wire.request_settings import RequestSettings
from edgegen.server.wire.wire import ChatPrompt, ModelPrompt, WireRequest


def read_chat(body: Mapping[str, Any]) -> WireRequest:
    """The request for an answer to a conversation; without messages it loads or unloads the model.

    Raises:
        ApiError: lists everything that is wrong with the body.
    """
    params, problems = CHAT_REQUEST.read(body), list[str]()
    settings = _settings(params, problems)
    try:
        Tools.read(params.get("tools", []))
    except ConversationError as error:
        problems += each_problem(error)
    if not params.get("messages"):
        return _load(params, settings, problems)
    conversation = read_conversation({"messages": read_messages(params["messages"])}, problems)
    if problems or conversation is None:
        raise settings.error(one_or_list(problems))
    return _wire_request(ChatPrompt(conversation, params.get("tools") or None), params, settings)


def read_generate(body: Mapping[str, Any]) -> WireRequest:
    """The request to answer a prompt, or to continue it; without one it loads or unloads the model.

    Raises:
        ApiError: lists everything that is wrong with the body.
    """
    params, problems = GENERATE_REQUEST.read(body), list[str]()
    prompt, suffix, system = params.get("prompt", ""), params.get("suffix", ""), params.get("system", "")
    raw, thinks = params.get("raw", False), params.get("think") not in (None, False)
    plain = "suffix" if suffix else "raw" if raw else None
    before = Memory.read(params["context"], problems) if params.get("context") else Memory()
    if plain:
        asked = {"system": system, "context": params.get("context"), "think": thinks}
        problems += [f"{name} goes with a chat template, and {plain} without one" for name, one in asked.items() if one]
    settings = _settings(params, problems, chat=plain is None)
    if not (prompt or suffix):
        return _load(params, settings, problems)
    refuse_any(problems, settings.error)
    chosen: str | ModelPrompt = prompt if raw else GeneratePrompt(prompt, system, before, thinks)
    return _wire_request(FillPrompt(prompt, suffix) if suffix else chosen, params, settings)


def read_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Ollama's messages as chat completions have them.

    Calls and their results are told apart by ids there. Those that have none are matched by name, and in their order.
    """
    read, calls, waiting = list[dict[str, Any]](), 0, list[tuple[str, str]]()
    for message in messages:
        fields = {name: value for name, value in message.items() if value is not None}
        converted: dict[str, Any] = {"role": fields["role"].lower(), "content": fields.get("content", "")}
        if fields.get("thinking"):
            converted["reasoning_content"] = fields["thinking"]
        if fields.get("tool_calls"):
            converted["tool_calls"] = list[Any]()
        for call in fields.get("tool_calls") or ():
            function, calls = call["function"], calls + 1
            # Nine letters and digits, which every template accepts.
            call_id = call.get("id") or f"call{calls:05}"
            waiting.append((call_id, function["name"]))
            shown = {"name": function["name"], "arguments": function["arguments"]}
            converted["tool_calls"].append({"id": call_id, "type": "function", "function": shown})
        if converted["role"] == "tool":
            converted |= _answered(fields, waiting)
        read.append(converted)
    return read


def _answered(fields: Mapping[str, Any], waiting: list[tuple[str, str]]) -> dict[str, str]:
    """The id and the name of the call that a result is of; it waits no more.

    ``name`` is what OpenAI's API and older clients of ollama call ``tool_name``.
    """
    older = fields.get("name")
    call_id, name = fields.get("tool_call_id"), fields.get("tool_name") or (older if isinstance(older, str) else None)
    fitting = [one for one in waiting if call_id in (None, "", one[0]) and name in (None, "", one[1])]
    found = fitting[0] if fitting else (call_id or "", name or "")
    if fitting:
        waiting.remove(found)
    return {key: value for key, value in zip(("tool_call_id", "name"), found, strict=True) if value}


def _load(given: Mapping[str, Any], settings: RequestSettings, problems: list[str]) -> WireRequest:
    """The request for nothing but the model."""
    seconds = keep_alive_seconds(given.get("keep_alive"))
    if seconds == 0:  # no model is there to check them
        problems += _option_problems(settings.values)
    refuse_any(problems, settings.error)
    return WireRequest((), settings, stream=False, generates=False, keep_alive=seconds, unloads=seconds == 0)


def _option_problems(values: Mapping[str, Any]) -> list[str]:
    """Return the problems of options, whichever model has them."""
    try:
        options = GenerationOptions().override(values)
        read_response_format(options.response_format)
    except OptionError as error:
        return each_problem(error)
    return []


def _wire_request(
    prompt: str | ChatPrompt | ModelPrompt, given: Mapping[str, Any], settings: RequestSettings
) -> WireRequest:
    return WireRequest(
        (prompt,), settings, given.get("stream", True), keep_alive=keep_alive_seconds(given.get("keep_alive"))
    )


def _settings(params: Mapping[str, Any], problems: list[str], *, chat: bool = True) -> RequestSettings:
    """The generation options; ``chat``: those of chats are among them."""
    options: dict[str, Any] = params.get("options", {})
    values, wishes = read_options(options, problems), dict[str, Any]()
    values |= {name: params[name] for name in ("logprobs", "top_logprobs") if name in params}
    if form := params.get("format"):
        problems += [f"format and options.{name} both say what the text must be: keep one of them"
                     for name in ("response_format", "grammar") if name in values]  # fmt: skip
        schema = {"type": "json_schema", "json_schema": {"name": "format", "schema": form}}
        values["response_format"] = {"type": "json_object"} if form == "json" else schema
    think = params.get("think")
    twice = [name for name in ("thinking", "reasoning_effort") if name in values and think is not None]
    problems += [f"think and options.{name} would say the same: keep one of them" for name in twice]
    if isinstance(think, str):
        values["reasoning_effort"] = think
    elif think:
        values["thinking"] = True
    elif think is False and not twice and chat:
        # A model that cannot be told not to think has its thoughts ended at once.
        wishes = {"thinking": False, "max_thinking_tokens": 0}
    values.setdefault("context_overflow", "drop_oldest" if params.get("truncate", True) else "error")
    body = {**options, **{name: value for name, value in params.items() if name != "options"}}
    settings = RequestSettings(values, body, RENAMED, wishes=wishes)
    settings.check_limits()
    return settings
