"""``/api/chat`` and ``/api/generate``: ollama's requests, answers and streams, and options that are never ignored."""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen.chat import Conversation
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.options import ServerOptions
from edgegen.server.ollama.options import HONOURED, NO_OPS, REFUSED, keep_alive_seconds
from edgegen.server.ollama.prompt import GeneratePrompt, Memory
from edgegen.server.ollama.request import read_chat, read_generate, read_messages
from edgegen.server.ollama.schema import CHAT, GENERATE
from edgegen.server.wire.fill import FillPrompt
from edgegen.server.wire.wire import ChatPrompt
from tests.docs.markdown import ROOT
from tests.runtime.models import EOS, RandomGraphs, fake_llm
from tests.runtime.saying import CALL, TEMPLATE, THINKING, Saying, saying
from tests.runtime.server import material
from tests.runtime.server.material import HELLO, client_of, events

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
DURATIONS = {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"}
SWITCHED = TEMPLATE + "{% if think %}{{ '<think>\\n' }}{% endif %}"
FILLING = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "model"


@pytest.fixture
def random(folder: Path) -> TestClient:
    return client_of({"model": fake_llm(folder, RandomGraphs())})


def error_of(response: Any, status: int = 400) -> str:
    """The sentence of a refusal; it is as ollama's API has them."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error"}
    return body["error"]


def lines_of(response: Any) -> list[dict[str, Any]]:
    """The objects of a stream, which ends as it should."""
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.text.endswith("\n")
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    return lines


def test_a_chat_is_answered_whole(folder: Path) -> None:
    llm, graphs = saying(folder, "It rains.")
    system = {"role": "system", "content": "Be brief."}
    answer = client_of({"model": llm}).post(CHAT, json={"messages": [system, *HELLO], "stream": False}).json()
    assert graphs.prompt == "<system>Be brief.<user>Hello<assistant>"
    assert answer["model"] == "model"
    assert answer["created_at"].endswith("Z")
    assert answer["message"] == {"role": "assistant", "content": "It rains."}
    assert (answer["done"], answer["done_reason"]) == (True, "stop")
    assert (answer["prompt_eval_count"], answer["eval_count"]) == (len(graphs.prompt), len("It rains.") + 1)
    assert all(isinstance(answer[name], int) and answer[name] > 0 for name in DURATIONS)
    assert answer["total_duration"] >= answer["load_duration"]


def test_a_stream_is_lines_and_the_default(folder: Path) -> None:
    llm, _ = saying(folder, "It rains.")
    *pieces, last = lines_of(client_of({"model": llm}).post(CHAT, json={"messages": HELLO, "model": "model:latest"}))
    assert "".join(piece["message"]["content"] for piece in pieces) == "It rains."
    assert all(piece.keys() == {"model", "created_at", "message", "done"} for piece in pieces)
    assert last["message"] == {"role": "assistant", "content": ""}
    assert last["done_reason"] == "stop"
    assert last.keys() > DURATIONS
    assert {line["model"] for line in (*pieces, last)} == {"model:latest"}


def test_an_answer_that_is_cut_says_so(folder: Path) -> None:
    llm, _ = saying(folder, "It rains.")
    answer = client_of({"model": llm}).post(CHAT, json={"messages": HELLO, "options": {"num_predict": 4}})
    assert lines_of(answer)[-1]["done_reason"] == "length"


@pytest.mark.parametrize("options", [{"seed": 7, "temperature": 1.5}, {"seed": 7, "top_k": 3}, {"temperature": 0}])
def test_the_same_chat_in_both_apis_is_the_same_text(random: TestClient, options: dict[str, Any]) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Go on."}]
    asked = {"messages": messages, "max_tokens": 20, **options}
    expected = random.post(material.CHAT, json=asked).json()["choices"][0]["message"]["content"]
    body = {"messages": messages, "options": {"num_predict": 20, **options}}
    whole = random.post(CHAT, json={**body, "stream": False}).json()["message"]["content"]
    streamed = "".join(line["message"]["content"] for line in lines_of(random.post(CHAT, json=body)))
    assert whole == streamed == expected != ""
    chunks = events(random.post(material.CHAT, json={**asked, "stream": True}).text)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == expected


def test_tool_calls_are_objects_in_one_line(folder: Path) -> None:
    llm, _ = saying(folder, f"I look.\n{CALL}\n{CALL.replace('Oslo', 'Rome')}")
    client, body = client_of({"model": llm}), {"messages": HELLO, "tools": [WEATHER]}
    message = client.post(CHAT, json={**body, "stream": False}).json()["message"]
    assert message["content"] == "I look."
    calls = [call["function"] for call in message["tool_calls"]]
    named = [
        {"index": at, "name": "get_weather", "arguments": {"city": city}} for at, city in enumerate(("Oslo", "Rome"))
    ]
    assert calls == named
    *lines, last = lines_of(client.post(CHAT, json=body))
    streamed = [call["function"] for line in lines for call in line["message"].get("tool_calls", ())]
    assert streamed == named
    assert last["done_reason"] == "stop"


def test_calls_and_their_results_go_back_to_the_model() -> None:
    calls = [{"function": {"name": name, "arguments": {"n": n}}} for n, name in enumerate("aba")]
    read = read_messages(
        [
            {"role": "USER", "content": "Go."},
            {"role": "assistant", "content": None, "thinking": "Hm.", "tool_calls": calls},
            {"role": "tool", "content": "of b", "tool_name": "b"},
            {"role": "tool", "content": "of the first"},
            {"role": "tool", "content": "of the second a", "tool_name": "a"},
            {"role": "tool", "content": "of another", "tool_name": "c", "tool_call_id": "x"},
        ]
    )
    assert read[0] == {"role": "user", "content": "Go."}
    assert (read[1]["content"], read[1]["reasoning_content"]) == ("", "Hm.")
    ids = [call["id"] for call in read[1]["tool_calls"]]
    assert ids == ["call00001", "call00002", "call00003"]
    assert [(one.get("tool_call_id"), one.get("name")) for one in read[2:]] == [
        (ids[1], "b"), (ids[0], "a"), (ids[2], "a"), ("x", "c"),
    ]  # fmt: skip
    Conversation(read)


def test_thoughts_are_apart(folder: Path) -> None:
    llm, _ = saying(folder, "Hm.\n</think>\n\nYes.", THINKING)
    client = client_of({"model": llm})
    for path, asked in ((CHAT, {"messages": HELLO}), (GENERATE, {"prompt": "Hello"})):
        answer = client.post(path, json={**asked, "stream": False}).json()
        said = answer["message"] if path == CHAT else {"content": answer["response"], "thinking": answer["thinking"]}
        assert (said["thinking"].strip(), said["content"]) == ("Hm.", "Yes.")
        lines = lines_of(client.post(path, json=asked))
        pieces = [line["message"] if path == CHAT else line for line in lines]
        assert "".join(piece.get("thinking", "") for piece in pieces).strip() == "Hm."


@pytest.mark.parametrize(
    ("template", "think", "begins"),
    [(SWITCHED, True, "<think>\n"), (SWITCHED, False, ""), (TEMPLATE, False, "")],
)
def test_think_switches(folder: Path, template: str, think: bool, begins: str) -> None:
    llm, graphs = saying(folder, "Hm.\n</think>\n\nYes." if begins else "Yes.", template)
    answer = client_of({"model": llm}).post(CHAT, json={"messages": HELLO, "think": think, "stream": False}).json()
    assert graphs.prompt == f"<user>Hello<assistant>{begins}"
    assert answer["message"]["content"] == "Yes."


def test_thoughts_that_cannot_be_switched_off_are_ended_at_once(folder: Path) -> None:
    llm, _ = saying(folder, "Hm. I wonder.\n</think>\n\nYes.", THINKING)
    body = {"messages": HELLO, "think": False, "stream": False, "options": {"num_predict": 40}}
    message = client_of({"model": llm}).post(CHAT, json=body).json()["message"]
    assert "thinking" not in message


@pytest.mark.parametrize("think", [True, "high"])
def test_a_model_that_cannot_think_is_an_error(folder: Path, think: bool | str) -> None:
    llm, _ = saying(folder, "Yes.")
    for path, asked in ((CHAT, {"messages": HELLO}), (GENERATE, {"prompt": "Hello"})):
        said = error_of(client_of({"model": llm}).post(path, json={**asked, "think": think}))
        assert said.startswith(f"think: {str(think).lower() if think is True else repr(think)} cannot be had")
    base = client_of({"base": fake_llm(folder.with_name("base"), RandomGraphs())})
    assert error_of(base.post(GENERATE, json={"prompt": "Hello", "think": think})).startswith(
        "think: this model has no"
    )


def test_format_is_json_or_a_schema(random: TestClient) -> None:
    schema = {"type": "object", "properties": {"pet": {"enum": ["cat", "dog"]}}, "required": ["pet"]}
    for path, asked in ((CHAT, {"messages": HELLO}), (GENERATE, {"prompt": "Hello"})):
        body = {**asked, "stream": False, "format": {**schema, "additionalProperties": False}}
        options = {"num_predict": 200, "logit_bias": {str(code): -100 for code in b" \t\r\n"}}
        answer = random.post(path, json={**body, "options": options}).json()
        text = answer["message"]["content"] if path == CHAT else answer["response"]
        assert json.loads(text)["pet"] in ("cat", "dog")
    assert read_chat({"messages": HELLO, "format": "json"}).settings.values["response_format"] == {
        "type": "json_object"
    }
    assert "response_format" not in read_chat({"messages": HELLO, "format": ""}).settings.values
    twice = {"messages": HELLO, "format": "json", "options": {"grammar": "start: /a/"}}
    assert "format and options.grammar" in error_of(random.post(CHAT, json=twice))


def test_logprobs_are_those_of_openai_s_api(random: TestClient) -> None:
    asked = {"messages": HELLO, "logprobs": True, "top_logprobs": 2}
    expected = random.post(material.CHAT, json={**asked, "max_tokens": 4}).json()["choices"][0]["logprobs"]["content"]
    body = {**asked, "options": {"num_predict": 4}}
    assert random.post(CHAT, json={**body, "stream": False}).json()["logprobs"] == expected
    assert [one for line in lines_of(random.post(CHAT, json=body)) for one in line.get("logprobs", ())] == expected


# ---------------------------------------------------------------- /api/generate


def test_a_prompt_is_a_message_of_the_user(folder: Path) -> None:
    llm, graphs = saying(folder, "It rains.")
    client = client_of({"model": llm})
    answer = client.post(GENERATE, json={"prompt": "Hello", "system": "Be brief.", "stream": False}).json()
    assert graphs.prompt == "<system>Be brief.<user>Hello<assistant>"
    assert answer["response"] == "It rains."
    more = {"prompt": "And then?", "context": answer["context"]}
    *pieces, last = lines_of(client.post(GENERATE, json=more))
    assert graphs.prompt == "<system>Be brief.<user>Hello<assistant>It rains.<user>And then?<assistant>"
    assert "".join(piece["response"] for piece in pieces) == "It rains."
    client.post(GENERATE, json={"prompt": "So?", "system": "Be long.", "context": last["context"]})
    assert graphs.prompt.startswith("<system>Be long.<user>Hello<assistant>It rains.<user>And then?")


def test_a_model_without_a_template_continues_the_text(folder: Path) -> None:
    llm, graphs = saying(folder, " time.", None)
    client = client_of({"model": llm})
    one = {"stream": False, "options": {"num_predict": 1}}
    answer = client.post(GENERATE, json={"prompt": "Once upon a", **one}).json()
    assert (graphs.prompt, answer["response"]) == ("Once upon a", " ")
    more = client.post(GENERATE, json={"prompt": "day", "context": answer["context"], **one}).json()
    assert graphs.prompt == "Once upon a day"
    assert Memory.read(more["context"], []).text == "Once upon a day "
    client.post(GENERATE, json={"prompt": "Hello", "system": "Be brief.", **one})
    assert "Be brief." in graphs.prompt
    assert graphs.prompt.endswith("\nAssistant:")


def test_a_raw_prompt_is_as_it_is_and_has_no_context(folder: Path) -> None:
    llm, graphs = saying(folder, "It rains.")
    client = client_of({"model": llm})
    answer = client.post(GENERATE, json={"prompt": "<user>Hi<assistant>", "raw": True, "stream": False}).json()
    assert (graphs.prompt, answer["response"]) == ("<user>Hi<assistant>", "It rains.")
    assert "context" not in answer
    said = error_of(client.post(GENERATE, json={"prompt": "a", "raw": True, "system": "b", "think": True}))
    assert "system goes with a chat template" in said
    assert "think goes with a chat template" in said


@pytest.mark.parametrize(
    "context", [[1, 2, 3], [*b'{"messages": [{"role": "user"}]}'], [*b'{"messages": 3}'], [*b"[]"], [*b'{"text": 3}']]
)
def test_a_context_that_no_answer_has_given_is_an_error(random: TestClient, context: list[int]) -> None:
    said = error_of(random.post(GENERATE, json={"prompt": "a", "context": context}))
    assert said == "context: what an earlier answer has given expected"


def test_a_memory_survives_its_context() -> None:
    for memory in (Memory(text="Grüße"), Memory(({"role": "user", "content": "Größe?"},))):
        assert Memory.read(memory.context, []) == memory
        assert all(0 <= byte < 256 for byte in memory.context)


class Filling(Saying):
    """Ends at once; keeps the ids of the prompt."""

    def _next(self, ids: list[int]) -> int:
        self.ids = [*ids]
        return EOS


def test_a_suffix_is_for_models_with_tokens_for_it(folder: Path) -> None:
    llm = fake_llm(folder, RandomGraphs())
    client = client_of({"model": llm})
    assert error_of(client.post(GENERATE, json={"prompt": "a", "suffix": "b"})).startswith("suffix: this model cannot")

    class Tokenizer:
        def token_to_id(self, token: str) -> int | None:
            return 1000 + FILLING.index(token) if token in FILLING else None

        def encode_as_text(self, text: str, control: Collection[str]) -> list[int]:
            assert {*FILLING} <= {*control}
            return [*text.encode()]

        def frame(self, ids: list[int]) -> list[int]:
            return [EOS, *ids]

    class Model:
        tokenizer = Tokenizer()

    model: Any = Model()
    assert FillPrompt("ab", "c").resolve(model) == [EOS, 1000, 97, 98, 1001, 99, 1002]
    assert FillPrompt("", "c").resolve(model) == [EOS, 1000, 1001, 99, 1002]
    assert read_generate({"prompt": "ab", "suffix": "c", "raw": True}).prompts == (FillPrompt("ab", "c"),)
    assert read_generate({"prompt": "ab", "suffix": ""}).prompts == (GeneratePrompt("ab"),)


# ---------------------------------------------------------------- options


def test_options_are_those_of_the_engine() -> None:
    options = {
        "num_predict": 7, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.8, "seed": 3,
        "stop": ["a"], "repeat_penalty": 1.2, "repeat_last_n": 8, "presence_penalty": 0.1, "frequency_penalty": 0.2,
        "mirostat": 0, "mirostat_tau": 4.0, "mirostat_eta": 0.2,
    }  # fmt: skip
    assert options.keys() == HONOURED.keys()
    values = read_chat({"messages": HELLO, "options": options}).settings.values
    assert {name: values[option] for name, option in HONOURED.items()} == options


@pytest.mark.parametrize(
    ("given", "option", "value"),
    [
        ({"num_predict": -1}, "max_new_tokens", 2**31 - 1),
        ({"num_predict": -2}, "max_new_tokens", 2**31 - 1),
        ({"num_predict": 0}, "max_new_tokens", 2**31 - 1),
        ({"repeat_last_n": 0}, "penalty_last_n", 0),
        ({"repeat_last_n": -1}, "penalty_last_n", None),
        ({"seed": -1}, "seed", None),
        ({"stop": "a"}, "stop_strings", "a"),
        ({"dry_multiplier": 0.8}, "dry_multiplier", 0.8),
    ],
)
def test_options_set_the_request(given: dict[str, Any], option: str, value: Any) -> None:
    assert read_chat({"messages": HELLO, "options": given}).settings.values.get(option) == value


def test_options_that_change_nothing_are_checked() -> None:
    given: dict[str, Any] = {name: True if schema == {"type": "boolean"} else 4 for name, (schema, _) in NO_OPS.items()}
    bare, asked = (read_chat({"messages": HELLO, **more}) for more in ({}, {"options": given}))
    assert asked.settings.values == bare.settings.values


@pytest.mark.parametrize("name", [*NO_OPS, *REFUSED, *HONOURED])
def test_a_wrong_value_is_told_by_name(random: TestClient, name: str) -> None:
    said = error_of(random.post(CHAT, json={"messages": HELLO, "options": {name: {"a": 1}}}))
    assert name in said


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_option_may_ask_for_nothing(name: str) -> None:
    for value in (*REFUSED[name][0], None):
        read_chat({"messages": HELLO, "options": {name: value}})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"options": {"temprature": 1}}, "did you mean 'temperature'?"),
        ({"options": {"tfs_z": 0.5}}, "options.tfs_z: 0.5 is not supported: use min_p or typical_p"),
        ({"options": {"mirostat": 1}}, "mirostat: 0 (off) or 2, not 1"),
        ({"options": {"num_predict": 5, "max_new_tokens": 5}}, "num_predict and max_new_tokens would say the same"),
        ({"options": {"logprobs": True}}, "it is a parameter of the request, beside options"),
        ({"temperature": 1}, "it is one of options"),
        ({"think": True, "options": {"thinking": True}}, "think and options.thinking would say the same"),
        ({"messages": [{"role": "user", "content": "a", "images": ["aGk="]}]}, "models here read text only"),
        ({"messages": [], "tools": [{"type": "function"}]}, "tools[0] must be a dict such as"),
        ({"keep_alive": "5 minutes"}, "seconds, or a time such as '5m' expected, found '5 minutes'"),
        ({"format": "xml"}, "'json' or a JSON schema expected"),
        ({"options": {"num_predict": 99}}, "num_predict: this server gives at most 64 tokens, found 99"),
    ],
)
def test_errors_name_what_is_wrong(folder: Path, body: dict[str, Any], said: str) -> None:
    client = client_of({"model": fake_llm(folder, RandomGraphs())}, ServerOptions(max_tokens=64))
    assert said in error_of(client.post(CHAT, json={"messages": HELLO, **body}))


@pytest.mark.parametrize(
    "more", [{"template": "{{ .Prompt }}"}, {"images": ["aGk="]}, {"width": 100}, {"context": ["a"]}]
)
def test_what_generate_refuses(random: TestClient, more: dict[str, Any]) -> None:
    assert next(iter(more)) in error_of(random.post(GENERATE, json={"prompt": "a", **more}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grammar": 6}, "options.grammar: text expected, found 6"),
        ({"grammar": "root ::= ("}, "grammar"),
        ({"response_format": {"type": "jsn"}}, "did you mean 'json'"),
        ({"temperature": "hot"}, "temperature: float expected"),
        ({"bad_words_ids": [[10**9]]}, "bad_words_ids"),
    ],
)
def test_options_are_checked_where_nothing_is_generated(random: TestClient, options: dict[str, Any], said: str) -> None:
    for path in (CHAT, GENERATE):
        assert said in error_of(random.post(path, json={"options": options}))


def test_options_are_checked_where_a_model_is_unloaded() -> None:
    for options, said in (
        ({"response_format": {"type": "jsn"}}, "did you mean 'json'"),
        ({"temperature": "hot"}, "temperature: float expected"),
    ):
        with pytest.raises(ApiError, match=re.escape(said)):
            read_generate({"keep_alive": 0, "options": options})


def test_a_chat_that_does_not_fit_loses_its_oldest_turns(folder: Path) -> None:
    llm, _ = saying(folder, "Yes.", max_context=128)
    client, messages = client_of({"model": llm}), [*HELLO, {"role": "assistant", "content": "a" * 90}, *HELLO]
    answer = client.post(CHAT, json={"messages": messages, "stream": False, "options": {"num_predict": 8}})
    assert (answer.status_code, answer.json()["dropped_messages"]) == (200, 2)
    assert answer.headers["edgegen-dropped-messages"] == "2"
    said = error_of(client.post(CHAT, json={"messages": messages, "truncate": False, "options": {"num_predict": 8}}))
    assert said.startswith("prompt is too long")


def test_a_stream_that_fails_ends_with_the_error(folder: Path) -> None:
    llm, graphs = saying(folder, "It rains.")

    def fail(ids: list[int]) -> int:
        raise RuntimeError("broken")

    client = client_of({"model": llm})
    graphs.next_id = fail
    response = client.post(CHAT, json={"messages": HELLO})
    last = json.loads(response.text.splitlines()[-1])
    assert last.keys() == {"error"}


@pytest.mark.parametrize("key", ["name", "tool_name"])
def test_a_result_names_its_tool_by_either_key(key: str) -> None:
    calls: list[Any] = [{"function": {"name": name, "arguments": {}}} for name in ("f", "g")]
    results = [{"role": "tool", key: name, "content": name} for name in ("g", "f")]
    read = read_messages([{"role": "assistant", "tool_calls": calls}, *results])
    assert [(one["name"], one["tool_call_id"]) for one in read[1:]] == [("g", "call00002"), ("f", "call00001")]


def test_keys_of_messages_that_ollama_does_not_read_are_taken(folder: Path) -> None:
    llm, graphs = saying(folder, "Yes.")
    function = {"name": "f", "arguments": {"c": "x"}, "description": "?"}
    plain: list[dict[str, Any]] = [
        *HELLO,
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"c": "x"}}}]},
        {"role": "tool", "content": "ok"},
    ]
    sent: list[dict[str, Any]] = [
        {**HELLO[0], "name": "Ann", "timestamp": 1, "id": "a", "files": []},
        {**plain[1], "refusal": None, "tool_calls": [{"id": "call00001", "index": 0, "function": function}]},
        {**plain[2], "name": "f", "is_error": False},
    ]
    client, prompts = client_of({"model": llm}), list[str]()
    for messages in (plain, sent):
        assert client.post(CHAT, json={"messages": messages, "stream": False}).json()["message"]["content"] == "Yes."
        prompts.append(graphs.prompt)
    assert prompts[0] == prompts[1]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (None, None), (0, 0), (5, 5), (-1, float("inf")), (0.5, 0.5), ("0", 0), ("5m", 300), ("1h30m", 5400),
        ("300ms", 0.3), ("-1", float("inf")), ("-1m", float("inf")), ("3600", 3600), ("1.5h", 5400),
    ],
)  # fmt: skip
def test_durations(given: float | str | None, seconds: float | None) -> None:
    assert keep_alive_seconds(given) == (None if seconds is None else pytest.approx(seconds))
    assert read_chat({"messages": HELLO, "keep_alive": given}).keep_alive == keep_alive_seconds(given)


# ---------------------------------------------------------------- clients

_CONTINUE_OPTIONS = {"temperature": 0.1, "num_predict": 64, "stop": ["</s>"], "num_ctx": 8192, "num_thread": 4}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Home Assistant: a question": (
        CHAT,
        {
            "model": "model:latest",
            "stream": True,
            "options": {"num_ctx": 8192},
            "keep_alive": -1,
            "messages": [
                {"role": "system", "content": "You are a voice assistant for Home Assistant."},
                {"role": "user", "content": "Is the light on?"},
            ],
            "tools": [WEATHER],
            "think": False,
        },
    ),
    "Home Assistant: after a call": (
        CHAT,
        {
            "model": "model",
            "stream": True,
            "options": {"num_ctx": 8192},
            "keep_alive": "30s",
            "messages": [
                {"role": "user", "content": "Is the light on?"},
                {
                    "role": "assistant",
                    "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}],
                },
                {"role": "tool", "content": '{"data": "rain", "error": null}'},
            ],
            "tools": [WEATHER],
        },
    ),
    "Continue: chat": (
        CHAT,
        {"model": "model", "messages": HELLO, "options": _CONTINUE_OPTIONS, "keep_alive": 1800, "stream": True},
    ),
    "Continue: autocomplete": (
        GENERATE,
        {
            "model": "model",
            "prompt": "def add(a, b):",
            "raw": True,
            "options": {**_CONTINUE_OPTIONS, "use_mmap": True, "mirostat": 0},
            "keep_alive": 1800,
            "stream": True,
        },
    ),
    "Obsidian: a prompt": (GENERATE, {"prompt": "Summarize: a", "model": "model", "options": {"num_ctx": 4096}}),
    "Obsidian: a chat": (
        CHAT,
        {"model": "model", "messages": HELLO, "stream": False, "options": {"num_predict": 64, "temperature": 0.3}},
    ),
    "ollama's command line: chat": (
        CHAT,
        {"model": "model", "messages": HELLO, "options": {}, "format": None, "keep_alive": "5m", "tools": None},
    ),
    "ollama's command line: generate": (
        GENERATE,
        {"model": "model", "prompt": "Hello", "suffix": "", "system": "", "template": "", "options": None},
    ),
    "langchain": (
        CHAT,
        {
            "model": "model",
            "messages": [{"role": "user", "content": "Hello", "images": []}],
            "stream": True,
            "options": {"mirostat": None, "num_ctx": None, "temperature": 0.2, "tfs_z": None, "stop": None},
            "keep_alive": None,
            "format": "",
            "tools": [],
        },
    ),
    "Open WebUI": (
        CHAT,
        {"model": "model:latest", "messages": HELLO, "options": {"num_keep": 24, "num_gpu": 1}, "stream": True},
    ),
}
"""Bodies as programs send them."""


@pytest.mark.parametrize("name", BODIES)
def test_bodies_of_clients_are_answered(folder: Path, name: str) -> None:
    path, body = BODIES[name]
    llm, _ = saying(folder, "Yes.")
    answer = client_of({"model": llm}).post(path, json=body)
    assert answer.status_code == 200, answer.text
    last = lines_of(answer)[-1] if body.get("stream", True) else answer.json()
    assert last["done"] is True
    assert last["done_reason"] in ("stop", "length")


def test_a_conversation_of_home_assistant_names_its_calls(folder: Path) -> None:
    asked = read_chat(BODIES["Home Assistant: after a call"][1])
    prompt = asked.prompts[0]
    assert isinstance(prompt, ChatPrompt)
    result: Mapping[str, Any] = prompt.conversation.messages[-1]
    assert (result["name"], result["tool_call_id"]) == ("get_weather", "call00001")


# ---------------------------------------------------------------- docs


def test_the_docs_have_every_option() -> None:
    text = (ROOT / "docs" / "clients.md").read_text("utf-8")
    table = text.partition("<!-- options:begin -->")[2].partition("<!-- options:end -->")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    told = {row[0].strip().strip("`"): (row[1].strip(), row[2].strip()) for row in rows if len(row) == 3}
    expected = {name: ("honoured", f"`{option}`") for name, option in HONOURED.items()}
    expected |= {name: ("no-op", why) for name, (_, why) in NO_OPS.items()}
    for name, (values, why) in REFUSED.items():
        allowed = f"but {', '.join(f'`{json.dumps(value)}`' for value in values)}; " if values else ""
        expected[name] = ("refused", allowed + why.removesuffix(": leave it out"))
    assert told == expected
