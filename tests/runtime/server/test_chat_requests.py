"""Requests and answers of clients of chat completions: pieces of calls, thinking, continued answers, odd numbers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.saying import ASKED, CALL, TEMPLATE, THINKING, saying
from tests.runtime.server.material import CHAT, COMPLETION, client_of, error_of, events
from tests.runtime.server.test_server_chat import OSLO, TWO_CALLS, WEATHER, chatting

SWITCHED = TEMPLATE + "{{ '<think>\\n' if enable_thinking is not defined or enable_thinking else '' }}"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


# ---------------------------------------------------------------- pieces of calls


def deltas(text: str) -> Iterator[list[dict[str, Any]]]:
    for chunk in events(text):
        for choice in chunk["choices"]:
            if calls := choice["delta"].get("tool_calls"):
                yield calls


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_chunk_has_one_entry_for_each_call(folder: Path, choice: str) -> None:
    """Also where a step yields several tokens, as the grammar forces them."""
    client, _ = chatting(folder, TWO_CALLS if choice == "auto" else CALL)
    tool = {**WEATHER, "function": {**WEATHER["function"], "parameters": OSLO}}
    body = {"messages": ASKED, "tools": [tool], "tool_choice": choice, "parallel_tool_calls": choice == "auto"}
    body |= {"max_tokens": 300}
    whole = client.post(CHAT, json=body).json()["choices"][0]["message"]["tool_calls"]
    joined = dict[int, str]()
    for calls in deltas(client.post(CHAT, json=body | {"stream": True}).text):
        assert len({call["index"] for call in calls}) == len(calls)
        for call in calls:
            joined[call["index"]] = joined.get(call["index"], "") + call["function"]["arguments"]
    assert list(joined.values()) == [call["function"]["arguments"] for call in whole]
    assert whole


# ---------------------------------------------------------------- log-probabilities


def test_the_bytes_of_a_token_are_its_own(folder: Path) -> None:
    client, _ = chatting(folder, "é–x")
    body = {"messages": ASKED, "logprobs": True, "top_logprobs": 1, "max_tokens": 20}
    entries = client.post(CHAT, json=body).json()["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in entries[:6] for byte in entry["bytes"]).decode() == "é–x"
    assert entries[0]["bytes"] == [0xC3]
    assert entries[0]["top_logprobs"][0]["bytes"] == [0xC3]


@pytest.mark.parametrize("stream", [False, True])
def test_text_offsets_count_characters(folder: Path, stream: bool) -> None:
    llm, _ = saying(folder, "é–xy", None)
    client = client_of(llm)
    body = {"prompt": "Assistant:", "logprobs": 1, "max_tokens": 7, "stream": stream}
    answer = client.post(COMPLETION, json=body)
    choices = [chunk["choices"][0] for chunk in events(answer.text)] if stream else answer.json()["choices"]
    text = "".join(choice["text"] for choice in choices)
    told: list[dict[str, Any]] = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    tokens = [token for logprobs in told for token in logprobs["tokens"]]
    offsets = [offset for logprobs in told for offset in logprobs["text_offset"]]
    assert len(tokens) == 7
    for token, offset in zip(tokens, offsets, strict=True):
        if not token.startswith("bytes:"):
            assert text[offset : offset + len(token)] == token
    assert offsets == sorted(offsets)
    assert offsets[-1] <= len(text)


# ---------------------------------------------------------------- continued answers


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "ins."),
        ({"continue_final_message": True, "add_generation_prompt": False}, "ins."),
        ({"continue_final_message": False}, "It rains."),
        ({"add_generation_prompt": True}, "It rains."),
    ],
)
def test_a_last_message_of_the_assistant_is_continued(folder: Path, more: dict[str, Any], said: str) -> None:
    client, _ = chatting(folder, "It rains.")
    messages = [*ASKED, {"role": "assistant", "content": "It ra"}]
    body = client.post(CHAT, json={"messages": messages, **more}).json()
    assert body["choices"][0]["message"]["content"] == said


def test_contradicting_switches_are_refused(folder: Path) -> None:
    client, _ = chatting(folder, "Yes.")
    messages = [*ASKED, {"role": "assistant", "content": "It ra"}]
    body = {"messages": messages, "continue_final_message": True, "add_generation_prompt": True}
    response = client.post(CHAT, json=body)
    assert response.status_code == 400
    assert "continue_final_message and add_generation_prompt exclude each other" in error_of(response)["message"]
    response = client.post(CHAT, json={"messages": messages, "continue_final_message": "yes"})
    assert "continue_final_message: true or false expected, found 'yes'" in error_of(response)["message"]


# ---------------------------------------------------------------- thinking


@pytest.mark.parametrize(
    ("body", "thinks"),
    [
        ({}, True),
        ({"reasoning_effort": None}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "minimal"}, True),
        ({"reasoning": {"effort": "none"}}, False),
        ({"reasoning": {"enabled": False}}, False),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"thinking": {"type": "disabled"}}, False),
        ({"enable_thinking": False}, False),
    ],
)
def test_thinking_is_switched(folder: Path, body: dict[str, Any], thinks: bool) -> None:
    client, graphs = chatting(folder, "Yes.", SWITCHED)
    assert client.post(CHAT, json={"messages": ASKED, **body}).status_code == 200
    assert graphs.prompt.endswith("<think>\n") == thinks


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("template", "body", "warned"),
    [
        (TEMPLATE, {"reasoning_effort": "low"}, True),
        (TEMPLATE, {"reasoning": {"effort": "high"}}, True),
        (TEMPLATE, {"reasoning_effort": "none"}, False),
        (TEMPLATE, {}, False),
        (SWITCHED, {"reasoning_effort": "low"}, False),
    ],
)
def test_an_effort_of_a_model_that_does_not_think_is_a_warning(
    folder: Path, template: str, body: dict[str, Any], warned: bool, stream: bool
) -> None:
    """Programs send it to every model."""
    client, _ = chatting(folder, "Yes.", template)
    response = client.post(CHAT, json={"messages": ASKED, "stream": stream, **body})
    assert response.status_code == 200
    said = "reasoning_effort changes nothing: this model does not think"
    assert response.headers.get("edgegen-warning") == (said if warned else None)


@pytest.mark.parametrize(
    ("template", "body", "said"),
    [
        (THINKING, {"reasoning_effort": "none"}, "this model always thinks aloud"),
        (TEMPLATE, {"reasoning_effort": "lots"}, "reasoning_effort: 'none', 'minimal'"),
        (
            SWITCHED,
            {"chat_template_kwargs": {"enable_thinkin": True}},
            "'enable_thinkin' is not read by this model's chat template (did you mean 'enable_thinking'?)",
        ),
        (SWITCHED, {"chat_template_kwargs": []}, "chat_template_kwargs: an object of template variables expected"),
        (
            SWITCHED,
            {"chat_template_kwargs": {"messages": []}},
            "'messages' is not supported: it is not a variable of",
        ),
        (SWITCHED, {"reasoning": {"efort": "low"}}, "'efort' is not a key of reasoning (did you mean 'effort'?)"),
    ],
)
def test_thinking_that_cannot_be_had(folder: Path, template: str, body: dict[str, Any], said: str) -> None:
    client, _ = chatting(folder, "Yes.", template)
    response = client.post(CHAT, json={"messages": ASKED, **body})
    assert response.status_code == 400
    assert said in error_of(response)["message"]


THOUGHT = "I wonder whether it rains.\n</think>\n\nYes."


@pytest.mark.parametrize(("most", "thought"), [(0, ""), (8, "I wonder"), (1000, "I wonder whether it rains.")])
def test_thoughts_end_when_they_have_had_their_tokens(folder: Path, most: int, thought: str) -> None:
    client, _ = chatting(folder, THOUGHT, THINKING)
    body = {"messages": ASKED, "max_thinking_tokens": most, "max_tokens": 200}
    message = client.post(CHAT, json=body).json()["choices"][0]["message"]
    assert message.get("reasoning_content", "") == thought
    assert message["content"].endswith("Yes.")


def test_a_budget_of_thinking_in_anthropics_api(folder: Path) -> None:
    client, _ = chatting(folder, "x" * 1500 + "\n</think>\n\nYes.", THINKING)
    body = {"messages": ASKED, "max_tokens": 1800, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    thinking = client.post(MESSAGES, json=body | {"model": "fake"}).json()["content"][0]
    assert thinking["thinking"] == "x" * 1024


# ---------------------------------------------------------------- numbers and names


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_minus_one_is_no_limit(folder: Path, name: str) -> None:
    client, _ = chatting(folder, "Yes. " * 90)
    body = client.post(CHAT, json={"messages": ASKED, name: -1, "seed": -1}).json()
    assert body["choices"][0]["message"]["content"] == "Yes. " * 90
    assert body["choices"][0]["finish_reason"] == "stop"


def test_all_unknown_parameters_are_named(folder: Path) -> None:
    client, _ = chatting(folder, "Yes.")
    response = client.post(CHAT, json={"messages": ASKED, "temprature": 1, "max_token": 1})
    assert response.status_code == 400
    said = response.json()["error"]["message"]
    assert "'temprature' is not a parameter of /v1/chat/completions (did you mean 'temperature'?)" in said
    assert "'max_token' is not a parameter of /v1/chat/completions (did you mean 'max_tokens'?)" in said


@pytest.mark.parametrize(
    "body",
    [
        {"guided_json": OSLO},
        {"json_schema": OSLO},
        {"structured_outputs": {"json": OSLO}},
        {"response_format": {"type": "json_object", "schema": OSLO}},
    ],
    ids=lambda body: next(iter(body)),
)
def test_other_servers_names_of_a_schema_are_enforced(folder: Path, body: dict[str, Any]) -> None:
    client, _ = chatting(folder, "No.")
    asked = {"messages": ASKED, "max_tokens": 60, "logit_bias": {str(code): -100 for code in b" \t\r\n"}, **body}
    content = client.post(CHAT, json=asked).json()["choices"][0]["message"]["content"]
    assert json.loads(content) == {"city": "Oslo"}


def test_two_schemas_are_refused(folder: Path) -> None:
    client, _ = chatting(folder, "No.")
    body = {"messages": ASKED, "guided_json": OSLO, "response_format": {"type": "json_object"}}
    response = client.post(CHAT, json=body)
    assert response.status_code == 400
    assert "guided_json and response_format both say what the text must be" in error_of(response)["message"]


# ---------------------------------------------------------------- turns


@pytest.mark.parametrize("tools", [[WEATHER], None], ids=["tools", "no tools"])
def test_an_answer_sent_back_as_it_was_is_accepted(folder: Path, tools: list[Any] | None) -> None:
    client, graphs = chatting(folder, TWO_CALLS.removeprefix("I look.\n"))
    message = client.post(CHAT, json={"messages": ASKED, "tools": [WEATHER]}).json()["choices"][0]["message"]
    assert message["content"] is None
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "rain"} for call in message["tool_calls"]]
    body = {"messages": [*ASKED, message, *results], **({"tools": tools} if tools else {})}
    assert client.post(CHAT, json=body).status_code == 200
    assert graphs.prompt.count("rain") == 2
    assert "Oslo" in graphs.prompt
    assert "Rome" in graphs.prompt


CALLING: dict[str, Any] = {"role": "assistant", "content": None}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([{"role": "user", "content": "Hello", "nmae": "x"}], "messages[0] has no 'nmae' (did you mean 'name'?)"),
        ([{"role": "user", "content": "Look", "images": ["iVBO"]}], "messages[0] has no 'images'"),
        (
            [CALLING | {"tool_calls": [{"id": "a", "function": {"name": "f", "argumnts": "{}"}}]}],
            "messages[0].tool_calls[0].function has no 'argumnts' (did you mean 'arguments'?)",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "Hello", "txt": ""}]}],
            "messages[0].content[0] has no 'txt' (did you mean 'text'?)",
        ),
    ],
)
def test_an_unknown_field_is_named(folder: Path, messages: list[Any], said: str) -> None:
    client, _ = chatting(folder, "Yes.")
    response = client.post(CHAT, json={"messages": messages})
    assert response.status_code == 400
    assert said in error_of(response)["message"]


def test_what_clients_add_to_an_answer_is_accepted(folder: Path) -> None:
    """Keys that the openai client's parsed messages, litellm's and others have beside ours."""
    client, graphs = chatting(folder, "Yes.")
    call: dict[str, Any] = {
        "id": "a",
        "type": "function",
        "index": 0,
        "function": {"name": "get_weather", "arguments": "{}"},
    }
    call["function"]["parsed_arguments"] = {}
    answer: dict[str, Any] = CALLING | {
        "tool_calls": [call],
        "parsed": None,
        "audio": None,
        "annotations": None,
        "refusal": None,
    }
    answer |= {"provider_specific_fields": {"refusal": None}, "cache_control": {"type": "ephemeral"}}
    part = {"type": "text", "text": "Thanks", "cache_control": {"type": "ephemeral"}}
    refused = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}], "tool_calls": None}
    messages = [*ASKED, answer, {"role": "tool", "tool_call_id": "a", "name": "get_weather", "content": "rain"}]
    messages += [refused, {"role": "user", "content": [part]}]
    assert client.post(CHAT, json={"messages": messages, "tools": [WEATHER]}).status_code == 200
    assert "I cannot." in graphs.prompt
    assert "Thanks" in graphs.prompt
