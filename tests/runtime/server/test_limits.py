"""Limits of a server: every limit at, above and far above, and what is no value at all."""

import gzip
import json
from dataclasses import fields
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen.options.generation import GenerationOptions
from edgegen.options.option import MOST_SEQUENCES
from edgegen.server.http.options import (
    MOST_BIASES,
    MOST_BODY_BYTES,
    MOST_JSON_DEPTH,
    MOST_MESSAGES,
    MOST_PROMPTS,
    MOST_STOP_CHARACTERS,
    MOST_STOPS,
    MOST_TOOL_BYTES,
    MOST_TOOLS,
    ServerOptions,
)
from tests.runtime.models import VOCAB_SIZE, RandomGraphs, fake_llm
from tests.runtime.server.material import CHAT, COMPLETION, HELLO, client_of, error_of


@pytest.fixture(scope="module")
def graphs() -> RandomGraphs:
    return RandomGraphs()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, graphs: RandomGraphs) -> TestClient:
    return client_of(fake_llm(tmp_path_factory.mktemp("server") / "fake", graphs), ServerOptions(max_tokens=64))


def nested(depth: int) -> bytes:
    return b'{"prompt": ' + b"[" * depth + b"]" * depth + b"}"


def said(**more: Any) -> dict[str, Any]:
    return {"prompt": "a", "max_tokens": 1, **more}


AT_LIMIT: dict[str, dict[str, Any]] = {
    "max_tokens": said(max_tokens=64),
    "n": said(n=64, temperature=1.0),
    "stop": said(stop=[f"stop {n}" for n in range(MOST_STOPS)]),
    "stop's length": said(stop="x" * MOST_STOP_CHARACTERS),
    "logit_bias": said(logit_bias={str(n % 256): 0.5 for n in range(MOST_BIASES)}),
    "logprobs": said(logprobs=20),
    "prompts": said(prompt=["a"] * MOST_PROMPTS),
}


@pytest.mark.parametrize("name", AT_LIMIT)
def test_at_the_limit_is_answered(client: TestClient, name: str) -> None:
    response = client.post(COMPLETION, json=AT_LIMIT[name])
    assert response.status_code == 200, response.text


VALUES: dict[str, list[Any]] = {
    "max_tokens": [65, 640, 10**400, 0, -2, 1.5, "8", True, [1]],
    "n": [65, 640, 0, -1, 1.5, "2", True],
    "stop": [
        ["x"] * (MOST_STOPS + 1),
        ["x"] * 10 * MOST_STOPS,
        "x" * (MOST_STOP_CHARACTERS + 1),
        "",
        [""],
        3,
        {"a": 1},
    ],
    "logit_bias": [
        {str(n): 1 for n in range(MOST_BIASES + 1)},
        {str(n): 1 for n in range(10 * MOST_BIASES)},
        {"a": 1},
        {"-1": 1},
        {"1": "2"},
        {"1": None},
        [1],
        3,
    ],
    "logprobs": [21, 200, -1, "1", 1.5],
    "prompt": [["a"] * (MOST_PROMPTS + 1), ["a"] * 10 * MOST_PROMPTS, [], None, 3, [1, "a"], [[]], [[1.5]], {}],
    "seed": ["1", 1.5, -(10**400)],
    "temperature": [-1, "1", 1e300, [], True],
    "top_p": [-1, 1.5, "1"],
    "stream": ["yes", 1, []],
    "stream_options": [{"include_usage": True}, 1, []],
    "echo": ["yes"],
    "suffix": ["end"],
    "best_of": [2],
    "model": [3],
    "max_token": [3],
    "chat_template": ["{{ messages }}"],
    "logits_processor": [["x"]],
}
ABOVE = [(param, said() | {param: value}) for param, values in VALUES.items() for value in values] + [
    ("stream_options", said(stream=True, stream_options={"usage": True})),
    ("stream_options", said(stream=True, stream_options={"include_usage": 1})),
]


@pytest.mark.parametrize(("param", "body"), ABOVE, ids=lambda value: str(value)[:40])
def test_above_the_limit_is_refused(client: TestClient, graphs: RandomGraphs, param: str, body: dict[str, Any]) -> None:
    before = len(graphs.runs)
    response = client.post(COMPLETION, json=body)
    assert response.status_code == 400, response.text
    assert error_of(response)["param"] == param
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
    True,
    [None],
    [["a", "b"]],
    "-inf",
    -1e308,
]


@pytest.mark.parametrize("option", [f.name for f in fields(GenerationOptions)])
def test_no_value_of_an_option_breaks_the_server(client: TestClient, option: str) -> None:
    for value in WRONG:
        response = client.post(COMPLETION, json=said() | {option: value})
        assert response.status_code in (200, 400), (value, response.text)


@pytest.mark.parametrize("path", [CHAT, COMPLETION, "/tokenize", "/detokenize"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"seed": NaN}',
        b'{"temperature": Infinity}',
        b'{"model": "\\ud800"}',
        b'{"seed": ' + b"1" * 10_000 + b"}",
        nested(MOST_JSON_DEPTH),
        nested(10 * MOST_JSON_DEPTH),
        nested(100_000),
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)
def test_bodies_are_json_objects(client: TestClient, path: str, body: bytes) -> None:
    response = client.post(path, content=body)
    assert response.status_code == 400
    assert error_of(response)["code"] == "invalid_json"


def test_depth_at_the_limit_is_read(client: TestClient) -> None:
    response = client.post(COMPLETION, content=nested(MOST_JSON_DEPTH - 1))
    assert error_of(response)["param"] == "prompt"


@pytest.mark.parametrize(("extra", "status"), [(0, 400), (1, 413), (9 * MOST_BODY_BYTES, 413)])
def test_size_of_a_body(client: TestClient, extra: int, status: int) -> None:
    head = json.dumps({"unknown": ""}).encode()
    body = head[:-2] + b"x" * (MOST_BODY_BYTES - len(head) + extra) + head[-2:]
    assert client.post(COMPLETION, content=body).status_code == status


@pytest.mark.parametrize(
    "path", [COMPLETION, "/v1/embeddings", "/api/generate", "/tokenize", "/api/show", "/api/delete", "/render"]
)
@pytest.mark.parametrize("coding", ["gzip", "identity, gzip", "br"])
def test_compressed_bodies_are_refused_by_name(client: TestClient, path: str, coding: str) -> None:
    body = gzip.compress(json.dumps({"prompt": "Once"}).encode())
    method = "DELETE" if path == "/api/delete" else "POST"
    response = client.request(method, path, content=body, headers={"Content-Encoding": coding})
    assert response.status_code == 415
    assert f"the content encoding '{coding}'" in response.text
    assert response.headers["accept-encoding"] == "identity"


def test_a_body_that_is_said_to_be_as_it_is_is_read(client: TestClient) -> None:
    asked = {"prompt": "Once", "max_tokens": 1}
    assert client.post(COMPLETION, json=asked, headers={"Content-Encoding": "identity"}).status_code == 200


def tool(name: str = "look_up", size: int = 0) -> dict[str, Any]:
    """A tool, whose definition has ``size`` bytes of JSON if that is more than it needs."""
    made: dict[str, Any] = {"type": "function", "function": {"name": name, "description": ""}}
    made["function"]["description"] = "x" * max(0, size - len(json.dumps(made)))
    return made


LISTS = ("suppress_tokens", "begin_suppress_tokens", "stop_token_ids", "eos_token_id", "forced_eos_token_id")
CHAT_AT_LIMIT: dict[str, dict[str, Any]] = {
    "messages": {"messages": [{"role": "user", "content": ""}] * MOST_MESSAGES},
    "tools": {"tools": [tool(f"tool_{n}") for n in range(MOST_TOOLS)], "tool_choice": "none"},
    "a tool's size": {"tools": [tool(size=MOST_TOOL_BYTES)], "tool_choice": "none"},
    "n": {"n": MOST_SEQUENCES, "temperature": 1.0},
    "top_logprobs": {"top_logprobs": 20},
    "dry_sequence_breakers": {"dry_sequence_breakers": [1] * MOST_BIASES},
    "sequence_bias": {"sequence_bias": [[[n % 250, n % 249], 1] for n in range(MOST_BIASES)]},
    "bad_words_ids": {"bad_words_ids": [[n % 250, n % 249] for n in range(MOST_BIASES)]},
    **{name: {name: [n % 200 for n in range(MOST_BIASES)]} for name in LISTS},
}


@pytest.mark.parametrize("name", CHAT_AT_LIMIT)
def test_a_chat_at_the_limit_is_answered(client: TestClient, name: str) -> None:
    body = {"messages": HELLO, "max_tokens": 1, **CHAT_AT_LIMIT[name]}
    response = client.post(CHAT, json=body)
    assert response.status_code == 200, response.text


CHAT_VALUES: dict[str, list[Any]] = {
    "tools": [
        *([tool(f"tool_{n}") for n in range(count)] for count in (MOST_TOOLS + 1, 10 * MOST_TOOLS)),
        *([tool(size=size)] for size in (MOST_TOOL_BYTES + 1, 10 * MOST_TOOL_BYTES)),
        *(-1, 0, "", "x", False, True, {}, [1], [None], [[]], [{}], [{"type": "function"}]),
    ],
    "tool_choice": [-1, 1.5, True, [], {}, "x", {"type": "function"}, {"type": "function", "function": {"name": 1}}],
    "top_logprobs": [21, 200, -1, 1.5, "1", True, [1]],
    "logprobs": [1, "true", [], 0.5],
    "n": [MOST_SEQUENCES + 1, 10 * MOST_SEQUENCES, 0, -1, 1.5, "2", True],
    "response_format": [
        -1,
        "json",
        [],
        {},
        {"type": 3},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": 1},
    ],
    "sequence_bias": [[[[1], 1]] * count for count in (MOST_BIASES + 1, 10 * MOST_BIASES)] + [[1], [[1, 1]], {"1": 1}],
    "bad_words_ids": [[[1]] * count for count in (MOST_BIASES + 1, 10 * MOST_BIASES)] + [[1], [[]], 3, [["a"]]],
    "mirostat": [1, 3, -2, "2", True, False, 0.5],
    **{
        name: [[1] * (MOST_BIASES + 1), [1] * 10 * MOST_BIASES, -1, 2**31, 1.5, "1", True, [-1], [1.5], ["a"], {}]
        for name in (*LISTS, "dry_sequence_breakers")
    },
}


@pytest.mark.parametrize(
    ("param", "value"),
    [(param, value) for param, values in CHAT_VALUES.items() for value in values],
    ids=lambda value: str(value)[:40],
)
def test_a_chat_beyond_a_limit_is_refused(client: TestClient, graphs: RandomGraphs, param: str, value: Any) -> None:
    before = len(graphs.runs)
    body: dict[str, Any] = {"messages": HELLO, "max_tokens": 1, "tools": [tool()]} | {param: value}
    response = client.post(CHAT, json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
    assert len(graphs.runs) == before


@pytest.mark.parametrize(
    "body",
    [
        {"suppress_tokens": [*range(VOCAB_SIZE)]},
        {"logit_bias": dict.fromkeys(map(str, range(VOCAB_SIZE)), "-inf")},
        {"repetition_penalty": 5e-324},
        {"guidance_scale": 3.4e38},
        {"logit_bias": {"1": 3.4e38}, "sequence_bias": [[[1], 3.4e38]]},
    ],
    ids=lambda body: " ".join(body),
)
@pytest.mark.parametrize("more", [{}, {"temperature": 1.0, "seed": 1}])
def test_options_that_leave_no_token_are_an_error_of_the_client(
    client: TestClient, body: dict[str, Any], more: dict[str, Any]
) -> None:
    """It shows in the first step only; the model is not to blame."""
    response = client.post(COMPLETION, json=said(prompt="Once upon a time", **body, **more))
    assert response.status_code == 400, response.text
    assert "the model" not in error_of(response)["message"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": 3}, "content"),
        ("/tokenize", {"content": "a", "prompt": "a"}, "prompt"),
        ("/tokenize", {"content": "a", "add_special_tokens": 1}, "add_special_tokens"),
        ("/tokenize", {"text": "a"}, "text"),
        ("/tokenize", {"content": "a", "model": 3}, "model"),
        *(
            ("/detokenize", {"tokens": value}, "tokens")
            for value in (None, 3, "a", [1.5], ["a"], [-1], [2**31], [10**30])
        ),
    ],
)
def test_tokenization_is_checked(client: TestClient, path: str, body: dict[str, Any], param: str) -> None:
    response = client.post(path, json=body)
    assert response.status_code == 400, response.text
    assert error_of(response)["param"] == param


@pytest.mark.parametrize("grammar", ["", "start: (", "root ::= (", 'start: "a" missing'])
def test_a_grammar_that_is_none_is_named(client: TestClient, grammar: str) -> None:
    response = client.post(COMPLETION, json=said(grammar=grammar))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "grammar"


@pytest.mark.parametrize("body", [{"model": "x" * 10**6}, {"x" * 10**6: 1}], ids=["model", "name"])
def test_an_error_does_not_repeat_a_megabyte(client: TestClient, body: dict[str, Any]) -> None:
    response = client.post(COMPLETION, json=said(**body))
    assert len(error_of(response)["param"]) < 300
    assert len(response.content) < 20_000


def test_unknown_query_parameters_are_refused(client: TestClient) -> None:
    assert error_of(client.get("/props?modl=fake"))["message"] == (
        "'modl' is not a parameter of /props (did you mean 'model'?)."
    )


@pytest.mark.parametrize("count", [MOST_MESSAGES + 1, 10 * MOST_MESSAGES])
def test_messages_are_counted(client: TestClient, count: int) -> None:
    response = client.post(CHAT, json={"messages": HELLO * count})
    assert error_of(response)["message"] == f"messages: at most {MOST_MESSAGES}, found {count}."


@pytest.mark.parametrize(
    "messages", [None, [], "Hello", [1], [{}], [{"role": "user"}], [{"role": 1, "content": "a"}], {"role": "user"}]
)
def test_messages_are_checked(client: TestClient, messages: Any) -> None:
    response = client.post(CHAT, json={"messages": messages})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"temprature": 1}, "'temprature' is not a parameter of /v1/chat/completions (did you mean 'temperature'?)."),
        ({"prompt": "a"}, "'prompt' is not a parameter of /v1/chat/completions"),
        ({"echo": True}, "echo: True is not supported: it is a parameter of /v1/completions"),
        ({"tools": [{"type": "function"}]}, "tools[0] must be a dict such as {'type': 'function', 'function'"),
        ({"tool_choice": "required"}, "tool_choice is for tools, and there are none"),
        ({"functions": [{"name": "a"}]}, "functions: [{'name': 'a'}] is not supported"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens and max_completion_tokens would say the same"),
        ({"model": "fak"}, "no model named 'fak' is served (did you mean 'fake'?): there is fake."),
        ({"response_format": {"type": "xml"}}, "response_format's type is"),
        ({"top_logprobs": 21}, "top_logprobs: must be between 0 and 20, found 21"),
        ({"n": 2, "temperature": 0}, "n: without sampling or num_beams"),
    ],
)
def test_messages_of_errors(client: TestClient, body: dict[str, Any], message: str) -> None:
    assert message in client.post(CHAT, json={"messages": HELLO, **body}).json()["error"]["message"]


def test_a_prompt_longer_than_the_context(client: TestClient) -> None:
    error = error_of(client.post(COMPLETION, json={"prompt": "a" * 600}))
    assert error["code"] == "context_length_exceeded"


def test_paths_and_methods(client: TestClient) -> None:
    unknown = client.get("/v1/modls")
    assert unknown.status_code == 404
    assert "did you mean '/v1/models'?" in error_of(unknown)["message"]
    for response in (client.get(CHAT), client.options(CHAT)):
        assert response.status_code == 405
        assert error_of(response)["code"] == "method_not_allowed"
