"""The server's OpenAPI document: complete, valid, and true of routes, parameters, ranges and answers."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from edgegen.openai.request import from_json
from edgegen.options.generation import THINKING_OPTIONS
from edgegen.options.kinds import Number
from edgegen.options.table import GENERATION_OPTIONS
from edgegen.server.app import WIRES, create_app
from edgegen.server.http.error_format import COUNT_TOKENS, MESSAGES
from edgegen.server.http.options import ServerOptions
from edgegen.server.ollama import schema as ollama
from edgegen.server.openapi import openapi_document
from edgegen.server.responses.schema import RESPONSES
from edgegen.server.wire.request_settings import OPTION_NAMES
from tests.runtime.models import RandomGraphs, fake_llm
from tests.runtime.server.material import CHAT, COMPLETION, HELLO, client_of, events


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return client_of(fake_llm(tmp_path_factory.mktemp("server") / "fake", RandomGraphs()))


@pytest.fixture(scope="module")
def document(client: TestClient) -> dict[str, Any]:
    response = client.get("/openapi.json")
    assert response.headers["content-type"] == "application/json"
    return response.json()


def validator(document: dict[str, Any], name: str) -> Any:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return jsonschema.Draft202012Validator(schema)


def request_schema(document: dict[str, Any], path: str) -> str:
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return schema["$ref"].rpartition("/")[2]


def test_every_route_is_in_the_document(tmp_path: Path, document: dict[str, Any]) -> None:
    app = create_app({"fake": fake_llm(tmp_path / "fake", RandomGraphs())}, ServerOptions())
    routes = set[tuple[str, str]]()
    for route in app.routes:
        assert isinstance(route, Route)
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
        routes |= {(method.lower(), path) for method in route.methods or () if method != "HEAD"}
    assert routes == {(method, path) for path, methods in document["paths"].items() for method in methods}


OTHERWISE: dict[str, set[str]] = {
    CHAT: set(),
    COMPLETION: {*THINKING_OPTIONS},
    RESPONSES: {"reasoning_effort"},  # "reasoning" has it
    MESSAGES: set(),
}
"""Options that are no parameters of an API by their own names."""


@pytest.mark.parametrize("path", OTHERWISE)
def test_options_are_parameters(document: dict[str, Any], path: str) -> None:
    schema = document["components"]["schemas"][request_schema(document, path)]
    assert OPTION_NAMES & schema["properties"].keys() == OPTION_NAMES - OTHERWISE[path]
    assert schema["additionalProperties"] is False


def test_options_are_keys_of_ollama_s_options(document: dict[str, Any]) -> None:
    schema = document["components"]["schemas"]["OllamaOptions"]
    request = document["components"]["schemas"]["OllamaChatRequest"]
    elsewhere = {"logprobs", "top_logprobs"}
    assert elsewhere <= request["properties"].keys()
    assert OPTION_NAMES & schema["properties"].keys() == OPTION_NAMES - elsewhere - {"num_return_sequences"}
    assert schema["additionalProperties"] is request["additionalProperties"] is False


LEAST: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO},
    COMPLETION: {"prompt": "a"},
    RESPONSES: {"input": "a"},
    MESSAGES: {"messages": HELLO, "max_tokens": 4},
    COUNT_TOKENS: {"messages": HELLO},
    ollama.CHAT: {"messages": HELLO},
    ollama.GENERATE: {"prompt": "a"},
    **{path: {"prompt": "a"} for path in ("/completion", "/completions")},
    "/infill": {},
}
"""Fields that a request to each API has to have."""


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.url)
def test_every_parameter_is_read_by_its_api(document: dict[str, Any], wire: Any) -> None:
    """Parameters that the document names are known, and null is left out."""
    properties = document["components"]["schemas"][request_schema(document, wire.url)]["properties"]
    own = LEAST[wire.url]
    assert wire.read(dict.fromkeys(properties) | own).settings.values == wire.read(own).settings.values


def test_schemas_are_schemas(document: dict[str, Any]) -> None:
    used = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    for name, schema in document["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert name in used, name
    assert used <= document["components"]["schemas"].keys()


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len({*names}) == len(names)


def test_ranges_and_help_are_those_of_the_table(document: dict[str, Any]) -> None:
    properties = document["components"]["schemas"]["ChatCompletionRequest"]["properties"]
    assert properties["min_p"] == {
        "type": ["number", "null"],
        "minimum": 0,
        "maximum": 1,
        "description": "Drop tokens below this share of the best. That is, tokens less likely than this times the most "
        "likely one; 0 is off.",
    }
    assert properties["n"] == {
        "type": ["integer", "null"],
        "minimum": 1,
        "maximum": 64,
        "description": "OpenAI's name of num_return_sequences.",
    }
    assert properties["mirostat"]["enum"] == [0, 2, None]
    assert properties["suffix"] == {"enum": ["", None]}


VALUES: list[Any] = [
    -1, 0, 1, 2, 65, 0.5, 1.5, -0.5, 31.5, 10**30, 1e39, "a", "", "-inf", "never", "error", True, False, [], {},
    [1], ["a"], [[]], [[1]], [[1, 2], 0.5], [[[1], 0.5]], [[[1], "-inf"]], [3, 1.5], [3, 0], {"1": 0.5}, {"1": "-inf"},
    {"a": 1}, {"-1": 1}, "(", [-1], [2**31], ["a", ""],
]  # fmt: skip
LATER = {"grammar", "stop_regex", "negative_prompt", "response_format"}
"""Parameters that only a parser, or the tokenizer, can check."""


@pytest.mark.parametrize("name", sorted(OPTION_NAMES - {*THINKING_OPTIONS} - LATER))
def test_the_document_and_the_server_agree_on_values(document: dict[str, Any], name: str) -> None:
    """Each value by itself is refused by both, or by neither."""
    schema = document["components"]["schemas"]["ChatCompletionRequest"]["properties"][name]
    judge: Any = jsonschema.Draft202012Validator(schema | {"components": document["components"]})
    option = next(option for option in GENERATION_OPTIONS if option.name == name)
    for value in VALUES:
        if isinstance(option.kind, Number) and option.kind.type is int and value == 1e39:
            continue  # an integer to JSON Schema, as it is a whole number
        refused = refusals(option, value)
        assert judge.is_valid(value) is not refused, (value, schema)


def refusals(option: Any, value: Any) -> bool:
    read = from_json(option.name, value)
    if read is None and value is not None:  # as if it were left out
        return False
    return bool(option.kind.problems(option.name, option.kind.normalized(read)))


SHORT = {"options": {"num_predict": 4}}
ANSWERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "chat": (CHAT, {"messages": HELLO, "max_tokens": 4, "logprobs": True, "top_logprobs": 2}, "ChatCompletion"),
    "several answers": (CHAT, {"messages": HELLO, "max_tokens": 4, "n": 3, "seed": 1}, "ChatCompletion"),
    "completion": (COMPLETION, {"prompt": ["a", "b"], "max_tokens": 4, "logprobs": 2, "echo": True}, "Completion"),
    "nothing generated": (COMPLETION, {"prompt": "a", "max_tokens": 0, "echo": True}, "Completion"),
    "response": (RESPONSES, {"input": "Hello", "max_output_tokens": 4, "top_logprobs": 2}, "Response"),
    "message": (MESSAGES, {**LEAST[MESSAGES], "context_management": {}}, "MessageAnswer"),
    "tokens of a message": (COUNT_TOKENS, {"messages": HELLO}, "TokenCount"),
    "ollama's chat": (
        ollama.CHAT,
        {"messages": HELLO, "stream": False, **SHORT, "top_logprobs": 2},
        "OllamaChatAnswer",
    ),
    "ollama's answer": (ollama.GENERATE, {"prompt": "a", "stream": False, **SHORT}, "OllamaGenerateAnswer"),
    "ollama's load": (ollama.GENERATE, {}, "OllamaGenerateAnswer"),
    "ollama's model": (ollama.SHOW, {"model": "fake"}, "OllamaShown"),
    "ollama's status": (ollama.PULL, {"model": "fake", "stream": False}, "OllamaStatus"),
    "ollama's refusal": ("/api/push", {}, "OllamaError"),
    "ollama's model that is not there": (ollama.CHAT, {"model": "other"}, "OllamaError"),
    "no embeddings": ("/v1/embeddings", {"input": "a"}, "Error"),
    "loaded": ("/models/load", {"model": "fake"}, "ModelDone"),
    "unloaded": ("/models/unload", {"model": "fake"}, "Error"),
    "unknown parameter of a message": (MESSAGES, {**LEAST[MESSAGES], "temprature": 1}, "MessageError"),
    "tokens": ("/tokenize", {"content": "Hello"}, "Tokens"),
    "text": ("/detokenize", {"tokens": [72, 105]}, "Text"),
    "html": ("/render", {"texts": ["*a*"]}, "Rendered"),
    "unknown parameter": (CHAT, {"messages": HELLO, "temprature": 1}, "Error"),
    "unknown model": (CHAT, {"messages": HELLO, "model": "fak"}, "Error"),
    "no texts": ("/render", {"texts": 3}, "Error"),
}


@pytest.mark.parametrize("tokens", [-1, 0, 1])
def test_a_completion_may_have_no_tokens_or_all_that_fit(
    client: TestClient, document: dict[str, Any], tokens: int
) -> None:
    body = {"prompt": "a", "max_new_tokens": tokens, "echo": True}
    validator(document, "CompletionRequest").validate(body)
    assert client.post(COMPLETION, json=body).status_code == 200


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_as_described(client: TestClient, document: dict[str, Any], name: str) -> None:
    path, body, schema = ANSWERS[name]
    response = client.post(path, json=body)
    validator(document, schema).validate(response.json())
    operation = document["paths"][path]["post"]["responses"][str(response.status_code)]
    assert f"/{schema}'" in str(operation["content"][response.headers["content-type"]])


@pytest.mark.parametrize("name", ["chat", "several answers", "completion", "nothing generated"])
def test_chunks_are_as_described(client: TestClient, document: dict[str, Any], name: str) -> None:
    path, body, schema = ANSWERS[name]
    response = client.post(path, json=body | {"stream": True, "stream_options": {"include_usage": True}})
    chunks = events(response.text)
    assert chunks
    for chunk in chunks:
        validator(document, f"{schema}Chunk").validate(chunk)


@pytest.mark.parametrize("name", ["ollama's chat", "ollama's answer"])
def test_lines_are_as_described(client: TestClient, document: dict[str, Any], name: str) -> None:
    path, body, schema = ANSWERS[name]
    response = client.post(path, json=body | {"stream": True})
    assert response.headers["content-type"] == "application/x-ndjson"
    lines = response.text.splitlines()
    assert len(lines) > 1
    for line in lines:
        validator(document, schema).validate(json.loads(line))


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("/v1/models", "ModelList"),
        ("/v1/models/fake", "Model"),
        ("/props", "Props"),
        ("/models", "ModelStates"),
        ("/models/catalogue", "Catalogue"),
        ("/api/tags", "OllamaModels"),
        ("/api/ps", "OllamaLoaded"),
    ],
)
def test_information_is_as_described(client: TestClient, document: dict[str, Any], path: str, schema: str) -> None:
    validator(document, schema).validate(client.get(path).json())


def test_the_document_is_the_same_for_every_server(document: dict[str, Any]) -> None:
    assert openapi_document() == document
