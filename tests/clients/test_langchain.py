"""``langchain_openai``'s chat model: its messages, tools and structured output."""

import re
from functools import reduce
from operator import add
from typing import Any

import pytest

from tests.clients.asked import (
    ASKED,
    ENDING,
    KEY,
    MISSPELT,
    QUESTION,
    SAID_OF_LENGTH,
    SAID_OF_MODEL,
    SAID_OF_PARAMETER,
    TOKENS,
    TOO_LONG,
    WRONG_MODEL,
)
from tests.clients.conftest import Ask
from tests.clients.model import NAME
from tests.waiting import PATIENCE_S

langchain_openai: Any = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
langchain_core: Any = pytest.importorskip("langchain_core.tools")
exceptions: Any = pytest.importorskip("langchain_core.exceptions")


@pytest.fixture
def model_of(base_url: str) -> Any:
    def model_of(name: str, **more: Any) -> Any:
        return langchain_openai.ChatOpenAI(
            model=name, base_url=base_url, api_key=KEY, max_retries=0, timeout=PATIENCE_S, temperature=0, **more
        )

    return model_of


def test_chat(model_of: Any, ask: Ask, any_model: str) -> None:
    model = model_of(any_model, **ENDING)
    said = model.invoke(ASKED)
    assert said.content == ask(ASKED, model=any_model, **ENDING)["content"] != ""
    model.invoke([*ASKED, said, ("user", "And then?")])


def test_stream(model_of: Any, ask: Ask, any_model: str) -> None:
    chunks = [*model_of(any_model, stream_usage=True, **ENDING).stream(ASKED)]
    whole = reduce(add, chunks)
    assert whole.content == ask(ASKED, model=any_model, **ENDING)["content"] != ""
    assert whole.usage_metadata["output_tokens"] > 0


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("streamed", [False, True])
def test_tools(model_of: Any, parallel: bool, streamed: bool) -> None:
    from tests.clients.typed import weather_tool

    function, made = weather_tool()
    tool = langchain_core.tool(function)
    model = model_of(NAME, max_tokens=300)
    calling = model.bind_tools([tool], tool_choice="required", parallel_tool_calls=parallel, strict=True)
    whole = calling.invoke(ASKED)
    said = reduce(add, calling.stream(ASKED)) if streamed else whole
    assert said.invalid_tool_calls == []
    results = [tool.invoke(call) for call in said.tool_calls]
    assert made == [(call["name"], call["args"]) for call in whole.tool_calls]
    assert len(made) == (2 if parallel else 1)
    for second in (model, model.bind_tools([tool])):
        assert second.invoke([*ASKED, said, *results], max_tokens=TOKENS).content != ""


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the openai client's own, of ``parsed``
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(model_of: Any, method: str) -> None:
    from tests.clients.typed import Pet

    structured = model_of(NAME).with_structured_output(Pet, method=method)
    pet = structured.invoke(ASKED)
    assert isinstance(pet, Pet)
    *_, streamed = structured.stream(ASKED)
    assert streamed == pet


@pytest.mark.parametrize(
    ("error", "said", "model", "prompt", "more"),
    [
        ("ModelNotFoundError", SAID_OF_MODEL, WRONG_MODEL, QUESTION, {}),
        ("ModelInvalidRequestError", SAID_OF_PARAMETER, NAME, QUESTION, {"extra_body": MISSPELT}),
        ("ContextOverflowError", SAID_OF_LENGTH, NAME, TOO_LONG, {}),
    ],
)
def test_errors(model_of: Any, error: str, said: str, model: str, prompt: str, more: dict[str, Any]) -> None:
    chat = model_of(model, **more)
    with pytest.raises(getattr(exceptions, error), match=re.escape(said)):
        chat.invoke(prompt)
    with pytest.raises(getattr(exceptions, error), match=re.escape(said)):
        next(chat.stream(prompt))
