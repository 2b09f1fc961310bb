"""Anthropic's ``/v1/messages``: what the model reads, what it answers whole and streamed, its errors and limits."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen.bundle.bundle import Bundle
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from edgegen.server.http.options import MOST_BODY_BYTES, MOST_MESSAGES, MOST_STOPS, MOST_TOOLS, ServerOptions
from tests.runtime.models import EOS, FailAt, FakeGraphs, Gate, RandomGraphs, fake_llm
from tests.runtime.saying import ASKED, CALL, TEMPLATE, Saying, saying
from tests.runtime.server.material import HELLO, client_of, fake_client
from tests.runtime.server.messages import (
    COUNT_TOKENS,
    MESSAGES,
    STREAMED,
    TWO_CALLS,
    WEATHER,
    assembled,
    error_of,
    events_of,
)

SWITCH = TEMPLATE + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"


def answering(folder: Path, answer: str, template: str = TEMPLATE, **more: Any) -> tuple[TestClient, Saying]:
    llm, graphs = saying(folder, answer, template, **more)
    return client_of(llm), graphs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return fake_llm(tmp_path_factory.mktemp("messages") / "fake", RandomGraphs())


@pytest.fixture(scope="module")
def client(llm: LLM) -> TestClient:
    return client_of(llm)


def test_an_answer_is_that_of_python(client: TestClient, llm: LLM) -> None:
    body = {"model": "fake", "messages": HELLO, "max_tokens": 12, "temperature": 0.9, "seed": 5, "min_p": 0.05}
    message = client.post(MESSAGES, json=body).json()
    told = llm.chat(HELLO, max_new_tokens=12, temperature=0.9, seed=5, min_p=0.05)
    assert message.pop("id").startswith("msg_")
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "fake",
        "content": [{"type": "text", "text": told.text}],
        "stop_reason": "max_tokens",
        "stop_sequence": None,
        "usage": {
            "input_tokens": told.timings.prompt_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 12,
        },
    }


@pytest.mark.parametrize("name", STREAMED)
def test_a_stream_is_the_whole_message(folder: Path, name: str) -> None:
    answer, template, more = STREAMED[name]
    client, _ = answering(folder, answer, template)
    body = {"messages": ASKED, "max_tokens": 400, **more}
    whole = client.post(MESSAGES, json=body).json()
    streamed = assembled(events_of(client.post(MESSAGES, json=body | {"stream": True})))
    for message in (whole, streamed):  # what each request makes anew
        del message["id"]
        for block in message["content"]:
            block.pop("id", None)
    assert streamed == whole


STOPS: dict[str, tuple[dict[str, Any], tuple[str, str | None], str]] = {
    "the model ends": ({}, ("end_turn", None), "One. Two."),
    "a stop sequence": ({"stop_sequences": ["zzz", ". T"]}, ("stop_sequence", ". T"), "One"),
    "an expression": ({"stop_regex": "[A-Z]wo"}, ("stop_sequence", "Two"), "One. "),
    "the limit": ({"max_tokens": 3}, ("max_tokens", None), "One"),
    "the limit at the model's end": ({"max_tokens": 9}, ("max_tokens", None), "One. Two."),
}


@pytest.mark.parametrize("name", STOPS)
def test_stop_reasons(folder: Path, name: str) -> None:
    more, reason, text = STOPS[name]
    client, _ = answering(folder, "One. Two.")
    message = client.post(MESSAGES, json={"messages": ASKED, "max_tokens": 400, **more}).json()
    assert (message["stop_reason"], message["stop_sequence"]) == reason
    assert message["content"] == [{"type": "text", "text": text}]


def test_the_end_of_the_context_is_no_limit_of_the_client(folder: Path) -> None:
    client, _ = answering(folder, "x" * 400, max_context=128)
    body = {"messages": ASKED, "max_tokens": 32000}
    assert client.post(MESSAGES, json=body).json()["stop_reason"] == "model_context_window_exceeded"


def test_a_stop_string_of_the_transcript_ends_the_turn(folder: Path) -> None:
    """A base model goes on by itself; what ends its turn is nothing that the client has asked for."""
    llm, _ = saying(folder, "Hi.\nUser: and", None)
    message = client_of(llm).post(MESSAGES, json={"messages": HELLO, "max_tokens": 40}).json()
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
    assert message["content"][0]["text"] == "Hi."


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


USED = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1"}
CALLED = [*ASKED, {"role": "assistant", "content": [text("I look."), USED]}]
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}

READ: dict[str, tuple[dict[str, Any], str]] = {
    "a system prompt": ({"system": "Be brief.", "messages": HELLO}, "<system>Be brief.<user>Hello<assistant>"),
    "a system prompt in blocks": (
        {"system": [text("Be brief.", **CACHED), text("Be kind.")], "messages": HELLO},
        "<system>Be brief.\nBe kind.<user>Hello<assistant>",
    ),
    "the line of the bill is not for the model": (
        {"system": [text("x-anthropic-billing-header: v=1;"), text("Be brief.")], "messages": HELLO},
        "<system>Be brief.<user>Hello<assistant>",
    ),
    "blocks of text": ({"messages": [user(text("One"), text("Two", **CACHED))]}, "<user>One\nTwo<assistant>"),
    "messages in a row are one turn": (
        {"messages": [*HELLO, *ASKED, *({"role": "assistant", "content": said} for said in "AB"), *ASKED]},
        "<user>Hello\nWeather?<assistant>A\nB<user>Weather?<assistant>",
    ),
    "a system message between others": (
        {"messages": [*HELLO, {"role": "system", "content": "It is noon."}]},
        "<user>Hello<system>It is noon.<assistant>",
    ),
    "a system message for one turn": (
        {"messages": [*HELLO, {"role": "system", "content": "Now!", "clear_at": "next_user_message"}, *ASKED]},
        "<user>Hello\nWeather?<assistant>",
    ),
    "a call and its result": (
        {"messages": [*CALLED, user({**RESULT, "content": "rain"})]},
        '<user>Weather?<assistant>I look.[get_weather {"city": "Oslo"}]<tool>rain<assistant>',
    ),
    "a result in blocks, and more words": (
        {"messages": [*CALLED, user({**RESULT, "content": [text("rain"), text("wind")], **CACHED}, text("And?"))]},
        '<user>Weather?<assistant>I look.[get_weather {"city": "Oslo"}]<tool>rain\nwind<user>And?<assistant>',
    ),
    "a result that is an error": (
        {"messages": [*CALLED, user({**RESULT, "content": "no such city", "is_error": True})]},
        '<user>Weather?<assistant>I look.[get_weather {"city": "Oslo"}]<tool>Error: no such city<assistant>',
    ),
    "a result of nothing": (
        {"messages": [*CALLED, user(RESULT)]},
        '<user>Weather?<assistant>I look.[get_weather {"city": "Oslo"}]<tool><assistant>',
    ),
    "the beginning of the answer": (
        {"messages": [*HELLO, {"role": "assistant", "content": "It"}]},
        "<user>Hello<assistant>It",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_the_model_reads(folder: Path, name: str) -> None:
    body, prompt = READ[name]
    assert heard(folder, {"max_tokens": 1, **body}) == prompt


def heard(folder: Path, body: dict[str, Any], template: str = TEMPLATE) -> str:
    """The prompt of a request, whose answer is empty."""
    prompts = list[str]()

    def end(ids: list[int]) -> int:
        prompts.append(bytes(ids).decode())
        return EOS

    llm = fake_llm(folder, FakeGraphs(end), config={"eos_token_id": EOS}, template=template)
    assert client_of(llm).post(MESSAGES, json=body).json()["content"] == []
    return prompts[-1]


def test_a_conversation_with_calls_goes_on_without_tools(folder: Path) -> None:
    """Also where the template has no place for tools."""
    llm, graphs = saying(folder, "It rains.", None)
    body = {"messages": [*CALLED, user({**RESULT, "content": "rain"})], "max_tokens": 40}
    message = client_of(llm).post(MESSAGES, json=body).json()
    assert message["content"][0]["text"].strip() == "It rains."
    assert "<tool_response>\nrain\n</tool_response>" in graphs.prompt


def test_a_tool_is_told_and_called(folder: Path) -> None:
    client, graphs = answering(folder, TWO_CALLS)
    tool = WEATHER | {"strict": True, "type": "custom", "input_examples": [{"city": "Rome"}], **CACHED}
    message = client.post(MESSAGES, json={"messages": ASKED, "max_tokens": 400, "tools": [tool]}).json()
    assert message["stop_reason"] == "tool_use"
    said, first, second = message["content"]
    assert said == text("I look.")
    assert (first["name"], first["input"], second["input"]) == ("get_weather", {"city": "Oslo"}, {"city": "Rome"})
    assert first["id"] != second["id"]
    told = json.loads(graphs.prompt.partition("<tool_call>")[0])
    schema = {**WEATHER["input_schema"], "examples": [{"city": "Rome"}]}
    function = {"name": "get_weather", "description": WEATHER["description"], "parameters": schema}
    assert told == {"type": "function", "function": function}


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_call_can_be_asked_for(folder: Path, choice: dict[str, Any]) -> None:
    client, _ = answering(folder, "I would rather talk.")
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
    }
    schema |= {"properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}
    body: dict[str, Any] = {
        "messages": ASKED,
        "max_tokens": 200,
        "tools": [{"name": "get_weather", "input_schema": schema}],
    }
    body |= {"tool_choice": choice | {"disable_parallel_tool_use": True}}
    body |= {"logit_bias": {str(code): -100 for code in b" \t\r\n"}}
    message = client.post(MESSAGES, json=body).json()
    assert message["stop_reason"] == "tool_use"
    assert [block.get("input") for block in message["content"]] == [{"city": "Oslo"}]


def test_one_call_where_several_are_not_wanted(folder: Path) -> None:
    client, _ = answering(folder, TWO_CALLS)
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    body = {"messages": ASKED, "max_tokens": 400, "tools": [WEATHER], "tool_choice": choice}
    content = client.post(MESSAGES, json=body).json()["content"]
    assert [block["input"] for block in content if block["type"] == "tool_use"] == [{"city": "Oslo"}]


def test_no_call_where_none_is_wanted(folder: Path) -> None:
    client, graphs = answering(folder, CALL)
    body = {"messages": ASKED, "max_tokens": 200, "tools": [WEATHER], "tool_choice": {"type": "none"}}
    assert client.post(MESSAGES, json=body).json()["content"] == [text(CALL)]
    assert "get_weather" not in graphs.prompt


def test_a_tool_to_be_loaded_later_is_told_once_it_is_found(folder: Path) -> None:
    client, graphs = answering(folder, "Yes.")
    body = {"max_tokens": 9, "tools": [WEATHER | {"defer_loading": True}, WEATHER | {"name": "other"}]}
    client.post(MESSAGES, json=body | {"messages": ASKED})
    assert '"name": "other"' in graphs.prompt
    assert "get_weather" not in graphs.prompt
    search = {"role": "assistant", "content": [{**USED, "name": "other", "input": {}}]}
    found = user({**RESULT, "content": [{"type": "tool_reference", "tool_name": "get_weather"}]})
    client.post(MESSAGES, json=body | {"messages": [*ASKED, search, found]})
    assert '"name": "get_weather"' in graphs.prompt
    assert "<tool>get_weather can be called." in graphs.prompt


def test_thoughts_come_back_to_the_model(folder: Path) -> None:
    """Also those that the client does not want to see: their block's signature carries them."""
    template = TEMPLATE.replace("{{ m.content }}", "{{ m.content }}({{ m.reasoning_content }})")
    client, graphs = answering(folder, "Ünder us.\n</think>\n\nYes.", template + "{{ '<think>\\n' }}")
    for display in ("summarized", "omitted"):
        body = {"messages": ASKED, "max_tokens": 400, "thinking": {"type": "adaptive", "display": display}}
        content = client.post(MESSAGES, json=body).json()["content"]
        assert content[0]["thinking"] == ("Ünder us." if display == "summarized" else "")
        assert content[0]["signature"]
        client.post(MESSAGES, json=body | {"messages": [*ASKED, {"role": "assistant", "content": content}, *ASKED]})
        assert "<assistant>Yes.(Ünder us.)" in graphs.prompt


@pytest.mark.parametrize("signature", ["", "EqoB", "edgegen", "edgegen:", "edgegen:%", "edgegen:/w==", 3, None])
def test_thoughts_of_other_models_are_none(folder: Path, signature: Any) -> None:
    template = TEMPLATE.replace("{{ m.content }}", "{{ m.content }}({{ m.reasoning_content }})")
    thoughts = [
        {"type": "thinking", "thinking": "", "signature": signature},
        {"type": "redacted_thinking", "data": "x"},
    ]
    message = {"role": "assistant", "content": [*thoughts, text("Yes.")]}
    prompt = heard(folder, {"messages": [*ASKED, message, *ASKED], "max_tokens": 9}, template)
    assert "<assistant>Yes.()<user>" in prompt


@pytest.mark.parametrize(
    ("thinking", "end"),
    [
        (None, "<assistant>"),
        ({"type": "adaptive"}, "<assistant>"),
        ({"type": "enabled", "budget_tokens": 1024}, "<assistant>"),
        ({"type": "disabled"}, "<assistant><think></think>"),
    ],
)
def test_thinking_is_the_template_s_switch(folder: Path, thinking: Any, end: str) -> None:
    body = {"messages": ASKED, "max_tokens": 2000, "thinking": thinking}
    assert heard(folder, body, SWITCH) == f"<user>Weather?{end}"


@pytest.mark.parametrize(("effort", "told"), [("low", "low"), ("high", "high"), ("max", "high"), (None, "")])
def test_effort_is_told_to_templates_that_know_it(folder: Path, effort: str | None, told: str) -> None:
    body = {"messages": ASKED, "max_tokens": 9, "output_config": {"effort": effort}}
    assert heard(folder, body, "({{ reasoning_effort }})" + TEMPLATE).startswith(f"({told})<user>")


@pytest.mark.parametrize("older", [False, True])
def test_an_answer_follows_a_schema(client: TestClient, older: bool) -> None:
    form = {"type": "json_schema", "schema": {"enum": ["yes", "no"]}}
    asked = {"output_format": form} if older else {"output_config": {"format": form}}
    message = client.post(
        MESSAGES, json={"messages": ASKED, "max_tokens": 40, "logit_bias": {"32": -100}, **asked}
    ).json()
    assert json.loads(message["content"][0]["text"]) in ("yes", "no")


COUNTED: dict[str, dict[str, Any]] = {
    "text": {"messages": HELLO},
    "a system prompt": {"messages": HELLO, "system": [text("Be brief.", **CACHED)]},
    "tools": {"messages": ASKED, "tools": [WEATHER]},
    "no tools": {"messages": ASKED, "tools": [WEATHER], "tool_choice": {"type": "none"}},
    "calls": {"messages": [*CALLED, user({**RESULT, "content": "rain"})], "tools": [WEATHER]},
    "thinking": {"messages": ASKED, "thinking": {"type": "disabled"}},
    "an answer begun": {"messages": [*HELLO, {"role": "assistant", "content": "It"}]},
}


@pytest.mark.parametrize("template", [SWITCH, None], ids=["template", "transcript"])
@pytest.mark.parametrize("name", COUNTED)
def test_tokens_are_those_of_the_request(folder: Path, name: str, template: str | None) -> None:
    llm, graphs = saying(folder, "Yes.", template)
    client, body = client_of(llm), COUNTED[name]
    counted = client.post(COUNT_TOKENS, json=body).json()
    assert graphs.runs == []
    usage = client.post(MESSAGES, json=body | {"max_tokens": 2}).json()["usage"]
    assert counted == {"input_tokens": usage["input_tokens"]}


def test_tokens_are_counted_beyond_the_context(folder: Path) -> None:
    client, _ = answering(folder, "Yes.", max_context=64)
    body = {"messages": [{"role": "user", "content": "x" * 1000}]}
    assert client.post(COUNT_TOKENS, json=body).json() == {"input_tokens": 1000 + len("<user><assistant>")}
    error = error_of(client.post(MESSAGES, json=body | {"max_tokens": 5}), 400)
    assert error == {"type": "invalid_request_error", "message": "prompt is too long: 1017 tokens > 64 maximum"}


def test_what_is_cached_is_counted_apart(int8_bundle: Bundle) -> None:
    client = client_of(LLM.load(int8_bundle.path, options=EngineOptions(threads=1)))
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "a long prefix that comes again"}]}
    counted = client.post(COUNT_TOKENS, json=body).json()["input_tokens"]
    body["max_tokens"] = 1
    first, second = (client.post(MESSAGES, json=body).json()["usage"] for _ in range(2))
    streamed = assembled(events_of(client.post(MESSAGES, json=body | {"stream": True})))["usage"]
    assert (first["input_tokens"], first["cache_read_input_tokens"]) == (counted, 0)
    for usage in (second, streamed):
        assert usage["cache_read_input_tokens"] > 20
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == counted


def test_a_request_of_claude_code(folder: Path) -> None:
    """Request of version 2.1.330, but for the length of its texts and the number of its tools.

    It is set up by ANTHROPIC_BASE_URL, ANTHROPIC_AUTH_TOKEN and ANTHROPIC_MODEL, and ``max_tokens`` is
    CLAUDE_CODE_MAX_OUTPUT_TOKENS.
    """
    client, graphs = answering(folder, TWO_CALLS)
    body: dict[str, Any] = {
        "model": "fake",
        "messages": [
            user(text("<system-reminder>\nGit.\n</system-reminder>"), text("List the files.")),
            {"role": "system", "content": [text("# Environment", cache_control={"type": "ephemeral"})]},
        ],
        "system": [
            text("x-anthropic-billing-header: cc_version=2.1.330.aad; cc_entrypoint=sdk-cli;"),
            text("You are a Claude agent.", cache_control={"type": "ephemeral"}),
        ],
        "tools": [
            WEATHER,
            {"name": "DeferredToolPlaceholder", "description": "Later.", "defer_loading": True,
             "input_schema": {"type": "object", "properties": {}}},
        ],
        "metadata": {"user_id": "{}"},
        "max_tokens": 32000,
        "thinking": {"type": "adaptive", "display": "updates"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
    }  # fmt: skip
    message = assembled(events_of(client.post(f"{MESSAGES}?beta=true", json=body)))
    assert message["stop_reason"] == "tool_use"
    assert message["context_management"] == {"applied_edits": []}
    assert "<system>You are a Claude agent.<user><system-reminder>" in graphs.prompt
    assert "List the files.<system># Environment<assistant>" in graphs.prompt


def test_oldest_turns_can_be_dropped(folder: Path) -> None:
    client, graphs = answering(folder, "Yes.", max_context=200)
    turns = [{"role": role, "content": f"{role} {n} " + "x" * 20} for n in range(8) for role in ("user", "assistant")]
    body: dict[str, Any] = {"messages": [*turns, *ASKED], "system": "Be brief.", "max_tokens": 20}
    assert error_of(client.post(MESSAGES, json=body), 400)["message"].startswith("prompt is too long: ")
    response = client.post(MESSAGES, json=body | {"context_overflow": "drop_oldest"})
    dropped = int(response.headers["Edgegen-Dropped-Messages"])
    assert response.json()["dropped_messages"] == dropped > 0
    assert "<system>Be brief.<user>user" in graphs.prompt
    assert "user 0" not in graphs.prompt


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"max_tokns": 1}, "'max_tokns' is not a parameter of /v1/messages (did you mean 'max_tokens'?)."),
    ({"max_tokens": None}, "max_tokens is missing: say how many tokens the answer may have."),
    ({"max_new_tokens": 1}, "max_tokens and max_new_tokens would say the same: keep one of them."),
    ({"num_return_sequences": 2}, "num_return_sequences: 2 is not supported: a message is one answer"),
    ({"logprobs": True}, "logprobs: True is not supported: a message is one answer without"),
    ({"container": "c"}, "container: 'c' is not supported: leave it out."),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers: [{'url': 'x'}] is not supported: leave it out."),
    ({"model": "fak"}, "no model named 'fak' is served (did you mean 'fake'?)"),
    ({"system": 3}, "system: text or a list of content blocks expected, found 3."),
    ({"system": [{"type": "image"}]}, "system[0].type: 'image' is not supported: models here read text only"),
    ({"messages": None}, "messages: a list of messages such as"),
    ({"messages": []}, "messages: a list of messages such as"),
    ({"messages": [3]}, "[0]: an object whose role is user, assistant, system expected, found 3."),
    ({"messages": [{"role": "usr", "content": "a"}]}, ".role: user, assistant, system expected, found 'usr' (did you"),
    ({"messages": [{"role": "user"}]}, ".content is missing: text or a list of content blocks expected."),
    ({"messages": [{**HELLO[0], "nam": "x"}]}, "'nam' is not a key of messages[0]."),
    ({"messages": [{"role": "user", "content": [3]}]}, "an object whose type is text, tool_result expected, found 3."),
    ({"messages": [user({"type": "tex"})]}, "found 'tex' (did you mean 'text'?)."),
    ({"messages": [user({"type": []})]}, "content[0].type: text, tool_result expected, found []."),
    ({"messages": [user(text("a", cach_control={}))]}, "of messages[0].content[0] (did you mean 'cache_control'?)."),
    ({"messages": [user({"type": "text"})]}, "messages[0].content[0].text is missing: text expected."),
    ({"messages": [user({"type": "document", "source": {}})]}, "'document' is not supported: models here read text"),
    ({"messages": [user(RESULT)]}, "tool_use_id: the id of an earlier tool_use block expected, found 'toolu_1'."),
    ({"messages": [*CALLED, user({**RESULT, "is_error": 1})]}, "is_error: true or false expected, found 1."),
    ({"messages": [*CALLED, user({**RESULT, "content": 3})]}, "content[0].content: text or a list of content blocks"),
    ({"messages": CALLED}, "messages[1] calls tools: a message of the user with their tool_result blocks expected."),
    ({"messages": [{"role": "assistant", "content": ""}]}, "is the beginning of the answer, and has no text."),
    ({"messages": [{"role": "assistant", "content": [{**USED, "input": "{}"}]}]}, "input: an object expected, found"),
    ({"messages": [{"role": "assistant", "content": [text("a"), {**USED, "id": 3}]}]}, ".id: text expected, found 3."),
    ({"messages": [{"role": "assistant", "content": [{"type": "thinking"}]}]}, ".thinking is missing: text expected."),
    ({"tools": {}}, "tools: a list expected, found {}."),
    ({"tools": [3]}, "tools[0]: a tool such as"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "only custom tools, with an input_schema"),
    ({"tools": [{"name": "a"}]}, "tools[0].input_schema is missing: a JSON schema expected."),
    ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name: 1 to 128 letters, digits, _, - and . expected"),
    ({"tools": [{"input_schema": {}}], "tool_choice": {"type": "none"}}, "tools[0].name is missing: 1 to 128 letters"),
    ({"tools": [{"input_schema": {}, "defer_loading": True}]}, "tools[0].name is missing: 1 to 128 letters"),
    ({"tools": [{"name": "a", "input_schema": {"type": "array"}}]}, "tools[0].input_schema.type: 'array' is not"),
    ({"tools": [WEATHER, WEATHER]}, "tools has 'get_weather' twice."),
    ({"tools": [WEATHER | {"descripton": ""}]}, "not a key of tools[0] (did you mean 'description'?)."),
    ({"tools": [WEATHER | {"description": 3}]}, "tools[0].description: text expected, found 3."),
    ({"tool_choice": "auto"}, "tool_choice: an object whose type is auto, any, tool, none expected, found 'auto'."),
    ({"tool_choice": {"type": "required"}}, "tool_choice.type: auto, any, tool, none expected, found 'required'."),
    ({"tool_choice": {"type": "any"}}, "tool_choice: there are no tools: give tools with it, or leave it out."),
    ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "get_wether"}}, "(did you mean 'get_weather'?)."),
    ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}, "disable_parallel_tool_use: true or false"),
    ({"tool_choice": {"type": "auto", "name": "x"}}, "'name' is not a key of tool_choice."),
    ({"thinking": True}, "thinking: an object whose type is enabled, adaptive, disabled expected, found True."),
    ({"thinking": {"type": "enable"}}, "thinking.type: enabled, adaptive, disabled expected, found 'enable'"),
    ({"thinking": {"type": "adaptive", "budget_tokens": 2000}}, "'budget_tokens' is not a key of thinking."),
    ({"thinking": {"type": "adaptive", "display": "all"}}, "thinking.display: summarized, updates, omitted expected"),
    ({"output_config": 3}, "output_config: an object of format, effort expected, found 3."),
    ({"output_config": {"efort": "high"}}, "not a key of output_config (did you mean 'effort'?)."),
    ({"output_config": {"effort": "hgh"}}, "max expected, found 'hgh' (did you mean 'high'?)."),
    ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type: json_schema expected, found 'xml'"),
    ({"output_format": {"type": "json_schema"}}, "output_format.schema is missing: a JSON schema expected."),
    ({"output_format": {"type": "json_schema", "schema": {"type": "nothing"}}}, "nothing"),
    ({"stop_sequences": "x" * 1025}, "stop_sequences: a text of at most 1024 characters expected"),
    ({"stream": "yes"}, "stream: true or false expected, found 'yes'"),
    ({"chat_template": "x"}, "'chat_template' is not a parameter of /v1/messages"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "said"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_wrong_requests_are_refused(folder: Path, body: dict[str, Any], said: str) -> None:
    graphs = RandomGraphs()
    client = fake_client(folder, graphs=graphs)
    response = client.post(MESSAGES, json={"messages": HELLO, "max_tokens": 4, **body})
    error = error_of(response, 404 if "model" in body else 400)
    assert error["type"] == ("not_found_error" if "model" in body else "invalid_request_error")
    assert said in error["message"]
    assert graphs.runs == []


def test_everything_that_is_wrong_is_told_at_once(client: TestClient) -> None:
    body = {"messages": [user({"type": "image"}), 3], "tools": [3], "thinking": 1, "output_config": 1, "container": "x"}
    message = error_of(client.post(MESSAGES, json=body), 400)["message"]
    assert message.startswith("7 problems:\n  - max_tokens is missing: say how many tokens the answer may have")


def test_a_body_full_of_mistakes_is_not_read_to_its_end(client: TestClient) -> None:
    blocks = [{"type": "nothing", "n": n} for n in range(50_000)]
    error = error_of(client.post(MESSAGES, json={"messages": [user(*blocks)], "max_tokens": 1}), 400)
    assert error["message"].startswith("32 problems:")
    keys = {f"key {n}": 1 for n in range(50_000)}
    error_of(client.post(MESSAGES, json={"messages": [user(text("a", **keys))], "max_tokens": 1}), 400)


LIMITS: dict[str, list[Any]] = {
    "max_tokens": [65, 640, 10**400, 0, -1, 1.5, "8", True, [1]],
    "temperature": [-1, "1", 1e300, [], True],
    "top_p": [-0.1, 1.5, "1"],
    "top_k": [-1, 1.5, "1"],
    "stop_sequences": [["x"] * (MOST_STOPS + 1), ["x"] * 10 * MOST_STOPS, [""], 3, {"a": 1}],
    "tools": [[WEATHER] * (MOST_TOOLS + 1), [WEATHER] * 10 * MOST_TOOLS],
    "messages": [HELLO * (MOST_MESSAGES + 1), HELLO * 10 * MOST_MESSAGES],
    "thinking": [{"type": "enabled", "budget_tokens": budget} for budget in (1023, 64, -1, 0, 1.5, "2000", None, True)],
    "seed": ["1", 1.5, -(10**400)],
}
AT_LIMIT: dict[str, Any] = {
    "max_tokens": 64,
    "temperature": 0,
    "top_p": 1.0,
    "stop_sequences": [f"stop {n}" for n in range(MOST_STOPS)],
    "tools": [{"name": f"tool_{n}", "input_schema": {"type": "object"}} for n in range(MOST_TOOLS)],
    "messages": [{"role": "user", "content": ""}] * MOST_MESSAGES,
}


@pytest.mark.parametrize("name", LIMITS)
def test_above_the_limit_is_refused(folder: Path, name: str) -> None:
    graphs = RandomGraphs()
    client = fake_client(folder, ServerOptions(max_tokens=64), graphs)
    for value in LIMITS[name]:
        error = error_of(client.post(MESSAGES, json={"messages": HELLO, "max_tokens": 4, name: value}), 400)
        assert error["message"].startswith(name), (value, error)
    nan = json.dumps({"messages": HELLO, "max_tokens": 4, name: float("nan")})
    assert "NaN is no number" in error_of(client.post(MESSAGES, content=nan), 400)["message"]
    assert graphs.runs == []


@pytest.mark.parametrize("name", AT_LIMIT)
def test_at_the_limit_is_answered(folder: Path, name: str) -> None:
    llm = fake_llm(folder, RandomGraphs(), max_context=20_000, prefill_chunk=4096)
    client = client_of(llm, ServerOptions(max_tokens=64))
    response = client.post(MESSAGES, json={"messages": HELLO, "max_tokens": 1, name: AT_LIMIT[name]})
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("path", [MESSAGES, COUNT_TOKENS])
def test_errors_of_the_server_have_the_shape_too(folder: Path, path: str) -> None:
    llm = fake_llm(folder, RandomGraphs())
    client = client_of(llm, ServerOptions(keys=("secret-key",)))
    key = {"x-api-key": "secret-key"}
    error = error_of(client.post(path, json={}), 401)
    assert error["type"] == "authentication_error"
    assert "'x-api-key: KEY'" in error["message"]
    assert error_of(client.post(path, headers=key | {"Host": "evil.example"}), 403)["type"] == "permission_error"
    assert error_of(client.get(path, headers=key), 405)["type"] == "invalid_request_error"
    assert (
        error_of(client.post(f"{path}s", headers=key), 404)["type"] == "not_found_error" if path != MESSAGES else True
    )
    assert error_of(client.post(path, headers=key, content=b"{"), 400)["type"] == "invalid_request_error"
    large = b" " * (MOST_BODY_BYTES + 1)
    assert error_of(client.post(path, headers=key, content=large), 413)["type"] == "request_too_large"
    full = client_of(llm, ServerOptions(max_queue=0), running=0).post(path, json={})
    assert error_of(full, 503)["type"] == "overloaded_error"
    assert full.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-api-key": "first-key"}, 200),
        ({"x-api-key": " second-key "}, 200),
        ({"Authorization": "Bearer first-key"}, 200),
        ({"x-api-key": "first-key", "Authorization": "Bearer other"}, 200),
        ({"x-api-key": "other", "Authorization": "Bearer first-key"}, 200),
        ({"x-api-key": "other"}, 401),
        ({"x-api-key": "Bearer first-key"}, 401),
        ({"x-api-key": ""}, 401),
        ({"x-api-key": "schlüssel".encode("latin-1")}, 401),
    ],
)
def test_keys(client: TestClient, llm: LLM, headers: Any, status: int) -> None:
    guarded = client_of(llm, ServerOptions(keys=("first-key", "second-key")))
    response = guarded.post(COUNT_TOKENS, json={"messages": HELLO}, headers=headers)
    assert response.status_code == status
    assert "first-key" not in response.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_fails(folder: Path, stream: bool) -> None:
    graphs = RandomGraphs()
    client = fake_client(folder, graphs=graphs)
    graphs.before_run = FailAt(5, RuntimeError("secret detail"))
    response = client.post(MESSAGES, json={"messages": HELLO, "max_tokens": 9, "stream": stream})
    assert "secret detail" not in response.text
    if stream:
        *_, (name, last) = events_of(response, whole=False)
        assert (name, last["type"], last["error"]["type"]) == ("error", "error", "api_error")
    else:
        assert error_of(response, 500)["type"] == "api_error"


def test_a_request_out_of_time(folder: Path) -> None:
    graphs = RandomGraphs()
    client = fake_client(folder, ServerOptions(request_seconds=0.3), graphs)
    Gate(graphs, 1)
    response = client.post(MESSAGES, json={"messages": HELLO, "max_tokens": 9})
    assert error_of(response, 503)["type"] == "timeout_error"


@pytest.mark.parametrize("path", [MESSAGES, f"{MESSAGES}/count_tokens"])
@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "id": "thread_1"}, [], "a"])
def test_a_thread_is_refused_as_the_sdk_expects(client: TestClient, path: str, thread: Any) -> None:
    body = {"messages": HELLO, "max_tokens": 4, "thread": thread}
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["details"] == {"error_code": "thread_unsupported_request"}
    body = body if path == MESSAGES else {"messages": HELLO}
    assert client.post(path, json={**body, "thread": None}).status_code == 200
