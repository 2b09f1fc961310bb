"""The ``pydantic_ai`` agents over chat completions: they make the calls of tools themselves."""

import asyncio
from collections.abc import Iterator
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

pydantic_ai: Any = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
openai: Any = pytest.importorskip("openai")
openai_models: Any = pytest.importorskip("pydantic_ai.models.openai")
openai_providers: Any = pytest.importorskip("pydantic_ai.providers.openai")

SETTINGS: dict[str, Any] = {"temperature": 0, "max_tokens": ENDING["max_tokens"], "stop_sequences": ENDING["stop"]}


@pytest.fixture
def loop() -> Iterator[Any]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def model_of(base_url: str, loop: Any) -> Iterator[Any]:
    client = openai.AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0, timeout=PATIENCE_S)
    provider = openai_providers.OpenAIProvider(openai_client=client)
    yield lambda name: openai_models.OpenAIChatModel(name, provider=provider)  # pyright: ignore[reportUnknownLambdaType]
    loop.run(client.close())


def test_chat(model_of: Any, loop: Any, ask: Ask, any_model: str) -> None:
    agent = pydantic_ai.Agent(model_of(any_model), model_settings=SETTINGS)
    done = loop.run(agent.run(QUESTION))
    assert done.output == ask(ASKED, model=any_model, **ENDING)["content"] != ""
    loop.run(agent.run("And then?", message_history=done.all_messages()))


def test_stream(model_of: Any, loop: Any, ask: Ask, any_model: str) -> None:
    agent = pydantic_ai.Agent(model_of(any_model), model_settings=SETTINGS)

    async def run() -> tuple[list[str], str]:
        async with agent.run_stream(QUESTION) as stream:
            pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
            return pieces, await stream.get_output()

    pieces, output = loop.run(run())
    assert "".join(pieces) == output == ask(ASKED, model=any_model, **ENDING)["content"] != ""


@pytest.mark.parametrize("parallel", [True, False])
def test_tools(model_of: Any, loop: Any, parallel: bool) -> None:
    """The agent makes the calls of the first turn, and the second one ends it; streamed as well."""
    from tests.clients.typed import weather_tool

    def settings(context: Any) -> dict[str, Any]:
        choice = "required" if context.run_step <= 1 else "auto"
        return {"temperature": 0, "max_tokens": 200, "tool_choice": choice, "parallel_tool_calls": parallel}

    function, made = weather_tool()
    agent = pydantic_ai.Agent(model_of(NAME), tools=[function], model_settings=settings)

    async def streamed() -> str:
        async with agent.run_stream(QUESTION) as stream:
            return await stream.get_output()

    done = loop.run(agent.run(QUESTION))
    calls, made[:] = [*made], []
    assert len(calls) == (2 if parallel else 1)
    assert loop.run(streamed()) == done.output != ""
    assert sorted(made, key=repr) == sorted(calls, key=repr)  # threads make those of a turn, in any order
    bare = pydantic_ai.Agent(model_of(NAME), model_settings={"max_tokens": TOKENS})
    loop.run(bare.run("And then?", message_history=done.all_messages()))


@pytest.mark.parametrize("output", ["NativeOutput", "ToolOutput"])
def test_structured_output(model_of: Any, loop: Any, output: str) -> None:
    from tests.clients.typed import Pet

    kind = getattr(pydantic_ai, output)(Pet)
    agent = pydantic_ai.Agent(model_of(NAME), output_type=kind, model_settings={"temperature": 0})

    async def streamed() -> list[Any]:
        async with agent.run_stream(QUESTION) as stream:
            return [piece async for piece in stream.stream_output(debounce_by=None)]

    done = loop.run(agent.run(QUESTION))
    assert isinstance(done.output, Pet)
    assert loop.run(streamed())[-1] == done.output
    loop.run(agent.run("Another one.", message_history=done.all_messages()))


@pytest.mark.parametrize(
    ("said", "model", "prompt", "more"),
    [
        (SAID_OF_MODEL, WRONG_MODEL, QUESTION, {}),
        (SAID_OF_PARAMETER, NAME, QUESTION, MISSPELT),
        (SAID_OF_LENGTH, NAME, TOO_LONG, {}),
    ],
)
def test_errors(model_of: Any, loop: Any, said: str, model: str, prompt: str, more: dict[str, Any]) -> None:
    agent = pydantic_ai.Agent(model_of(model), model_settings={"max_tokens": TOKENS, "extra_body": more})
    with pytest.raises(pydantic_ai.ModelHTTPError) as raised:
        loop.run(agent.run(prompt))
    assert said in str(raised.value)
