"""The ``ollama`` client, unchanged: its chats, prompts, streams, tools, formats, models and errors."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.asked import (
    ASKED,
    ENDING,
    OLLAMA_CALLING,
    OLLAMA_ENDING,
    PET,
    REPORT,
    TOKENS,
    TOO_LONG,
    WEATHER,
    WRONG_MODEL,
)
from tests.clients.conftest import Ask
from tests.clients.model import CONTEXT, NAME
from tests.waiting import PATIENCE_S

ollama: Any = pytest.importorskip("ollama", reason="the ollama client is not installed")

GREEDY = {"temperature": 0, "num_predict": TOKENS}


@pytest.fixture(scope="module")
def client(base_url: str) -> Iterator[Any]:
    with ollama.Client(host=base_url.removesuffix("/v1"), timeout=PATIENCE_S) as made:
        yield made


def test_chat(client: Any, ask: Ask, any_model: str) -> None:
    answer = client.chat(model=f"{any_model}:latest", messages=ASKED, options=OLLAMA_ENDING, keep_alive="5m")
    assert answer.message.content == ask(ASKED, model=any_model, **ENDING)["content"] != ""
    assert (answer.done, answer.model) == (True, f"{any_model}:latest")
    assert answer.total_duration > answer.eval_duration > 0
    more = [*ASKED, answer.message, {"role": "user", "content": "And then?"}]
    assert client.chat(model=any_model, messages=more, options=GREEDY).done_reason in ("stop", "length")


def test_chat_of_a_prompt_goes_on_by_its_context(client: Any, ask: Ask) -> None:
    first = client.generate(model=NAME, prompt=ASKED[0]["content"], options=OLLAMA_ENDING)
    assert first.response == ask(ASKED, **ENDING)["content"] != ""
    said = [*ASKED, {"role": "assistant", "content": first.response}, {"role": "user", "content": "And then?"}]
    second = client.generate(model=NAME, prompt="And then?", context=first.context, options=GREEDY)
    assert second.response == ask(said, max_tokens=TOKENS)["content"]


def test_chat_about_models(client: Any) -> None:
    assert [model.model for model in client.list().models] == [f"{NAME}:latest", "stories:latest"]
    assert {model.model for model in client.ps().models} <= {f"{NAME}:latest", "stories:latest"}
    shown = client.show("stories")
    assert shown.modelinfo["general.architecture"] == shown.details.family
    assert "completion" in shown.capabilities
    assert client.pull("stories").status == "success"
    assert [one.status for one in client.pull("stories", stream=True)][-1] == "success"
    assert client.generate(model="stories").done_reason == "load"
    assert client.chat(model="stories", messages=[], keep_alive=0).done_reason == "unload"


def test_stream(client: Any, ask: Ask, any_model: str) -> None:
    expected = ask(ASKED, model=any_model, **ENDING)["content"]
    pieces = [*client.chat(model=any_model, messages=ASKED, options=OLLAMA_ENDING, stream=True)]
    assert len(pieces) > 2
    assert "".join(piece.message.content for piece in pieces) == expected != ""
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    texts: Iterator[Any] = client.generate(model=any_model, prompt="Once upon", raw=True, options=GREEDY, stream=True)
    assert "".join(piece.response for piece in texts) != ""


def test_tools(client: Any) -> None:
    said = client.chat(model=NAME, messages=ASKED, tools=[WEATHER], options=OLLAMA_CALLING).message
    (call,) = said.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", {"city": "Oslo", "days": 2})
    streamed = [
        call
        for piece in client.chat(model=NAME, messages=ASKED, tools=[WEATHER], options=OLLAMA_CALLING, stream=True)
        for call in piece.message.tool_calls or ()
    ]
    assert streamed == [call]
    result = {"role": "tool", "content": REPORT.format(**call.function.arguments), "tool_name": call.function.name}
    for tools in ([WEATHER], None):
        last = client.chat(model=NAME, messages=[*ASKED, said, result], tools=tools, options=GREEDY)
        assert last.done_reason in ("stop", "length")


def test_tools_that_are_functions(client: Any) -> None:
    def get_weather(city: str, days: int) -> str:
        """The weather of a city.

        Args:
            city: its name
            days: how many
        """
        return REPORT.format(city=city, days=days)

    said = client.chat(model=NAME, messages=ASKED, tools=[get_weather], options=OLLAMA_CALLING).message
    assert [get_weather(**call.function.arguments) for call in said.tool_calls] == ["rain in Oslo for 2 days"]


def test_structured_output(client: Any, ask: Ask) -> None:
    from tests.clients.typed import Pet

    asked: dict[str, Any] = {"model": NAME, "messages": ASKED, "options": {"temperature": 0}}
    said = client.chat(**asked, format=Pet.model_json_schema()).message
    schema = {"type": "json_schema", "json_schema": {"name": "Pet", "schema": PET, "strict": True}}
    pet = Pet.model_validate_json(said.content)
    assert pet == Pet.model_validate_json(ask(ASKED, response_format=schema)["content"])
    streamed = client.chat(**asked, format=Pet.model_json_schema(), stream=True)
    assert "".join(piece.message.content for piece in streamed) == said.content


@pytest.mark.parametrize(
    ("status", "said", "settings"),
    [
        (404, f"model '{WRONG_MODEL}' not found", {"model": WRONG_MODEL}),
        (400, "did you mean 'temperature'?", {"options": {"temprature": 0.5}}),
        (400, f"this model's context is {CONTEXT}", {"messages": [{"role": "user", "content": TOO_LONG}]}),
        (400, "models here read text only", {"messages": [{**ASKED[0], "images": [b"GIF89a"]}]}),
        (400, "does not think aloud", {"think": True}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors(client: Any, status: int, said: str, settings: dict[str, Any], stream: bool) -> None:
    with pytest.raises(ollama.ResponseError) as raised:
        list(client.chat(**{"model": NAME, "messages": ASKED} | settings, stream=stream))
    assert said in raised.value.error
    assert raised.value.status_code == status


def test_errors_of_what_edgegen_does_not_do(client: Any) -> None:
    for refused in (
        lambda: client.copy("stories", "tales"),
        lambda: client.push("stories"),
        lambda: client.create(model="tales", from_="stories"),
        lambda: client.pull("llama3.2"),
        lambda: client.delete("stories"),
        lambda: client.embed(model="stories", input="a"),
    ):
        with pytest.raises(ollama.ResponseError):
            refused()
