"""``llama_index``'s ``OpenAILike``: chats, tools and structured models."""

import asyncio
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
    TOO_LONG,
    WRONG_MODEL,
)
from tests.clients.conftest import Ask
from tests.clients.model import CONTEXT, NAME
from tests.waiting import PATIENCE_S

openai_like: Any = pytest.importorskip("llama_index.llms.openai_like", reason="llama-index is not installed")
llms: Any = pytest.importorskip("llama_index.core.llms")
tools: Any = pytest.importorskip("llama_index.core.tools")
programs: Any = pytest.importorskip("llama_index.core.program")
workflow: Any = pytest.importorskip("llama_index.core.agent.workflow")
openai: Any = pytest.importorskip("openai")

MESSAGES = [llms.ChatMessage(role="user", content=QUESTION)]


@pytest.fixture
def model_of(base_url: str) -> Any:
    def model_of(name: str, more: dict[str, Any] | None = None, **settings: Any) -> Any:
        return openai_like.OpenAILike(
            model=name,
            api_base=base_url,
            api_key=KEY,
            is_chat_model=True,
            is_function_calling_model=True,
            context_window=CONTEXT,
            max_retries=0,
            timeout=PATIENCE_S,
            temperature=0,
            additional_kwargs=more or {},
            **settings,
        )

    return model_of


ENDS: dict[str, Any] = {"max_tokens": ENDING["max_tokens"], "more": {"stop": ENDING["stop"]}}


def test_chat(model_of: Any, ask: Ask, any_model: str) -> None:
    model = model_of(any_model, **ENDS)
    said = model.chat(MESSAGES).message
    assert said.content == ask(ASKED, model=any_model, **ENDING)["content"] != ""
    model.chat([*MESSAGES, said, *MESSAGES])


def test_stream(model_of: Any, ask: Ask, any_model: str) -> None:
    chunks = [*model_of(any_model, **ENDS).stream_chat(MESSAGES)]
    text = ask(ASKED, model=any_model, **ENDING)["content"]
    assert chunks[-1].message.content == text != ""
    assert "".join(chunk.delta or "" for chunk in chunks) == text


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("streamed", [False, True])
def test_tools(model_of: Any, parallel: bool, streamed: bool) -> None:
    from tests.clients.typed import weather_tool

    function, made = weather_tool()
    tool = tools.FunctionTool.from_defaults(function)
    model = model_of(NAME, max_tokens=300)
    asked: dict[str, Any] = {"tool_required": True, "allow_parallel_tool_calls": parallel}
    whole = model.chat_with_tools([tool], chat_history=MESSAGES, **asked)
    said = [*model.stream_chat_with_tools([tool], chat_history=MESSAGES, **asked)][-1] if streamed else whole
    calls = model.get_tool_calls_from_response(said)
    assert len(calls) == (2 if parallel else 1)
    results = [
        llms.ChatMessage(
            role="tool", content=str(tool(**call.tool_kwargs)), additional_kwargs={"tool_call_id": call.tool_id}
        )
        for call in calls
    ]
    assert made == [(one.tool_name, one.tool_kwargs) for one in model.get_tool_calls_from_response(whole)]
    history = [*MESSAGES, said.message, *results]
    assert model.chat(history).message.content != ""
    assert model.chat_with_tools([tool], chat_history=history).message.content != ""


def test_tools_of_an_agent(model_of: Any) -> None:
    from tests.clients.typed import weather_tool

    function, made = weather_tool()
    agent = workflow.FunctionAgent(
        tools=[function], llm=model_of(NAME, max_tokens=300), initial_tool_choice="get_weather"
    )

    async def run() -> str:
        return str(await agent.run(QUESTION))

    assert asyncio.run(run()) != ""
    assert len(made) == 1


def test_structured_output(model_of: Any) -> None:
    from tests.clients.typed import Pet

    model = model_of(NAME, should_use_structured_outputs=True).as_structured_llm(Pet)
    pet = model.chat(MESSAGES).raw
    assert isinstance(pet, Pet)
    *_, streamed = model.stream_chat(MESSAGES)
    assert streamed.raw.model_dump() == pet.model_dump()


def test_structured_output_by_a_tool(model_of: Any) -> None:
    """The client itself asks for ``auto`` in streams."""
    from tests.clients.typed import Pet

    program = programs.FunctionCallingProgram.from_defaults(
        Pet, prompt_template_str=QUESTION, llm=model_of(NAME), tool_choice="required"
    )
    pet = program()
    assert isinstance(pet, Pet)
    *_, streamed = program.stream_call()
    assert streamed.model_dump() == pet.model_dump()


@pytest.mark.parametrize(
    ("error", "said", "model", "prompt", "more"),
    [
        ("NotFoundError", SAID_OF_MODEL, WRONG_MODEL, QUESTION, {}),
        ("BadRequestError", SAID_OF_PARAMETER, NAME, QUESTION, {"extra_body": MISSPELT}),
        ("BadRequestError", SAID_OF_LENGTH, NAME, TOO_LONG, {}),
    ],
)
def test_errors(model_of: Any, error: str, said: str, model: str, prompt: str, more: dict[str, Any]) -> None:
    with pytest.raises(getattr(openai, error)) as raised:
        model_of(model, more).chat([llms.ChatMessage(role="user", content=prompt)])
    assert said in str(raised.value)
