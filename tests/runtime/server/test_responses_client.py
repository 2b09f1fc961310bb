"""The real ``openai`` client's ``responses``: answers, events, tools, structured output, errors and cancellation."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from tests.runtime.server.serving import HELLO, KEY, serving
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.e2e

openai: Any = pytest.importorskip("openai", reason="the openai client is the oracle here, and it is not installed")
pydantic: Any = pytest.importorskip("pydantic")

NO_SPACE = {"logit_bias": {str(code): -100 for code in b" \t\r\n"}}
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


@pytest.fixture(scope="module")
def client(int8_bundle: Bundle) -> Iterator[Any]:
    arguments = ("-m", str(int8_bundle.path), "--kv", "int8", "--threads", "1")
    with (
        serving(*arguments, EDGEGEN_API_KEY=KEY) as (_, address),
        openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0, timeout=PATIENCE_S) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def stories() -> Iterator[Any]:
    """A client of the embedded model, whose context has room for the tools."""
    with (
        serving("--threads", "1", "--kv", "int8") as (_, address),
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def model(int8_bundle: Bundle) -> str:
    return int8_bundle.path.name


@pytest.fixture(scope="module")
def llm(int8_bundle: Bundle) -> LLM:
    return LLM.load(int8_bundle.path, options=EngineOptions(threads=1, kv="int8"))


def test_a_response(client: Any, model: str, llm: LLM) -> None:
    response = client.responses.create(
        model=model,
        input="Hello",
        max_output_tokens=12,
        temperature=0.7,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        extra_body={"seed": 3, "min_p": 0.05},
    )
    told = llm.chat(HELLO, max_new_tokens=12, seed=3, temperature=0.7, min_p=0.05, top_logprobs=2)
    assert response.output_text == told.text
    assert response.usage.output_tokens == len(told.token_ids)
    assert response.usage.input_tokens_details.cached_tokens >= 0
    said = response.output[0].content[0].logprobs
    assert [entry.logprob for entry in said] == pytest.approx([entry.logprob for entry in told.logprobs])
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_the_events_of_a_stream(client: Any, model: str, llm: LLM) -> None:
    told = llm.chat(HELLO, max_new_tokens=12, seed=3, temperature=0.7)
    settings: dict[str, Any] = {"max_output_tokens": 12, "temperature": 0.7, "extra_body": {"seed": 3}}
    events = [*client.responses.create(model=model, input=HELLO, stream=True, **settings)]
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == told.text
    assert events[-1].response.output_text == told.text


def test_the_client_puts_a_stream_together(stories: Any) -> None:
    settings: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
    settings |= {"max_output_tokens": 200, "temperature": 0}
    with stories.responses.stream(model="stories", input="Weather?", **settings) as stream:
        kinds = [event.type for event in stream]
        response = stream.get_final_response()
    (call,) = response.output
    assert kinds.count("response.function_call_arguments.delta") > 1
    assert call.parsed_arguments == json.loads(call.arguments)
    assert call.parsed_arguments["city"] in ("Oslo", "Rome")


def test_a_call_its_output_and_the_answer(stories: Any) -> None:
    asked: list[Any] = [{"role": "user", "content": "Weather?"}]
    choice = {"type": "function", "name": "get_weather"}
    settings: dict[str, Any] = {"model": "stories", "tools": [WEATHER], "max_output_tokens": 200, "temperature": 0}
    first = stories.responses.create(input=asked, tool_choice=choice, **settings)
    (call,) = first.output
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    last = stories.responses.create(input=[*asked, call, output], tool_choice="none", **settings)
    arguments = json.loads(call.arguments)
    made = {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": call.call_id, "content": "rain"}
    messages = [*asked, {"role": "assistant", "content": "", "tool_calls": [made]}, result]
    llm = LLM.load(options=EngineOptions(threads=1, kv="int8"))
    tool = {"type": "function", "function": {k: v for k, v in WEATHER.items() if k not in ("type", "strict")}}
    told = llm.chat(messages, tools=[tool], tool_choice="none", max_new_tokens=200, temperature=0)
    assert last.output_text == told.text


def test_structured_output(client: Any, model: str) -> None:
    pet: Any = pydantic.create_model("Pet", kind=(Literal["cat", "dog"], ...), age=(Literal[1, 2], ...))
    response = client.responses.parse(
        model=model, input="Name a pet.", text_format=pet, max_output_tokens=200, extra_body=NO_SPACE
    )
    assert response.output_parsed.kind in ("cat", "dog")
    assert response.output_parsed.age in (1, 2)


@pytest.mark.parametrize(
    ("error", "param", "settings"),
    [
        ("BadRequestError", "temperature", {"temperature": -1}),
        ("BadRequestError", "temprature", {"extra_body": {"temprature": 1}}),
        ("BadRequestError", "previous_response_id", {"previous_response_id": "resp_1"}),
        ("BadRequestError", "tools", {"tools": [{"type": "web_search"}]}),
        ("NotFoundError", "model", {"model": "gpt-4"}),
    ],
)
def test_errors(client: Any, model: str, error: str, param: str, settings: dict[str, Any]) -> None:
    with pytest.raises(getattr(openai, error)) as raised:
        client.responses.create(**({"model": model, "input": "Hello"} | settings))
    assert (raised.value.type, raised.value.param) == ("invalid_request_error", param)


def test_a_stream_that_is_closed_ends_its_request(client: Any, model: str) -> None:
    stream = client.responses.create(model=model, input="Once", stream=True, extra_body={"eos_token_id": []})
    next(iter(stream))
    stream.close()
    url = str(client.base_url).removesuffix("v1/") + "metrics"

    def idle() -> bool:
        text = client.get(url, cast_to=str, options={"headers": {"Authorization": f"Bearer {KEY}"}})
        return "edgegen_requests_in_progress 0.0" in text

    assert until(idle)
