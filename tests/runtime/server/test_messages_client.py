"""The real ``anthropic`` client, unchanged: its types hold every answer, and it talks to ``edgegen serve``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from edgegen.server.http.options import ServerOptions
from edgegen.server.messages.schema import COMPONENTS
from tests.runtime.saying import ASKED, THINKING, saying
from tests.runtime.server.material import HELLO, OWN, client_of
from tests.runtime.server.messages import MESSAGES, STREAMED, TWO_CALLS, WEATHER, events_of
from tests.runtime.server.serving import KEY, serving
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.e2e

anthropic: Any = pytest.importorskip("anthropic", reason="the anthropic client is the oracle here")
pydantic: Any = pytest.importorskip("pydantic")


NO_SPACE = {"logit_bias": {str(code): -100 for code in b" \t\r\n"}}
"""JSON may have any amount of white space, and a random model likes it."""


def claude(llm: LLM, options: ServerOptions | None = None, key: str = "none") -> Any:
    """The client, on a server in this process."""
    return anthropic.Anthropic(http_client=client_of({"model": llm}, options), base_url=OWN, api_key=key, max_retries=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


def check(kind: Any, content: Any) -> None:
    """``content`` is of the client's type ``kind``, strictly, and has nothing that the type has not."""
    made = pydantic.TypeAdapter(kind).validate_python(content, strict=True)
    assert list(_unknown(made)) == []


def _unknown(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        inner = cast(list[Any], value)
    else:
        extra: dict[str, Any] | None = getattr(value, "__pydantic_extra__", None)
        yield from extra or ()
        inner = [] if extra is None else [*value.__dict__.values()]
    for one in inner:
        yield from _unknown(one)


@pytest.mark.parametrize("name", STREAMED)
def test_bodies_and_events_are_of_the_client_s_types(folder: Path, name: str) -> None:
    answer, template, more = STREAMED[name]
    llm, _ = saying(folder, answer, template)
    client, body = client_of(llm), {"messages": ASKED, "max_tokens": 400, **more}
    types = anthropic.types.beta if "context_management" in more else anthropic.types
    prefix = "Beta" if "context_management" in more else ""
    check(getattr(types, f"{prefix}Message"), client.post(MESSAGES, json=body).json())
    for _, event in events_of(client.post(MESSAGES, json=body | {"stream": True})):
        check(getattr(types, f"{prefix}RawMessageStreamEvent"), event)


def test_errors_are_of_the_client_s_types(folder: Path) -> None:
    llm, _ = saying(folder, "Yes.")
    client = client_of(llm)
    for body in ({}, {"model": "other", "messages": HELLO, "max_tokens": 1}):
        check(anthropic.types.ErrorResponse, client.post(MESSAGES, json=body).json())


BLOCKS = {
    "TextBlock": "TextBlockParam",
    "ThinkingBlock": "ThinkingBlockParam",
    "RedactedBlock": "RedactedThinkingBlockParam",
    "ToolUseBlock": "ToolUseBlockParam",
    "ToolResultBlock": "ToolResultBlockParam",
    "ToolReference": "ToolReferenceBlockParam",
}


def test_every_field_that_the_client_has_is_known() -> None:
    """Nothing a coding agent sends is taken for a misspelling."""
    beta, known = anthropic.types.beta, {name: {*one.get("properties", {})} for name, one in COMPONENTS.items()}
    for name, client_s in BLOCKS.items():
        assert _keys(getattr(beta, f"Beta{client_s}")) <= known[name]
    assert _keys(beta.BetaToolParam) == known["MessageTool"]
    for kind in COMPONENTS["Thinking"]["anyOf"]:
        client_s = getattr(beta, f"BetaThinkingConfig{kind['properties']['type']['const'].title()}Param")
        assert _keys(client_s) == {*kind["properties"]}
    config = COMPONENTS["MessageRequest"]["properties"]["output_config"]
    assert _keys(beta.BetaOutputConfigParam) - {"task_budget"} == {*config["properties"]}
    parameters = _keys(beta.message_create_params.MessageCreateParamsNonStreaming)
    assert parameters - {"betas"} <= known["MessageRequest"]
    assert _keys(anthropic.types.MessageCountTokensParams) <= known["CountTokensRequest"]


def _keys(kind: Any) -> set[str]:
    return {*kind.__required_keys__, *kind.__optional_keys__}


def test_tools_round_trip(folder: Path) -> None:
    llm, graphs = saying(folder, TWO_CALLS)
    client, messages = claude(llm), list[Any](ASKED)
    answer = client.messages.create(model="model", max_tokens=400, messages=messages, tools=[WEATHER])
    assert answer.stop_reason == "tool_use"
    calls = [block for block in answer.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"city": "Oslo"}, {"city": "Rome"}]
    messages.append({"role": "assistant", "content": answer.content})
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": f"rain in {call.input}"} for call in calls]
    messages.append({"role": "user", "content": results})
    graphs.answer = b"It rains."
    answer = client.messages.create(model="model", max_tokens=400, messages=messages, tools=[WEATHER])
    assert (answer.content[0].text, answer.stop_reason) == ("It rains.", "end_turn")
    assert "<tool>rain in {'city': 'Oslo'}<tool>rain in {'city': 'Rome'}<assistant>" in graphs.prompt


@pytest.mark.parametrize("display", ["summarized", "omitted"])
def test_a_stream_with_thoughts_and_a_call(folder: Path, display: str) -> None:
    llm, _ = saying(folder, f"Hm.\n</think>\n\n{TWO_CALLS}", THINKING)
    seen = list[str]()
    thinking = {"type": "adaptive", "display": display}
    with claude(llm).messages.stream(
        model="model", max_tokens=400, messages=ASKED, tools=[WEATHER], thinking=thinking
    ) as stream:
        for event in stream:
            seen.append(event.type)
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.content[0].thinking == ("Hm." if display == "summarized" else "")
    assert message.content[0].signature
    assert message.content[1].text == "I look."
    assert message.content[3].input == {"city": "Rome"}
    assert message.usage.output_tokens > 0
    assert {"input_json", "text", "message_stop"} <= {*seen}


def test_an_answer_of_a_pydantic_model(folder: Path) -> None:
    class Pet(pydantic.BaseModel):
        kind: Literal["cat", "dog"]

    llm, _ = saying(folder, "none")
    answer = claude(llm).messages.parse(
        model="model", max_tokens=60, messages=HELLO, output_format=Pet, extra_body=NO_SPACE
    )
    assert answer.parsed_output.kind in ("cat", "dog")


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("BadRequestError", {"extra_body": {"temprature": 1}}),
    ("BadRequestError", {"max_tokens": -1}),
    ("BadRequestError", {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
    ("NotFoundError", {"model": "claude-opus"}),
]


@pytest.mark.parametrize(("error", "more"), WRONG)
def test_errors(folder: Path, error: str, more: dict[str, Any]) -> None:
    llm, _ = saying(folder, "Yes.")
    with pytest.raises(getattr(anthropic, error)) as raised:
        claude(llm).messages.create(**({"model": "model", "max_tokens": 4, "messages": HELLO} | more))
    assert raised.value.type == ("not_found_error" if error == "NotFoundError" else "invalid_request_error")


def test_keys(folder: Path) -> None:
    """As the client sends them: ``api_key`` in ``x-api-key``, ``auth_token`` as a bearer."""
    llm, _ = saying(folder, "Yes.")
    options = ServerOptions(keys=("secret-key",))
    counted = {"model": "model", "messages": HELLO}
    assert claude(llm, options, "secret-key").messages.count_tokens(**counted).input_tokens > 0
    http = client_of({"model": llm}, options)
    bearer = anthropic.Anthropic(http_client=http, base_url=OWN, auth_token="secret-key", max_retries=0)
    assert bearer.messages.count_tokens(**counted).input_tokens > 0
    with pytest.raises(anthropic.AuthenticationError) as raised:
        claude(llm, options, "other").messages.count_tokens(**counted)
    assert raised.value.type == "authentication_error"


@pytest.fixture(scope="module")
def live(int8_bundle: Bundle) -> Iterator[Any]:
    """The client, on a server process."""
    arguments = ("-m", str(int8_bundle.path), "--kv", "int8", "--threads", "1")
    with (
        serving(*arguments, EDGEGEN_API_KEY=KEY) as (_, address),
        anthropic.Anthropic(base_url=address, api_key=KEY, max_retries=0, timeout=PATIENCE_S) as client,
    ):
        yield client


def test_a_process_answers_like_python(live: Any, int8_bundle: Bundle) -> None:
    llm = LLM.load(int8_bundle.path, options=EngineOptions(threads=1, kv="int8"))
    asked = {"model": int8_bundle.path.name, "max_tokens": 12, "messages": HELLO}
    more = {"extra_body": {"temperature": 0.8, "seed": 3}}
    told = llm.chat(HELLO, max_new_tokens=12, temperature=0.8, seed=3)
    answer = live.messages.create(**asked, **more)
    assert answer.content[0].text == told.text
    with live.messages.stream(**asked, **more) as stream:
        assert "".join(stream.text_stream) == told.text
    counted = live.messages.count_tokens(model=asked["model"], messages=HELLO).input_tokens
    assert counted == told.timings.prompt_tokens
    assert counted == answer.usage.input_tokens + answer.usage.cache_read_input_tokens


def test_a_stream_that_is_closed_ends_its_request(live: Any, int8_bundle: Bundle) -> None:
    body: dict[str, Any] = {"eos_token_id": [], "logit_bias": {"10": -100}}
    stream = live.messages.create(
        model=int8_bundle.path.name, max_tokens=400, messages=HELLO, stream=True, extra_body=body
    )
    assert next(iter(stream)).type == "message_start"
    stream.close()

    def idle() -> bool:
        return "edgegen_requests_in_progress 0.0" in live.get("/metrics", cast_to=str)

    assert until(idle)


def test_json_of_a_live_call(live: Any, int8_bundle: Bundle) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}
    tool = {"name": "get_weather", "input_schema": {**schema, "additionalProperties": False}}
    with live.messages.stream(
        model=int8_bundle.path.name,
        max_tokens=200,
        messages=HELLO,
        tools=[tool],
        tool_choice={"type": "tool", "name": "get_weather"},
        extra_body=NO_SPACE,
    ) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
    assert json.loads("".join(pieces)) == {"city": "Oslo"}
    assert stream.get_final_message().content[-1].input == {"city": "Oslo"}


def test_the_tool_runner_goes_on_without_a_thread(folder: Path) -> None:
    """It begins with one, and the refusal has the code after which it sends the whole conversation."""
    llm, _ = saying(folder, '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>')
    asked = list[str]()

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather.

        Args:
            city: its name
        """
        asked.append(city)
        return "rain"

    runner: Any = claude(llm).beta.messages.tool_runner(
        model="model", max_tokens=80, messages=ASKED, tools=[get_weather], max_iterations=2
    )
    assert [message.stop_reason for message in runner] == ["tool_use", "tool_use"]
    assert asked == ["Oslo", "Oslo"]
