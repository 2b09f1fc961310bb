"""The ``openai`` client: its chat completions, and its helpers for streams and structured output."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.asked import (
    ASKED,
    ENDING,
    KEY,
    MISSPELT,
    PET,
    QUESTION,
    SAID_OF_LENGTH,
    SAID_OF_MODEL,
    SAID_OF_PARAMETER,
    TOKENS,
    TOO_LONG,
    TOOLS,
    WEATHER,
    WRONG_MODEL,
    calls_of,
    reported,
)
from tests.clients.conftest import Ask
from tests.clients.model import NAME
from tests.waiting import PATIENCE_S

openai: Any = pytest.importorskip("openai", reason="the openai client is not installed")


@pytest.fixture(scope="module")
def completions(base_url: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=base_url, api_key=KEY, max_retries=0, timeout=PATIENCE_S) as client:
        yield client.chat.completions


def test_chat(completions: Any, ask: Ask, any_model: str) -> None:
    answer = completions.create(model=any_model, messages=ASKED, temperature=0, **ENDING)
    said = answer.choices[0].message
    assert said.content == ask(ASKED, model=any_model, **ENDING)["content"] != ""
    more = [*ASKED, said, {"role": "user", "content": "And then?"}]
    completions.create(model=any_model, messages=more, max_tokens=TOKENS, temperature=0)


def test_stream(completions: Any, ask: Ask, any_model: str) -> None:
    with completions.stream(model=any_model, messages=ASKED, temperature=0, **ENDING) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
    assert text == stream.get_final_completion().choices[0].message.content
    assert text == ask(ASKED, model=any_model, **ENDING)["content"] != ""


def test_tools(completions: Any, ask: Ask) -> None:
    expected = ask(ASKED, **TOOLS)
    assert len(expected["tool_calls"]) == 2
    said = completions.create(model=NAME, messages=ASKED, temperature=0, **TOOLS).choices[0].message
    assert calls_of(said.model_dump()) == calls_of(expected)
    messages = [*ASKED, said, *reported(said.to_dict())[2:]]
    for tools in ({"tools": [WEATHER]}, {}):
        last = completions.create(model=NAME, messages=messages, max_tokens=TOKENS, temperature=0, **tools)
        assert last.choices[0].message.content == ask(reported(expected), max_tokens=TOKENS, **tools)["content"]


def test_tools_streamed(completions: Any, ask: Ask) -> None:
    with completions.stream(model=NAME, messages=ASKED, temperature=0, **TOOLS) as stream:
        events = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
    said = stream.get_final_completion().choices[0].message
    expected = calls_of(ask(ASKED, **TOOLS))
    assert calls_of(said.model_dump()) == expected
    assert [(event.name, json.loads(event.arguments)) for event in events] == expected
    messages = [*ASKED, said, *reported(said.to_dict())[2:]]
    for tools in ({"tools": [WEATHER]}, {}):
        completions.create(model=NAME, messages=messages, max_tokens=TOKENS, **tools)


def test_tools_one_by_one(completions: Any, ask: Ask) -> None:
    asked: dict[str, Any] = {"model": NAME, "messages": ASKED, "temperature": 0, "parallel_tool_calls": False, **TOOLS}
    said = completions.create(**asked).choices[0].message
    assert len(said.tool_calls) == 1
    with completions.stream(**asked) as stream:
        streamed = stream.get_final_completion().choices[0].message
    assert calls_of(streamed.model_dump()) == calls_of(said.model_dump())


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the client's own, of its field ``parsed``
def test_structured_output(completions: Any, ask: Ask) -> None:
    from tests.clients.typed import Pet

    asked: dict[str, Any] = {"model": NAME, "messages": ASKED, "response_format": Pet, "temperature": 0}
    said = completions.parse(**asked).choices[0].message
    schema = {"type": "json_schema", "json_schema": {"name": "Pet", "schema": PET, "strict": True}}
    assert said.parsed == Pet.model_validate_json(ask(ASKED, response_format=schema)["content"])
    with completions.stream(**asked) as stream:
        partial = [event.parsed for event in stream if event.type == "content.delta"]
        streamed = stream.get_final_completion().choices[0].message
    assert streamed.parsed == said.parsed
    assert partial[-1] == said.parsed.model_dump()
    for message in (said, streamed, said.model_dump(), streamed.model_dump()):
        completions.create(model=NAME, messages=[*ASKED, message, *ASKED], max_tokens=TOKENS)


@pytest.mark.parametrize(
    ("error", "said", "settings"),
    [
        ("NotFoundError", SAID_OF_MODEL, {"model": WRONG_MODEL}),
        ("BadRequestError", SAID_OF_PARAMETER, {"extra_body": MISSPELT}),
        ("BadRequestError", SAID_OF_LENGTH, {"messages": [{"role": "user", "content": TOO_LONG}]}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors(completions: Any, error: str, said: str, settings: dict[str, Any], stream: bool) -> None:
    asked: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": QUESTION}]}
    with pytest.raises(getattr(openai, error)) as raised:
        completions.create(**asked | settings, stream=stream)
    assert said in str(raised.value)
