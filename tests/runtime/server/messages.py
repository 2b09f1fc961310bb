"""Requests and streams of Anthropic's Messages API, for its tests."""

import json
from typing import Any

from tests.runtime.saying import CALL, TEMPLATE, THINKING

MESSAGES, COUNT_TOKENS = "/v1/messages", "/v1/messages/count_tokens"

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

TWO_CALLS = f"I look.\n{CALL}\n{CALL.replace('Oslo', 'Rome')}"

STREAMED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "text": ("It rains.", TEMPLATE, {}),
    "nothing": ("", TEMPLATE, {}),
    "calls": (TWO_CALLS, TEMPLATE, {"tools": [WEATHER]}),
    "a stop": ("One. Two.", TEMPLATE, {"stop_sequences": [". T"]}),
    "a limit": ("One. Two.", TEMPLATE, {"max_tokens": 4}),
    "thoughts": ("Hm.\n</think>\n\nYes.", THINKING, {}),
    "thoughts and a call": (f"Hm.\n</think>\n\n{CALL}", THINKING, {"tools": [WEATHER]}),
    "hidden thoughts": ("Hm.\n</think>\n\nYes.", THINKING, {"thinking": {"type": "adaptive", "display": "omitted"}}),
    "edits": ("Yes.", TEMPLATE, {"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}),
}
"""Text of the model, its template, and what a request asks beside the message."""


def error_of(response: Any, status: int) -> dict[str, Any]:
    """The error of a refusal; it is as Anthropic's API has them."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert body["request_id"].startswith("req_")
    assert body["error"].keys() == {"type", "message"}
    return body["error"]


def events_of(response: Any, *, whole: bool = True) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream by name, without pings; a ``whole`` one ends as it should."""
    assert response.headers["content-type"].startswith("text/event-stream")
    *parts, rest = response.text.split("\n\n")
    assert rest == ""
    events = list[tuple[str, dict[str, Any]]]()
    for part in parts:
        head, _, data = part.partition("\ndata: ")
        name, content = head.removeprefix("event: "), json.loads(data)
        assert content["type"] == name
        if name != "ping":
            events.append((name, content))
    if whole:
        assert [events[0][0], *(name for name, _ in events[-2:])] == ["message_start", "message_delta", "message_stop"]
    return events


def assembled(events: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """The message that a client puts together from the events of a stream."""
    message: dict[str, Any] = events[0][1]["message"]
    arguments, opened = "", None
    for name, event in events[1:]:
        if name == "content_block_start":
            assert (opened, event["index"]) == (None, len(message["content"]))
            opened, arguments = event["index"], ""
            message["content"].append(event["content_block"])
        elif name == "content_block_delta":
            assert event["index"] == opened
            block, delta = message["content"][-1], event["delta"]
            match delta["type"]:
                case "text_delta":
                    block["text"] += delta["text"]
                case "thinking_delta":
                    block["thinking"] += delta["thinking"]
                case "signature_delta":
                    block["signature"] += delta["signature"]
                case "input_json_delta":
                    arguments += delta["partial_json"]
                case other:
                    raise AssertionError(other)
        elif name == "content_block_stop":
            assert event["index"] == opened
            if message["content"][-1]["type"] == "tool_use":
                message["content"][-1]["input"] = json.loads(arguments)
            opened = None
        elif name == "message_delta":
            assert opened is None
            more = {name: value for name, value in event.items() if name == "context_management"}
            message |= event["delta"] | more
            message["usage"] |= event["usage"]
    return message
