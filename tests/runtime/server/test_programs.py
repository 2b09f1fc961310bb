"""Requests of programs, by their public code: each body, written anew with the fields that it may have, is answered."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.runtime.models import EOS, fake_llm
from tests.runtime.saying import TEMPLATE, Saying
from tests.runtime.server.material import client_of

CHAT, COMPLETION, OLLAMA, GENERATE = "/v1/chat/completions", "/v1/completions", "/api/chat", "/api/generate"
SYSTEM = {"role": "system", "content": "Be brief."}
ASKED = {"role": "user", "content": "Is it warm?"}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"area": {"type": "string"}, "floor": {"type": "string"}},
    "required": [],
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get_state", "description": "A state.", "parameters": PARAMETERS},
}
CALLED: dict[str, Any] = {"function": {"name": "get_state", "arguments": {"area": "Attic"}}}
CALL: dict[str, Any] = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_state", "arguments": '{"area": "Attic"}'},
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "20 °C"}
SCHEMA = {"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"]}
FORM = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}

BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Home Assistant: the first turn": (OLLAMA, {
        "model": "model:latest", "messages": [SYSTEM, ASKED], "tools": [TOOL], "stream": True, "keep_alive": -1,
        "options": {"num_ctx": 8192.0}, "think": False}),
    "Home Assistant: after a call": (OLLAMA, {
        "model": "model", "stream": True, "keep_alive": "3600s", "options": {"num_ctx": 8192.0}, "tools": [TOOL],
        "messages": [SYSTEM, ASKED, {"role": "assistant", "tool_calls": [CALLED]},
                     {"role": "tool", "content": '{"data": {"state": "20"}, "error": null}'}]}),
    "Home Assistant: a structure": (OLLAMA, {
        "model": "model", "messages": [SYSTEM, ASKED], "stream": True, "keep_alive": "-1s", "format": SCHEMA,
        "options": {"num_ctx": 4096.0}}),
    "open-webui: OpenAI's API": (CHAT, {
        "model": "model", "messages": [SYSTEM, {"role": "user", "content": [{"type": "text", "text": "Is it warm?"}]}],
        "stream": True, "stream_options": {"include_usage": True}, "temperature": 0.8, "top_p": 0.9, "min_p": 0.05,
        "max_tokens": 64, "frequency_penalty": 0.0, "presence_penalty": 0.0, "seed": 1, "stop": ["###"],
        "logit_bias": {"97": -1}, "reasoning_effort": "low"}),
    "open-webui: a title": (CHAT, {
        "model": "model", "messages": [ASKED], "stream": False, "max_completion_tokens": 1000,
        "metadata": {"task": "title_generation"}}),
    "open-webui: ollama's API": (OLLAMA, {
        "model": "model:latest", "messages": [SYSTEM, {**ASKED, "images": []}, {
            "role": "assistant", "content": "", "tool_calls": [{**CALL, "index": 0, "function": CALLED["function"]}]},
            {"role": "tool", "content": "20 °C", "tool_call_id": "call_1"}],
        "stream": True, "keep_alive": "5m", "format": "json", "tools": [TOOL], "options": {
            "temperature": 0.8, "top_p": 0.9, "seed": 1, "mirostat": 0, "mirostat_eta": 0.1, "mirostat_tau": 5.0,
            "num_ctx": 2048, "num_batch": 512, "num_keep": 24, "num_predict": 64, "repeat_last_n": 64, "top_k": 40,
            "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.1, "presence_penalty": 0.0, "frequency_penalty": 0.0,
            "stop": ["###"], "num_gpu": 1, "use_mmap": True, "use_mlock": False, "num_thread": 2, "numa": False}}),
    "promptfoo: OpenAI's API": (CHAT, {
        "model": "model", "messages": [ASKED], "max_tokens": 1024, "temperature": 0, "top_p": 1, "seed": 0,
        "presence_penalty": 0, "frequency_penalty": 0, "stop": ["\n\n"], "response_format": FORM}),
    "promptfoo: tools": (CHAT, {
        "model": "model", "messages": [ASKED], "max_tokens": 1024, "temperature": 0, "tools": [TOOL],
        "tool_choice": "auto", "user": "promptfoo", "metadata": {"suite": "a"}, "store": False}),
    "promptfoo: ollama's API": (GENERATE, {
        "model": "model", "prompt": "Is it warm?", "stream": False,
        "options": {"num_predict": 1024, "temperature": 0, "num_ctx": 2048}, "think": False}),
    "oterm: a turn with a tool": (OLLAMA, {
        "model": "model", "stream": False, "keep_alive": "5m", "format": "", "tools": [TOOL],
        "options": {"temperature": 0.7, "num_ctx": 4096, "stop": ["###"], "penalize_newline": True},
        "messages": [SYSTEM, ASKED, {"role": "assistant", "content": "", "tool_calls": [CALLED]},
                     {"role": "tool", "name": "get_state", "content": "20 °C"}]}),
    "aichat: calls": (CHAT, {
        "model": "model", "stream": True, "temperature": 0.7, "top_p": 0.9, "max_tokens": 512, "tools": [TOOL],
        "messages": [SYSTEM, ASKED, {"role": "assistant", "tool_calls": [CALL]}, {**RESULT, "content": '{"t": 20}'}]}),
    "aichat: parts": (CHAT, {
        "model": "model", "stream": False,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Is it"}, {"type": "text", "text": "?"}]}]}),
    "lm-eval: likelihoods of ids": (COMPLETION, {
        "model": "model", "prompt": [[72, 105, 33], [72, 105]], "temperature": 0, "max_tokens": 1, "logprobs": 1,
        "seed": 1234, "echo": True}),
    "lm-eval: texts until": (COMPLETION, {
        "model": "model", "prompt": ["Hi", "Ho"], "max_tokens": 8, "temperature": 0, "stop": ["\n\n", "Q:"],
        "seed": 1234}),
    "lm-eval: chats": (CHAT, {
        "model": "model", "messages": [{**ASKED, "type": "text"}], "max_tokens": 8, "temperature": 0,
        "stop": ["\n\n"], "seed": 1234}),
    "gptel: OpenAI's API": (CHAT, {
        "model": "model", "stream": True, "temperature": 1.0, "max_tokens": 200, "tools": [TOOL],
        "parallel_tool_calls": True,
        "messages": [SYSTEM, ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT]}),
    "gptel: ollama's API": (OLLAMA, {
        "model": "model", "stream": False, "tools": [TOOL], "options": {"temperature": 1.0, "num_predict": 200},
        "messages": [SYSTEM, ASKED, {"role": "assistant", "content": "", "tool_calls": [CALLED]},
                     {"role": "tool", "content": "20 °C"}]}),
    "gptel: no options": (OLLAMA, {"model": "model", "messages": [ASKED], "stream": True, "options": {}}),
    "continue: OpenAI's API": (CHAT, {
        "model": "model", "max_tokens": 256, "temperature": 0.5, "top_p": 1, "frequency_penalty": 0,
        "presence_penalty": 0, "stream": True, "stop": ["<|im_end|>"],
        "tools": [{**TOOL, "function": {**TOOL["function"], "strict": False}}],
        "messages": [SYSTEM, ASKED, {"role": "assistant", "content": " ", "tool_calls": [CALL]}, RESULT]}),
    "continue: completion": (COMPLETION, {
        "model": "model", "prompt": "def f(", "max_tokens": 64, "temperature": 0.01, "top_p": 1,
        "frequency_penalty": 0, "presence_penalty": 0, "stream": True, "stop": ["\n\n"]}),
    "continue: ollama's API": (OLLAMA, {
        "model": "model", "messages": [SYSTEM, ASKED], "keep_alive": 1800, "stream": True, "options": {
            "temperature": 0.5, "top_p": 1, "top_k": 40, "num_predict": 256, "stop": ["<|im_end|>"], "num_ctx": 8096,
            "mirostat": 0, "num_thread": 2, "use_mmap": True, "min_p": 0.05}}),
    "continue: ollama's prompts": (GENERATE, {
        "model": "model", "prompt": "def f(", "raw": True, "keep_alive": 1800, "stream": True,
        "options": {"temperature": 0.01, "num_predict": 64, "stop": ["\n\n"], "num_ctx": 8096}}),
}  # fmt: skip
"""By program: the path, and a body with the fields that its code sets, values of users among them."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    folder: Path = tmp_path_factory.mktemp("programs") / "model"
    config = {"eos_token_id": EOS}
    return client_of({"model": fake_llm(folder, Saying("Yes."), config=config, template=TEMPLATE, max_context=4096)})


@pytest.mark.parametrize("name", BODIES)
def test_a_program_is_answered(client: TestClient, name: str) -> None:
    path, body = BODIES[name]
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    once = {key: value for key, value in body.items() if key != "stream_options"} | {"stream": False}
    whole = client.post(path, json=once).json()
    assert whole.get("choices") or whole["done"]
    if body.get("stream"):
        lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
        pieces = [json.loads(line) for line in lines if line != "[DONE]"]
        assert pieces
        assert not any("error" in piece for piece in pieces)


def test_every_program_has_its_bodies() -> None:
    programs = ("Home Assistant", "open-webui", "promptfoo", "oterm", "aichat", "lm-eval", "gptel", "continue")
    assert {name.partition(":")[0] for name in BODIES} == {*programs}
