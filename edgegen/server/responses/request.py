"""Requests of ``/v1/responses``: what their parameters, which fit the schema, ask for."""

from collections.abc import Callable, Mapping, Sequence
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.chat import Conversation
from edgegen.chat.tools import ToolChoice, Tools
from edgegen.errors import ConversationError, did_you_mean, refuse_any
from edgegen.openai.request import from_json
from edgegen.server.http.api_error import ApiError
from edgegen.server.responses.schema import INCLUDED_LOGPROBS, RENAMED, REQUEST
from edgegen.server.wire.parameters import check_stream_options, refusal
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
    refuse_any(problems, settings.error)
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


_Item = Mapping[str, Any]


def read_input(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``instructions`` and ``input``, which fit their schemas, as messages.

    Raises:
        ApiError: lists the outputs of tool calls without a call.
    """
    value: str | list[_Item] = params["input"]
    items: list[_Item] = [{"role": "user", "content": value}] if isinstance(value, str) else value
    reader = _ItemReader()
    if instructions := params.get("instructions"):
        reader.read({"role": "system", "content": instructions}, "instructions")
    for n, item in enumerate(items):
        reader.read(item, f"input[{n}]")
    if reader.problems:
        raise refusal(reader.problems, "input")
    return reader.messages


class _ItemReader:
    """Reads items one by one. Thoughts, text and calls of one answer, which are items of their own, are one message."""

    def __init__(self) -> None:
        self.messages = list[dict[str, Any]]()
        self.problems = list[str]()
        self._calls = list[str]()
        self._answer: dict[str, Any] | None = None
        self._readers: Mapping[str, Callable[[_Item, str], None]] = {
            "message": self._message,
            "function_call": self._call,
            "function_call_output": self._output,
            "reasoning": self._reasoning,
        }

    def read(self, item: _Item, where: str) -> None:
        """Read an item; ``where`` names it in errors."""
        self._readers[item.get("type", "message")](item, where)

    def _message(self, item: _Item, where: str) -> None:
        role, text = item["role"], _text(item["content"])
        if role == "assistant":
            answer = self._answer
            if answer is None or (answer["content"] and "tool_calls" not in answer):
                answer = self._begin_answer()
            answer["content"] += text
        else:
            self._append({"role": role, "content": text})

    def _call(self, item: _Item, where: str) -> None:
        self._calls.append(item["call_id"])
        answer = self._answer or self._begin_answer()
        function = {"name": item["name"], "arguments": item.get("arguments")}
        answer.setdefault("tool_calls", []).append({"id": item["call_id"], "type": "function", "function": function})

    def _output(self, item: _Item, where: str) -> None:
        call_id = item["call_id"]
        if call_id not in self._calls:
            hint = did_you_mean(call_id, self._calls)
            self.problems.append(
                f"{where}.call_id is {shortened(call_id)}, and no function_call before it has that{hint}: "
                "send the call before its output"
            )
        self._append({"role": "tool", "tool_call_id": call_id, "content": _text(item["output"])})

    def _reasoning(self, item: _Item, where: str) -> None:
        thoughts = ("\n".join(part["text"] for part in item.get(name) or ()) for name in ("content", "summary"))
        text = next(filter(None, thoughts), "")
        if not text:
            return
        answer = self._answer
        if answer is None or answer["content"] or "tool_calls" in answer:
            answer = self._begin_answer()
        before = answer.get("reasoning_content")
        answer["reasoning_content"] = f"{before}\n{text}" if before else text

    def _begin_answer(self) -> dict[str, Any]:
        answer = {"role": "assistant", "content": ""}
        self._append(answer)
        self._answer = answer
        return answer

    def _append(self, message: dict[str, Any]) -> None:
        self._answer = None
        self.messages.append(message)


def _text(content: str | Sequence[_Item]) -> str:
    """A text, or the texts of a list of parts, in lines."""
    if isinstance(content, str):
        return content
    return "\n".join(part["refusal" if part["type"] == "refusal" else "text"] for part in content)


def read_tools(params: Mapping[str, Any]) -> tuple[list[dict[str, Any]], ToolChoice | None]:
    """``tools`` and ``tool_choice`` as chat completions have them; no choice where there are no tools.

    Raises:
        ApiError: a tool is given twice, or the choice names none.
    """
    tools: list[dict[str, Any]] = [_definition(tool) for tool in params.get("tools", [])]
    choice: Any = params.get("tool_choice", "auto")
    names = [tool["function"]["name"] for tool in tools]
    allowed = names
    if isinstance(choice, dict):
        chosen = cast(dict[str, Any], choice)
        if chosen["type"] == "allowed_tools":
            allowed = [entry["name"] for entry in chosen["tools"]]
            choice = chosen.get("mode") or "auto"
        else:
            choice = {"type": "function", "function": {"name": chosen["name"]}}
    problems = [
        f"tool_choice allows {name!r}, which is no tool{did_you_mean(name, names)}"
        for name in allowed
        if name not in names
    ]
    if problems:
        raise refusal(problems, "tool_choice")
    try:
        Tools.read(tools, choice)
    except ConversationError as error:
        about = "tool_choice" if str(error).startswith(("tool_choice", "a tool_choice")) else "tools"
        raise ApiError(400, str(error), param=about) from None
    return [tool for tool in tools if tool["function"]["name"] in allowed], choice if tools else None


def _definition(tool: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: tool.get(name) for name in ("name", "description", "parameters")}
    return {"type": "function", "function": {name: value for name, value in told.items() if value is not None}}
