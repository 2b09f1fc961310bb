"""OpenAI's ``/v1/responses``: input items, tools, thoughts, and events that OpenAI's document describes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

from edgegen.bundle.bundle import Bundle
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from edgegen.server.http.options import MOST_MESSAGES, MOST_TOOLS, ServerOptions
from tests.runtime.models import FailAt, RandomGraphs, fake_llm
from tests.runtime.saying import CALL, TEMPLATE, THINKING, Saying, saying
from tests.runtime.server.material import OpenAIDocument, client_of, error_of

RESPONSES = "/v1/responses"
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
        "required": ["city"],
    },
    "strict": False,
}
OSLO = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
OTHER: dict[str, Any] = {"type": "function", "name": "other"}
NAMED = {"type": "function", "name": "get_weather"}
TWO_CALLS = f"I look.\n{CALL}\n{CALL.replace('Oslo', 'Rome')}"
THOUGHT = "Let me see.\n</think>\n\nYes."
SWITCHED = TEMPLATE + "{{ '<think>\\n' if enable_thinking else '' }}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


@pytest.fixture(scope="module")
def document(test_data: Path) -> OpenAIDocument:
    return OpenAIDocument(test_data / "suites" / "openai-openapi" / "openapi.yaml")


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return fake_llm(tmp_path_factory.mktemp("server") / "fake", RandomGraphs())


@pytest.fixture(scope="module")
def client(llm: LLM) -> TestClient:
    return client_of(llm)


def answering(
    folder: Path, answer: str, template: str = TEMPLATE, *, max_context: int = 2048
) -> tuple[TestClient, Saying]:
    llm, graphs = saying(folder, answer, template, max_context=max_context)
    return client_of(llm), graphs


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream: each is named as its type says, and they are numbered."""
    *told, rest = text.split("\n\n")
    assert rest == ""
    found = list[dict[str, Any]]()
    for one in told:
        name, data = one.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    assert [event["sequence_number"] for event in found] == [*range(len(found))]
    return found


def ask(client: TestClient, body: Any = "Hello", **more: Any) -> dict[str, Any]:
    response = client.post(RESPONSES, json={"input": body, **more})
    assert response.status_code == 200, response.text
    return response.json()


def text_of(response: dict[str, Any]) -> str:
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts)


def plain(response: dict[str, Any]) -> dict[str, Any]:
    """Without what is new in each response."""
    left = {name: value for name, value in response.items() if name not in ("id", "created_at", "completed_at")}
    new = ("id", "call_id")
    return left | {"output": [{k: v for k, v in item.items() if k not in new} for item in left["output"]]}


def replayed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output that a client makes of the events, without looking at those that are done."""
    items = list[Any]()
    for event in events:
        match event["type"]:
            case "response.output_item.added":
                assert event["output_index"] == len(items)
                assert event["item"]["status"] == "in_progress"
                items.append(event["item"])
            case "response.content_part.added":
                items[event["output_index"]]["content"].append(event["part"])
            case "response.output_text.delta" | "response.reasoning_text.delta":
                part = items[event["output_index"]]["content"][event["content_index"]]
                part["text"] += event["delta"]
                if "logprobs" in part:
                    part["logprobs"] += event["logprobs"]
            case "response.function_call_arguments.delta":
                items[event["output_index"]]["arguments"] += event["delta"]
            case _:
                continue
    return items


EVENT_SCHEMAS = {
    "response.created": "ResponseCreatedEvent",
    "response.in_progress": "ResponseInProgressEvent",
    "response.output_item.added": "ResponseOutputItemAddedEvent",
    "response.content_part.added": "ResponseContentPartAddedEvent",
    "response.output_text.delta": "ResponseTextDeltaEvent",
    "response.output_text.done": "ResponseTextDoneEvent",
    "response.reasoning_text.delta": "ResponseReasoningTextDeltaEvent",
    "response.reasoning_text.done": "ResponseReasoningTextDoneEvent",
    "response.function_call_arguments.delta": "ResponseFunctionCallArgumentsDeltaEvent",
    "response.function_call_arguments.done": "ResponseFunctionCallArgumentsDoneEvent",
    "response.content_part.done": "ResponseContentPartDoneEvent",
    "response.output_item.done": "ResponseOutputItemDoneEvent",
    "response.completed": "ResponseCompletedEvent",
    "response.incomplete": "ResponseIncompleteEvent",
    "response.failed": "ResponseFailedEvent",
    "error": "ResponseErrorEvent",
}

BODIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "text": ("Yes, it is.", TEMPLATE, {}),
    "nothing": ("", TEMPLATE, {}),
    "characters": ("Schön – ja 🙂.", TEMPLATE, {}),
    "logprobs": ("Yes.", TEMPLATE, {"include": ["message.output_text.logprobs"], "top_logprobs": 2}),
    "cut off": ("Yes, it is.", TEMPLATE, {"max_output_tokens": 4}),
    "calls": (TWO_CALLS, TEMPLATE, {"tools": [WEATHER]}),
    "only a call": (CALL, TEMPLATE, {"tools": [WEATHER, OTHER], "tool_choice": "auto"}),
    "a call cut off": (CALL, TEMPLATE, {"tools": [WEATHER], "max_output_tokens": len(CALL) - 20}),
    "thoughts": (THOUGHT, THINKING, {}),
    "thoughts with logprobs": (THOUGHT, THINKING, {"top_logprobs": 1}),
    "thoughts cut off": (THOUGHT, THINKING, {"max_output_tokens": 5}),
    "thoughts, text and calls": ("Hm.\n</think>\n" + TWO_CALLS, THINKING, {"tools": [WEATHER]}),
    "a dropped turn": ("Yes.", TEMPLATE, {"truncation": "auto"}),
    "repeated": (
        "Yes.",
        TEMPLATE,
        {
            "instructions": "Be brief.",
            "metadata": {"a": "b"},
            "user": "me",
            "safety_identifier": "me",
            "prompt_cache_key": "one",
            "service_tier": "auto",
            "store": False,
            "background": False,
            "temperature": 0.5,
            "top_p": 0.9,
            "seed": 1,
            "text": {"format": {"type": "text"}, "verbosity": "medium"},
            "reasoning": {"effort": "none", "summary": "auto"},
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]},
            "tools": [WEATHER, OTHER],
            "include": ["reasoning.encrypted_content"],
            "max_tool_calls": 3,
        },
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_responses_are_as_documented(folder: Path, document: OpenAIDocument, name: str) -> None:
    answer, template, more = BODIES[name]
    client, _ = answering(folder, answer, template, max_context=256 if name == "a dropped turn" else 2048)
    asked: Any = LONG if name == "a dropped turn" else "Weather?"
    whole = ask(client, asked, **more)
    document.check("Response", whole)
    streamed = client.post(RESPONSES, json={"input": asked, "stream": True, **more})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    events = events_of(streamed.text)
    for event in events:
        document.check(EVENT_SCHEMAS[event["type"]], event)
        document.check("ResponseStreamEvent", event)
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0]["response"]["output"] == []
    assert events[-1]["type"] == f"response.{whole['status']}"
    assert plain(events[-1]["response"]) == plain(whole)
    finished = events[-1]["response"]["output"]
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == finished
    built = replayed(events)
    assert [{**item, "status": done["status"]} for item, done in zip(built, finished, strict=True)] == finished
    for kind, part in (("output_text", "message"), ("reasoning_text", "reasoning")):
        done = [event["text"] for event in events if event["type"] == f"response.{kind}.done"]
        assert done == [item["content"][0]["text"] for item in finished if item["type"] == part]


def test_answers_are_those_of_python(client: TestClient, llm: LLM) -> None:
    hello = [{"role": "user", "content": "Hello"}]
    told = llm.chat(hello, max_new_tokens=24, seed=5, temperature=0.9, top_p=0.8)
    response = ask(client, max_output_tokens=24, seed=5, temperature=0.9, top_p=0.8)
    assert text_of(response) == told.text
    assert (response["temperature"], response["top_p"]) == (0.9, 0.8)
    told = llm.chat(hello, max_new_tokens=24, min_p=0.1, seed=3, repetition_penalty=1.2, stop_strings=["a", "b"])
    assert text_of(ask(client, max_output_tokens=24, min_p=0.1, seed=3, repetition_penalty=1.2, stop=["a", "b"])) == (
        told.text
    )
    assert ask(client, max_output_tokens=2)["temperature"] == 0  # the bundle is greedy


def test_usage_and_the_end(folder: Path) -> None:
    client, graphs = answering(folder, "Yes.")
    response = ask(client)
    usage = response["usage"]
    assert usage["input_tokens"] == len(graphs.prompt)
    assert usage["output_tokens"] == len("Yes.") + 1  # and the end of the turn
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert (response["status"], response["incomplete_details"]) == ("completed", None)
    assert ask(client, max_output_tokens=2)["max_output_tokens"] == 2
    assert ask(client, max_output_tokens=-1)["max_output_tokens"] is None  # all that fits
    cut = ask(client, max_output_tokens=2)
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (cut["output"][0]["status"], text_of(cut), cut["completed_at"]) == ("incomplete", "Ye", None)


def test_a_prefix_is_cached(int8_bundle: Bundle) -> None:
    client = client_of(LLM.load(int8_bundle.path, options=EngineOptions(threads=1)))
    first, second = (ask(client, "a long prefix that comes again", max_output_tokens=1) for _ in range(2))
    assert first["usage"]["input_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > 20


def test_thoughts_are_an_item_of_their_own(folder: Path) -> None:
    client, _ = answering(folder, THOUGHT, THINKING)
    response = ask(client, top_logprobs=1)
    thoughts, message = response["output"]
    assert thoughts["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert thoughts["summary"] == []
    (part,) = message["content"]
    assert part["text"] == "Yes."
    assert "".join(entry["token"] for entry in part["logprobs"]) == "Yes.<|endoftext|>"
    usage = response["usage"]
    assert usage["output_tokens_details"]["reasoning_tokens"] == len("Let me see.")
    assert usage["output_tokens"] == len(THOUGHT) + 1


def test_input_items_are_messages(folder: Path) -> None:
    client, graphs = answering(folder, "Yes.")
    items: list[dict[str, Any]] = [
        {"role": "developer", "content": "Speak English."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "One"}]},
        {"id": "rs_1", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}],
        },
        {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": '{"city": "Oslo"}'},
        {"type": "function_call", "call_id": "b", "name": "get_weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "a", "output": "rain"},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "sun"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Two"}, {"type": "input_text", "text": "lines"}]},
    ]
    ask(client, items, instructions="Be brief.")
    assert graphs.prompt == (
        "<system>Be brief.<system>Speak English.<user>One"
        '<assistant>I look.[get_weather {"city": "Oslo"}][get_weather {"city": "Rome"}]'
        "<tool>rain<tool>sun<assistant>No.<user>Two\nlines<assistant>"
    )


def test_thoughts_go_back_to_the_template(folder: Path) -> None:
    template = TEMPLATE.replace("{{ m.content }}", "({{ m.reasoning_content }}){{ m.content }}")
    client, graphs = answering(folder, "Yes.", template)
    thought = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    said = {"role": "assistant", "content": "No."}
    ask(client, [{"role": "user", "content": "One"}, thought, said, {"role": "user", "content": "Two"}])
    assert "<assistant>(Hm.)No.<user>" in graphs.prompt


def test_a_call_and_its_output(folder: Path) -> None:
    client, graphs = answering(folder, TWO_CALLS)
    asked: list[dict[str, Any]] = [{"role": "user", "content": "Weather?"}]
    first = ask(client, asked, tools=[WEATHER])
    message, *calls = first["output"]
    assert message["content"][0]["text"] == "I look."
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"city": "Rome"}),
    ]
    assert '{"type": "function", "function": {"name": "get_weather"' in graphs.prompt
    assert "strict" not in graphs.prompt
    graphs.answer = b"It rains."
    outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": "rain"} for call in calls]
    assert text_of(ask(client, [*asked, *first["output"], *outputs], tools=[WEATHER])) == "It rains."
    assert '<assistant>I look.[get_weather {"city": "Oslo"}][get_weather {"city": "Rome"}]<tool>rain' in graphs.prompt


def test_earlier_calls_reach_a_model_without_tools(folder: Path) -> None:
    """Also where the next request brings no tools."""
    client, graphs = answering(
        folder, "Yes.", "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    )
    call = {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": '{"city": "Oslo"}'}
    ask(client, [{"role": "user", "content": "Weather?"}, call, OUTPUT | {"output": "rain"}])
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}' in graphs.prompt
    assert "<tool_response>\nrain" in graphs.prompt


@pytest.mark.parametrize(
    "choice",
    ["required", NAMED, {"type": "allowed_tools", "mode": "required", "tools": [NAMED]}],
    ids=["required", "named", "allowed"],
)
def test_a_call_can_be_required(folder: Path, choice: Any) -> None:
    client, _ = answering(folder, "I would rather talk.")
    tool = {"type": "function", "name": "get_weather", "parameters": OSLO}
    no_space = {str(code): -100 for code in b" \t\r\n"}
    tools = [tool] if choice == "required" else [OTHER, tool]
    settings = {"logit_bias": no_space, "max_output_tokens": 200, "parallel_tool_calls": False}
    (call,) = ask(client, tools=tools, tool_choice=choice, **settings)["output"]
    assert (call["type"], call["name"], json.loads(call["arguments"])) == (
        "function_call",
        "get_weather",
        {"city": "Oslo"},
    )


def test_one_call_where_parallel_calls_are_not_wanted(folder: Path) -> None:
    client, _ = answering(folder, TWO_CALLS)
    response = ask(client, tools=[WEATHER], parallel_tool_calls=False)
    assert [item["type"] for item in response["output"]] == ["message", "function_call"]
    assert response["parallel_tool_calls"] is False


def test_no_call_where_none_is_wanted(folder: Path) -> None:
    client, graphs = answering(folder, CALL)
    response = ask(client, tools=[WEATHER], tool_choice="none")
    assert text_of(response) == CALL
    assert "get_weather" not in graphs.prompt
    assert response["tools"] == [WEATHER]


def test_output_follows_a_schema(client: TestClient) -> None:
    form = {"type": "json_schema", "name": "city", "schema": OSLO, "strict": True}
    no_space = {str(code): -100 for code in b" \t\r\n"}
    response = ask(client, text={"format": form}, logit_bias=no_space, max_output_tokens=100)
    assert json.loads(text_of(response)) == {"city": "Oslo"}
    assert response["text"] == {"format": form}
    as_chats = {"type": "json_schema", "json_schema": {"name": "city", "schema": OSLO, "strict": True}}
    assert plain(ask(client, response_format=as_chats, logit_bias=no_space, max_output_tokens=100)) == plain(response)
    assert text_of(ask(client, text={"format": {"type": "json_object"}}, max_output_tokens=2)).lstrip()[:1] in ("", "{")


@pytest.mark.parametrize(
    ("effort", "thinks", "level"), [("none", False, ""), ("low", True, "low"), ("max", True, "high")]
)
def test_reasoning_effort_reaches_the_template(folder: Path, effort: str, thinks: bool, level: str) -> None:
    client, graphs = answering(folder, "Yes.", SWITCHED + "{{ reasoning_effort }}{{ '<assistant>' }}")
    response = ask(client, reasoning={"effort": effort})
    assert graphs.prompt.endswith(f"<assistant>{'<think>' + chr(10) if thinks else ''}{level}<assistant>")
    assert response["reasoning"] == {"effort": effort, "summary": None}


@pytest.mark.parametrize(
    ("template", "effort", "said"),
    [
        (TEMPLATE, "low", None),
        (THINKING, "none", "this model always thinks aloud"),
        (TEMPLATE, "none", None),
        (THINKING, "medium", None),
    ],
)
def test_reasoning_effort_that_cannot_be_had(folder: Path, template: str, effort: str, said: str | None) -> None:
    client, graphs = answering(folder, "Yes.", template)
    response = client.post(RESPONSES, json={"input": "Hello", "reasoning": {"effort": effort}})
    assert response.status_code == (400 if said else 200)
    if said:
        assert said in error_of(response)["message"]
        assert error_of(response)["param"] == "reasoning.effort"
        assert graphs.runs == []


LONG: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    *({"role": role, "content": f"{role} {n} " + "x" * 20} for n in range(8) for role in ("user", "assistant")),
    {"role": "user", "content": "And now?"},
]


@pytest.mark.parametrize("stream", [False, True])
def test_truncation(folder: Path, stream: bool) -> None:
    client, graphs = answering(folder, "Yes.", max_context=256)
    body = {"input": LONG, "max_output_tokens": 20, "stream": stream}
    response = client.post(RESPONSES, json=body | {"truncation": "auto"})
    dropped = int(response.headers["Edgegen-Dropped-Messages"])
    told = events_of(response.text)[0]["response"] if stream else response.json()
    assert dropped > 0
    assert (told["dropped_messages"], told["truncation"]) == (dropped, "auto")
    assert "Be brief." in graphs.prompt
    assert "user 0" not in graphs.prompt
    for more in ({}, {"truncation": "disabled"}):
        refused = client.post(RESPONSES, json={**body, **more})
        assert (refused.status_code, error_of(refused)["code"]) == (400, "context_length_exceeded")
    same = client.post(RESPONSES, json=body | {"context_overflow": "drop_oldest"})
    assert '"truncation": "auto"' in same.text or '"truncation":"auto"' in same.text


def test_a_model_that_fails(tmp_path: Path, document: OpenAIDocument) -> None:
    graphs = RandomGraphs()
    client = client_of(fake_llm(tmp_path, graphs))
    for stream in (False, True):
        graphs.before_run = FailAt(4, RuntimeError("secret detail"))
        response = client.post(RESPONSES, json={"input": "a", "max_output_tokens": 9, "stream": stream})
        assert "secret detail" not in response.text
        if not stream:
            assert (response.status_code, error_of(response)["type"]) == (500, "server_error")
            continue
        events = events_of(response.text)
        for event in events:
            document.check("ResponseStreamEvent", event)
        error, last = events[-2:]
        document.check("ResponseErrorEvent", error)
        document.check("ResponseFailedEvent", last)
        assert last["response"]["error"]["code"] == "server_error"
        assert last["response"]["status"] == "failed"
        deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        assert text_of(last["response"]) == "".join(deltas)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> tuple[TestClient, RandomGraphs]:
    graphs = RandomGraphs()
    llm = fake_llm(tmp_path_factory.mktemp("limited") / "fake", graphs)
    return client_of(llm, ServerOptions(max_tokens=64)), graphs


AT_LIMIT: list[dict[str, Any]] = [
    {"max_output_tokens": 64},
    {"top_logprobs": 20},
    {"metadata": {f"{n}" * 32: "x" * 512 for n in range(10, 26)}},
    {"safety_identifier": "x" * 64},
    {"client_metadata": {f"{n}": {"any": n} for n in range(64)}},
    {"user": "x" * 512},
    {"max_tool_calls": 0},
    {"num_return_sequences": 1},
    {"stream": True, "stream_options": {"include_obfuscation": True}},
    {"tools": [{"type": "function", "name": f"tool{n}"} for n in range(MOST_TOOLS)], "tool_choice": "none"},
    {"tools": [], "tool_choice": "none", "include": [], "previous_response_id": None, "temperature": None},
]


@pytest.mark.parametrize("more", AT_LIMIT, ids=lambda more: ", ".join(more))
def test_at_the_limit_is_answered(limited: tuple[TestClient, RandomGraphs], more: dict[str, Any]) -> None:
    response = limited[0].post(RESPONSES, json={"input": "a", "max_output_tokens": 1, **more})
    assert response.status_code == 200, response.text


def message(**fields: Any) -> list[Any]:
    return [{"role": "user", "content": "a"} | fields]


OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "x"}
VALUES: dict[str, list[Any]] = {
    "input": [
        None,
        3,
        [],
        {},
        [1],
        [{}],
        [{"id": "msg_1"}],
        [{"type": "item_reference", "id": "msg_1"}],
        [{"type": "web_search_call"}],
        [{"type": "reasoning", "summary": 3}],
        [{"type": "reasoning", "summary": [], "content": [{"text": 1}]}],
        [{"type": "function_call", "call_id": "a", "name": "b", "arguments": 1}],
        [{"type": "function_call", "call_id": "a", "name": 1, "arguments": {}}],
        [OUTPUT],
        [{"type": "function_call", "call_id": "b", "name": "b", "arguments": "{}"}, OUTPUT],
        [{"type": "function_call", "call_id": "a", "name": "b", "arguments": "{}"}, OUTPUT | {"output": None}],
        message(role="robot"),
        message(role=1),
        message(content=1),
        message(content=[{"type": "input_image", "image_url": "data:"}]),
        message(content=[{"type": "text", "text": "a"}]),
        message(content=[{"type": "input_text"}]),
        message(content=["a"]),
        message() * (MOST_MESSAGES + 1),
        message() * 10 * MOST_MESSAGES,
    ],
    "instructions": [3, [], {}],
    "model": [3],
    "max_output_tokens": [65, 640, 10**400, 0, -2, 1.5, "8", True],
    "temperature": [-1, "1", 1e300, [], True],
    "top_p": [-1, 1.5, "1"],
    "top_logprobs": [21, 200, -1, "1", 1.5],
    "stream": ["yes", 1],
    "stream_options": [{"include_obfuscation": True}, 1],
    "store": [True, 1, "yes"],
    "background": [True, 1],
    "previous_response_id": ["resp_1", 1],
    "conversation": ["conv_1", {"id": "conv_1"}],
    "prompt": [{"id": "pmpt_1"}],
    "moderation": [{"model": "m"}],
    "context_management": [[{"type": "compaction"}]],
    "parallel_tool_calls": [1, "yes"],
    "max_tool_calls": [-1, 1.5, "1", True],
    "metadata": [[], "a", {"a": 1}, {"x" * 65: ""}, {"a": "x" * 513}, {str(n): "" for n in range(17)}],
    "client_metadata": [[], "a", {f"{n}": "" for n in range(65)}],
    "user": [1, "x" * 513],
    "safety_identifier": ["x" * 65, "x" * 640, 1],
    "service_tier": [1],
    "truncation": ["oldest", "Auto", 1, []],
    "include": ["message.output_text.logprobs", ["message.output_text.logprob"], [1], [[]]],
    "text": [
        "json",
        {"formt": {}},
        {"format": {"type": "xml"}},
        {"format": "json_object"},
        {"format": {"type": "json_schema", "name": "a"}},
        {"format": {"type": "json_schema", "schema": {}}},
        {"format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}},
        {"format": {"type": "json_schema", "name": "a b", "schema": {}}},
        {"format": {"type": "json_schema", "name": "a", "schema": {}, "strict": "yes"}},
        {"format": {"type": "json_schema", "name": "a", "schema": {}, "description": 3}},
        {"format": {"type": "text", "schema": {}}},
        {"verbosity": "low"},
    ],
    "reasoning": [
        "low",
        {"effort": "lots"},
        {"effort": 3},
        {"efort": "low"},
        {"summary": "detailed"},
        {"context": "all_turns"},
        {"mode": "pro"},
    ],
    "tools": [
        {},
        [1],
        [{"type": "web_search"}],
        [{"type": "function"}],
        [{"type": "function", "name": "a b"}],
        [{"type": "function", "name": "a", "parameters": []}],
        [{"type": "function", "name": "a", "parameters": {"type": "array"}}],
        [{"type": "function", "name": "a", "strict": "yes"}],
        [{"type": "function", "name": "a", "description": 1}],
        [{"type": "function", "name": "a", "paramters": {}}],
        [{"type": "function", "name": "a", "defer_loading": True}],
        [{"type": "function", "name": "a", "allowed_callers": ["programmatic"]}],
        [{"type": "function", "function": {"name": "a"}}],
        [WEATHER, WEATHER],
        [WEATHER] * (MOST_TOOLS + 1),
        [WEATHER] * 10 * MOST_TOOLS,
    ],
    "tool_choice": [
        "requird",
        "required",
        3,
        {"type": "function"},
        {"type": "function", "name": "a"},
        {"type": "web_search_preview"},
        {"type": "allowed_tools", "mode": "auto", "tools": []},
        {"type": "allowed_tools", "mode": "always", "tools": [NAMED]},
        {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]},
    ],
    "num_return_sequences": [2, 0, "1"],
    "messages": [[{"role": "user", "content": "a"}]],
    "max_token": [3],
    "n": [1],
    "chat_template": ["{{ messages }}"],
}
REFUSED = [(param, value) for param, values in VALUES.items() for value in values]


@pytest.mark.parametrize(("param", "value"), REFUSED, ids=lambda value: str(value)[:40])
def test_above_the_limit_is_refused(limited: tuple[TestClient, RandomGraphs], param: str, value: Any) -> None:
    client, graphs = limited
    before = len(graphs.runs)
    response = client.post(RESPONSES, json={"input": "a", "max_output_tokens": 1} | {param: value})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert len(graphs.runs) == before


WRONG: list[Any] = [
    -1,
    10**30,
    1.5,
    "x",
    "",
    [],
    {},
    [[]],
    [1.5],
    {"a": "b"},
    {"type": "function"},
    True,
    [None],
    -1e308,
]


def within(value: Any) -> Iterator[Any]:
    """``value`` with each of its parts, at any depth, replaced by something wrong, or left out."""
    yield from WRONG
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        for name in fields:
            yield {key: inner for key, inner in fields.items() if key != name}
            for inner in within(fields[name]):
                yield fields | {name: inner}
    elif isinstance(value, list):
        items = cast(list[Any], value)
        for n in range(len(items)):
            for inner in within(items[n]):
                yield [*items[:n], inner, *items[n + 1 :]]


EVERYTHING: dict[str, Any] = {
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}]},
        {"type": "function_call", "call_id": "a", "name": "b", "arguments": "{}"},
        OUTPUT,
    ],
    "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "string"}}, "verbosity": "medium"},
    "reasoning": {"effort": "none", "summary": "auto", "mode": "standard"},
    "tools": [NAMED],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]},
    "metadata": {"a": "b"},
    "include": ["message.output_text.logprobs"],
    "instructions": "Be brief.",
    "truncation": "auto",
    "max_tool_calls": 1,
    "user": "me",
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "string"}}},
    "stop": ["x"],
    "service_tier": "auto",
}


@pytest.mark.parametrize("param", EVERYTHING)
def test_no_value_of_a_parameter_breaks_the_server(limited: tuple[TestClient, RandomGraphs], param: str) -> None:
    body = {name: value for name, value in EVERYTHING.items() if name not in ("text", "response_format")}
    for value in within(EVERYTHING[param]):
        response = limited[0].post(RESPONSES, json={**body, param: value, "max_output_tokens": 1})
        assert response.status_code in (200, 400), (value, response.text)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"temprature": 1}, "'temprature' is not a parameter of /v1/responses (did you mean 'temperature'?)."),
        ({"max_tokens": 1}, "'max_tokens' is not a parameter of /v1/responses: it is 'max_output_tokens' here."),
        ({"max_output_tokens": 1, "max_new_tokens": 1}, "max_output_tokens and max_new_tokens would say the same"),
        ({"max_output_tokens": 0}, "max_output_tokens: must be at least 1, found 0"),
        ({"previous_response_id": "a"}, "this server keeps no responses: leave it out, and send the whole"),
        ({"previous_response_id": "a", "store": True}, "2 problems:\n  - previous_response_id: 'a'"),
        ({"input": [{"type": "mesage", "role": "user"}, {"role": "usr", "content": 1}]}, "3 problems"),
        ({"input": [{"type": "mesage"}]}, "did you mean 'message'?"),
        (
            {"input": message(content=[{"type": "text", "text": "a"}])},
            "only text is understood, as {'type': 'input_text', 'text': …}",
        ),
        (
            {"tools": [{"type": "function", "name": "a b"}]},
            "tools[0].name: 1 to 128 letters, digits, _, - and . expected, found 'a b'.",
        ),
        ({"tools": [WEATHER], "tool_choice": "requird"}, "{'type': 'function', 'name': …}"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "get_wether"}},
            "did you mean 'get_weather'?",
        ),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "get_weather", "nam": 1}},
            "'nam' is not a key of tool_choice (did you mean 'name'?)",
        ),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "tools": [WEATHER], "mod": "auto"}},
            "'mod' is not a key of tool_choice (did you mean 'mode'?)",
        ),
        (
            {"text": {"format": {"type": "json_object", "shema": {}}}},
            "'shema' is not a key of text.format (did you mean 'schema'?)",
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "a", "scheme": {}}}},
            "'scheme' is not a key of text.format (did you mean 'schema'?)",
        ),
        ({"include": ["message.output_text.logprob"]}, "did you mean 'message.output_text.logprobs'?"),
        ({"model": "fak"}, "no model named 'fak' is served (did you mean 'fake'?)"),
        ({"text": {"format": {"type": "json_object"}}, "grammar": "x"}, "text and grammar both say"),
    ],
)
def test_messages_of_errors(client: TestClient, body: dict[str, Any], said: str) -> None:
    response = client.post(RESPONSES, json={"input": "a", **body})
    assert said in response.json()["error"]["message"]


def test_a_schema_that_cannot_be_enforced(client: TestClient) -> None:
    form = {"type": "json_schema", "name": "a", "schema": {"type": "strin"}}
    response = client.post(RESPONSES, json={"input": "a", "text": {"format": form}})
    assert (response.status_code, error_of(response)["param"]) == (400, "text.format")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"input": NaN}', b'{"temperature": Infinity}', b'{"input": "\\ud800"}'])
def test_bodies_are_json_objects(client: TestClient, body: bytes) -> None:
    response = client.post(RESPONSES, content=body)
    assert (response.status_code, error_of(response)["code"]) == (400, "invalid_json")
