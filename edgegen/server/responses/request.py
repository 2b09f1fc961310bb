"""Requests of ``/v1/responses``: what their parameters, which fit the schema, ask for."""

from collections.abc import Mapping
from typing import Any, cast

from edgegen.chat import Conversation
from edgegen.errors import one_or_list
from edgegen.openai.request import from_json
from edgegen.server.responses.input import read_input
from edgegen.server.responses.schema import INCLUDED_LOGPROBS, RENAMED, REQUEST
from edgegen.server.responses.tools import read_tools
from edgegen.server.wire.parameters import check_stream_options
from edgegen.server.wire.request_settings import RequestSettings, named_options
from edgegen.server.wire.wire import ChatPrompt, WireRequest

_TRUNCATION = {"auto": "drop_oldest", "disabled": "error"}

_NO_TOOL: Mapping[str, Any] = {"description": None, "parameters": None, "strict": False}
"""Defaults of a tool. Arguments follow its schema if that can be enforced, which is not promised."""


def read_request(body: Mapping[str, Any]) -> WireRequest:
    """The request that a body of ``/v1/responses`` is.

    Raises:
        ApiError: a parameter is unknown, not supported, of another type or beyond its limit.
    """
    params = REQUEST.read(body)
    check_stream_options(params)
    tools, choice = read_tools(params)
    prompt = ChatPrompt(
        Conversation(read_input(params)),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=params.get("parallel_tool_calls"),
    )
    return WireRequest((prompt,), _settings(params), params.get("stream", False), follows=True)


def parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a response repeats of its request, which has been read."""
    reasoning: dict[str, Any] = params.get("reasoning", {})
    most = params.get("max_output_tokens", params.get("max_new_tokens"))
    repeated = ("user", "safety_identifier", "prompt_cache_key")
    drops = params.get("context_overflow") == "drop_oldest"
    return {
        "background": False,
        "instructions": params.get("instructions"),
        "max_output_tokens": None if most == -1 else most,  # -1 is all that fits
        "max_tool_calls": params.get("max_tool_calls"),
        "metadata": params.get("metadata", {}),
        "parallel_tool_calls": params.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
        "service_tier": "default",
        "store": False,
        "text": {"format": _format(params)},
        "tool_choice": params.get("tool_choice", "auto"),
        "tools": [{**_NO_TOOL, **tool} for tool in params.get("tools", [])],
        "truncation": params.get("truncation", "auto" if drops else "disabled"),
        **{name: params[name] for name in repeated if name in params},
    }


def _format(params: Mapping[str, Any]) -> object:
    """``text.format``, or ``response_format`` as it is here: the schema beside its type."""
    text: dict[str, Any] = params.get("text", {})
    form: object = text.get("format") or params.get("response_format", {"type": "text"})
    fields = cast(dict[str, Any], form) if isinstance(form, dict) else {}
    schema: object = fields.get("json_schema")
    if isinstance(schema, dict):
        return {"type": fields.get("type"), **cast(dict[str, Any], schema)}
    return cast(object, form)


def _settings(params: Mapping[str, Any]) -> RequestSettings:
    values, problems = dict[str, Any](), list[str]()
    for name, option, value in named_options(params, RENAMED, problems):
        if name == "text":
            value = _response_format(value.get("format"))
        elif name == "truncation":
            value = _TRUNCATION[value]
        values[option] = from_json(option, value)
    settings = RequestSettings(values, params, RENAMED)
    if problems:
        raise settings.error(one_or_list(problems))
    values.setdefault("context_overflow", "error")
    if INCLUDED_LOGPROBS in params.get("include", []):
        values.setdefault("logprobs", True)
    if effort := params.get("reasoning", {}).get("effort"):
        values["reasoning_effort"] = effort
    settings.check_limits()
    return settings


def _response_format(form: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """``text.format`` as chat completions have it; None for free text."""
    if form is None or form["type"] == "text":
        return None
    if form["type"] == "json_object":
        return {**form}
    return {"type": "json_schema", "json_schema": {name: value for name, value in form.items() if name != "type"}}
