"""``litellm``, with edgegen as an OpenAI-compatible provider and as a server of vLLM's kind."""

import os
from typing import Any

import pytest

from tests.clients.asked import (
    ASKED,
    ENDING,
    KEY,
    MISSPELT,
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

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch the prices of models
litellm: Any = pytest.importorskip("litellm", reason="litellm is not installed")


@pytest.fixture(params=["openai", "hosted_vllm"])
def completion(base_url: str, request: pytest.FixtureRequest) -> Any:
    def completion(model: str = NAME, messages: Any = ASKED, **more: Any) -> Any:
        place = {"api_base": base_url, "api_key": KEY, "timeout": PATIENCE_S, "max_retries": 0}
        return litellm.completion(model=f"{request.param}/{model}", messages=messages, **place, **more)

    return completion


def test_chat(completion: Any, ask: Ask, any_model: str) -> None:
    said = completion(any_model, temperature=0, **ENDING).choices[0].message
    assert said.content == ask(ASKED, model=any_model, **ENDING)["content"] != ""
    completion(any_model, [*ASKED, said, *ASKED], max_tokens=TOKENS)


def test_stream(completion: Any, ask: Ask, any_model: str) -> None:
    chunks = [*completion(any_model, temperature=0, stream=True, **ENDING)]
    whole = litellm.stream_chunk_builder(chunks, messages=ASKED).choices[0].message
    assert whole.content == ask(ASKED, model=any_model, **ENDING)["content"] != ""
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.content


@pytest.mark.parametrize("parallel", [True, False])
def test_tools(completion: Any, ask: Ask, parallel: bool) -> None:
    asked: dict[str, Any] = {"temperature": 0, "parallel_tool_calls": parallel, **TOOLS}
    expected = ask(ASKED, **asked)
    assert len(expected["tool_calls"]) == (2 if parallel else 1)
    said = completion(**asked).choices[0].message
    streamed = litellm.stream_chunk_builder([*completion(stream=True, **asked)]).choices[0].message
    for message in (said, streamed):
        assert calls_of(message.model_dump()) == calls_of(expected)
        messages = [*ASKED, message, *reported(message.model_dump())[2:]]
        for tools in ({"tools": [WEATHER]}, {}):
            last = completion(messages=messages, temperature=0, max_tokens=TOKENS, **tools)
            assert last.choices[0].message.content == ask(reported(expected), max_tokens=TOKENS, **tools)["content"]


def test_structured_output(completion: Any) -> None:
    from tests.clients.typed import Pet

    asked: dict[str, Any] = {"temperature": 0, "response_format": Pet}
    text = completion(**asked).choices[0].message.content
    Pet.model_validate_json(text)
    streamed = litellm.stream_chunk_builder([*completion(stream=True, **asked)]).choices[0].message
    assert streamed.content == text


@pytest.mark.parametrize(
    ("error", "said", "settings"),
    [
        ("NotFoundError", SAID_OF_MODEL, {"model": WRONG_MODEL}),
        ("BadRequestError", SAID_OF_PARAMETER, {"extra_body": MISSPELT}),
        ("ContextWindowExceededError", SAID_OF_LENGTH, {"messages": [{"role": "user", "content": TOO_LONG}]}),
    ],
)
def test_errors(completion: Any, error: str, said: str, settings: dict[str, Any]) -> None:
    with pytest.raises(getattr(litellm, error)) as raised:
        completion(**settings)
    assert said in str(raised.value)
