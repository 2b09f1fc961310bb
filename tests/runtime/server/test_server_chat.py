"""Chats over the wire: tools, reasoning, and conversations that outgrow the context."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen.server.http.options import MOST_TOOLS
from tests.runtime.saying import ASKED, CALL, TEMPLATE, THINKING, Saying, saying
from tests.runtime.server.material import CHAT, OpenAIDocument, client_of, error_of, events

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
            "required": ["city"],
        },
    },
}
OSLO = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
TWO_CALLS = f"I look.\n{CALL}\n{CALL.replace('Oslo', 'Rome')}"


def chatting(
    folder: Path, answer: str, template: str = TEMPLATE, *, max_context: int = 2048
) -> tuple[TestClient, Saying]:
    llm, graphs = saying(folder, answer, template, max_context=max_context)
    return client_of(llm), graphs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


@pytest.fixture(scope="module")
def document(test_data: Path) -> OpenAIDocument:
    return OpenAIDocument(test_data / "suites" / "openai-openapi" / "openapi.yaml")


def test_calls_are_parsed(folder: Path, document: OpenAIDocument) -> None:
    client, graphs = chatting(folder, TWO_CALLS)
    body = client.post(CHAT, json={"messages": ASKED, "tools": [WEATHER]}).json()
    document.check("CreateChatCompletionResponse", body)
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I look."
    calls = choice["message"]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["get_weather", "get_weather"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert len({call["id"] for call in calls}) == 2
    assert '"name": "get_weather"' in graphs.prompt


def test_streamed_calls_are_the_whole_ones(folder: Path, document: OpenAIDocument) -> None:
    client, _ = chatting(folder, TWO_CALLS)
    chunks = events(client.post(CHAT, json={"messages": ASKED, "tools": [WEATHER], "stream": True}).text)
    content, calls, reasons = "", dict[int, dict[str, str]](), list[str]()
    for chunk in chunks:
        document.check("CreateChatCompletionStreamResponse", chunk)
        (choice,) = chunk["choices"]
        content += choice["delta"].get("content") or ""
        for delta in choice["delta"].get("tool_calls", []):
            if delta["index"] not in calls:
                assert delta["type"] == "function"
                calls[delta["index"]] = {"id": delta["id"], "name": delta["function"]["name"], "arguments": ""}
            else:
                assert "id" not in delta
                assert "name" not in delta["function"]
            calls[delta["index"]]["arguments"] += delta["function"]["arguments"]
        reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
    assert (content, reasons) == ("I look.", ["tool_calls"])
    assert [(call["name"], json.loads(call["arguments"])) for call in calls.values()] == [
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"city": "Rome"}),
    ]


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_call_can_be_required(folder: Path, choice: Any) -> None:
    client, _ = chatting(folder, "I would rather talk.")
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": OSLO}}
    no_space = {str(code): -100 for code in b" \t\r\n"}
    asked: dict[str, Any] = {"messages": ASKED, "tools": [tool], "tool_choice": choice, "logit_bias": no_space}
    asked |= {"max_tokens": 200, "parallel_tool_calls": False}
    body = client.post(CHAT, json=asked).json()
    (call,) = body["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
    assert body["choices"][0]["message"]["content"] is None


def test_no_call_where_none_is_wanted(folder: Path) -> None:
    client, graphs = chatting(folder, CALL)
    body = client.post(CHAT, json={"messages": ASKED, "tools": [WEATHER], "tool_choice": "none"}).json()
    assert body["choices"][0]["message"] == {"role": "assistant", "content": CALL, "refusal": None}
    assert "get_weather" not in graphs.prompt


def test_one_call_where_parallel_calls_are_not_wanted(folder: Path) -> None:
    client, _ = chatting(folder, TWO_CALLS)
    asked = {"messages": ASKED, "tools": [WEATHER], "parallel_tool_calls": False}
    assert len(client.post(CHAT, json=asked).json()["choices"][0]["message"]["tool_calls"]) == 1


def test_the_answer_to_a_call_goes_on(folder: Path) -> None:
    client, graphs = chatting(folder, CALL)
    message = client.post(CHAT, json={"messages": ASKED, "tools": [WEATHER]}).json()["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "rain"}
    graphs.answer = b"It rains."
    answer = client.post(CHAT, json={"messages": [*ASKED, message, result], "tools": [WEATHER]}).json()
    assert answer["choices"][0]["message"]["content"] == "It rains."
    assert '[get_weather {"city": "Oslo"}]' in graphs.prompt
    assert "<tool>rain" in graphs.prompt


def test_earlier_calls_are_shown_without_tools(folder: Path) -> None:
    """Also for a model whose template knows none: the system message tells of them."""
    client, graphs = chatting(
        folder, "It rains.", TEMPLATE.replace("tool_calls", "nothing").replace("tools", "nothing")
    )
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "1", "content": "rain"}
    client.post(CHAT, json={"messages": [*ASKED, called, result]})
    assert '"city": "Oslo"' in graphs.prompt


def test_thoughts_are_apart(folder: Path) -> None:
    client, _ = chatting(folder, "Let me see.\n</think>\n\nYes.", THINKING)
    message = client.post(CHAT, json={"messages": ASKED}).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Let me see.", "Yes.")
    chunks = events(client.post(CHAT, json={"messages": ASKED, "stream": True}).text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Let me see."
    assert "".join(delta.get("content", "") for delta in deltas) == "Yes."


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"tools": {}}, "tools", "tools: a list expected, found {}"),
        ({"tools": [1]}, "tools", "tools[0] must be a dict"),
        ({"tools": [WEATHER, WEATHER]}, "tools", "tools has 'get_weather' twice"),
        ({"tools": [WEATHER], "tool_choice": "requird"}, "tool_choice", "did you mean 'required'"),
        (
            {"tools": [WEATHER], "tool_choice": 3},
            "tool_choice",
            "or {'type': 'function', 'function': {'name': …}}",
        ),
        ({"tool_choice": "required"}, "tool_choice", "there are none"),
        ({"tools": [WEATHER], "parallel_tool_calls": 1}, "parallel_tool_calls", "true or false expected"),
        ({"tools": [WEATHER] * (MOST_TOOLS + 1)}, "tools", f"at most {MOST_TOOLS}"),
    ],
)
def test_wrong_tools_are_refused(folder: Path, body: dict[str, Any], param: str, message: str) -> None:
    client, graphs = chatting(folder, "Yes.")
    response = client.post(CHAT, json={"messages": ASKED, **body})
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, param)
    assert message in error["message"]
    assert graphs.runs == []


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([{"role": "user", "content": [IMAGE]}], "'image_url': only text parts are understood."),
        ([{"role": "user", "content": 5}], "a list of text parts, not an int."),
        ([{"content": "x"}], "messages[0] has no role."),
    ],
)
def test_wrong_messages_are_refused_in_a_sentence(folder: Path, messages: Any, message: str) -> None:
    client, graphs = chatting(folder, "Yes.")
    response = client.post(CHAT, json={"messages": messages})
    assert response.status_code == 400
    assert error_of(response)["message"].endswith(message)
    assert graphs.runs == []


LONG: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    *({"role": role, "content": f"{role} {n} " + "x" * 20} for n in range(8) for role in ("user", "assistant")),
    {"role": "user", "content": "And now?"},
]


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_that_outgrows_the_context_drops_its_oldest_turns(folder: Path, stream: bool) -> None:
    client, graphs = chatting(folder, "Yes.", max_context=256)
    response = client.post(CHAT, json={"messages": LONG, "max_tokens": 20, "stream": stream})
    dropped = int(response.headers["Edgegen-Dropped-Messages"])
    assert dropped > 0
    assert dropped % 2 == 0
    told = events(response.text)[0] if stream else response.json()
    assert told["dropped_messages"] == dropped
    assert "Be brief." in graphs.prompt
    assert "user 0" not in graphs.prompt
    assert "And now?" in graphs.prompt


def test_a_chat_that_fits_reports_no_dropped_messages(folder: Path) -> None:
    client, _ = chatting(folder, "Yes.")
    response = client.post(CHAT, json={"messages": LONG})
    assert "Edgegen-Dropped-Messages" not in response.headers
    assert "dropped_messages" not in response.json()


def test_dropping_can_be_refused(folder: Path) -> None:
    client, _ = chatting(folder, "Yes.", max_context=256)
    response = client.post(CHAT, json={"messages": LONG, "context_overflow": "error"})
    assert (response.status_code, error_of(response)["code"]) == (400, "context_length_exceeded")
