"""Keys that clients put on the wire beside what was asked: they are accepted, and change no answer."""

from copy import deepcopy
from typing import Any

import pytest

from tests.clients.asked import ASKED, PET, TOKENS, TOOLS, WEATHER, reported
from tests.clients.conftest import Ask

CALLS: list[dict[str, Any]] = [
    {"id": f"call_{n}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    for n, arguments in enumerate(('{"city": "Oslo", "days": 2}', '{"city": "Rome", "days": 3}'))
]
CALLED = reported({"role": "assistant", "content": None, "tool_calls": CALLS})
SPOKEN = [*ASKED, {"role": "assistant", "content": "Rain."}, {"role": "user", "content": "And then?"}]

ANSWERS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "openai: the message of create": (SPOKEN, {"refusal": None}),
    "openai: model_dump": (
        SPOKEN,
        {"refusal": None, "annotations": None, "audio": None, "function_call": None, "tool_calls": None},
    ),
    "openai: the message of parse": (SPOKEN, {"refusal": None, "parsed": {"name": "Rex"}, "tool_calls": None}),
    "openai: calls": (CALLED, {"refusal": None, "parsed": None, "content": ""}),
    "litellm: no content": (CALLED, {"content": ...}),
    "litellm: fields of providers": (SPOKEN, {"provider_specific_fields": {"refusal": None}, "function_call": None}),
    "empty tool_calls": (SPOKEN, {"tool_calls": []}),
    "langchain: parts": (SPOKEN, {"content": [{"type": "text", "text": "Rain."}]}),
    "Anthropic's cache_control": (
        SPOKEN,
        {"content": [{"type": "text", "text": "Rain.", "cache_control": {"type": "ephemeral"}}]},
    ),
}
"""The conversation, and what a client's version of its assistant's message has (``...``: what it leaves out)."""


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("tools", [{"tools": [WEATHER]}, {}], ids=["tools repeated", "tools left out"])
def test_an_answer_sent_back(ask: Ask, name: str, tools: dict[str, Any]) -> None:
    messages, added = ANSWERS[name]
    message = {key: value for key, value in {**messages[1], **added}.items() if value is not ...}
    expected = ask(messages, max_tokens=TOKENS, **tools)
    assert ask([messages[0], message, *messages[2:]], max_tokens=TOKENS, **tools) == expected


def test_calls_sent_back_with_the_fields_of_streams_and_parsers(ask: Ask) -> None:
    messages = deepcopy(CALLED)
    for index, call in enumerate(messages[1]["tool_calls"]):
        call["index"] = index
        call["function"]["parsed_arguments"] = {"city": "Oslo"}
    for result in messages[2:]:
        result["name"] = "get_weather"
    assert ask(messages, max_tokens=TOKENS, tools=[WEATHER]) == ask(CALLED, max_tokens=TOKENS, tools=[WEATHER])


def test_parts_of_the_user_and_their_cache_control(ask: Ask) -> None:
    parts = [{"type": "text", "text": ASKED[0]["content"], "cache_control": {"type": "ephemeral"}}]
    for message in ({"content": parts}, {"content": parts, "cache_control": {"type": "ephemeral"}}):
        assert ask([{"role": "user", **message}], max_tokens=TOKENS) == ask(ASKED, max_tokens=TOKENS)


PARAMETERS: dict[str, dict[str, Any]] = {
    "langchain": {"stream": False, "n": 1, "logprobs": None, "parallel_tool_calls": True},
    "litellm": {"user": "me", "metadata": {"a": "b"}, "n": 1},
    "llama-index": {"stream": False, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []},
    "Vercel's ai": {"frequency_penalty": None, "top_p": 1, "user": "me", "tools": None},
    "openai": {"store": False, "service_tier": "auto", "safety_identifier": "me", "modalities": ["text"]},
    "verbosity": {"verbosity": "medium"},
    "prompt caching": {"prompt_cache_key": "a", "prompt_cache_options": {}},
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_that_change_nothing(ask: Ask, name: str) -> None:
    assert ask(ASKED, max_tokens=TOKENS, **PARAMETERS[name]) == ask(ASKED, max_tokens=TOKENS)


@pytest.mark.parametrize("strict", [True, False, None])
def test_tools_with_strict_and_the_schema_s_own_address(ask: Ask, strict: bool | None) -> None:
    """``$schema`` is Vercel's; ``strict`` is openai's, langchain's, llama-index's and pydantic-ai's."""
    tool = deepcopy(WEATHER)
    tool["function"]["strict"] = strict
    tool["function"]["parameters"] |= {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "get_weather",
        "additionalProperties": False,
    }
    said = ask(ASKED, **{**TOOLS, "tools": [tool]})
    assert {call["function"]["name"] for call in said["tool_calls"]} == {"get_weather"}


def test_a_schema_s_own_address(ask: Ask) -> None:
    def schema(**more: Any) -> dict[str, Any]:
        return {"type": "json_schema", "json_schema": {"name": "Pet", "schema": PET | more, "strict": True}}

    described = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Pet", "description": "A pet."}
    assert ask(ASKED, response_format=schema(**described)) == ask(ASKED, response_format=schema())
