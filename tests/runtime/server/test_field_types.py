"""Every field of every API with values of every JSON type: an answer or a refusal, never a failure of the server."""

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen.server.http.options import ServerOptions
from edgegen.server.openapi import openapi_document
from tests.runtime.models import RandomGraphs, fake_llm
from tests.runtime.server.material import HELLO, client_of

_CHAT: dict[str, Any] = {"messages": HELLO}
_BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {**_CHAT, "max_tokens": 1},
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/v1/responses": {"input": "hi", "max_output_tokens": 1},
    "/v1/messages": {**_CHAT, "max_tokens": 1},
    "/v1/messages/count_tokens": _CHAT,
    "/api/chat": {**_CHAT, "stream": False, "options": {"num_predict": 1}},
    "/api/generate": {"prompt": "a", "stream": False, "options": {"num_predict": 1}},
    "/completion": {"prompt": "a", "n_predict": 1},
    "/infill": {"prompt": "a", "n_predict": 1},
    "/apply-template": _CHAT,
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [1]},
    "/v1/embeddings": {"input": "a"},
    "/api/embed": {"input": "a"},
    "/api/embeddings": {"prompt": "a"},
    "/api/show": {"model": "fake"},
}
"""The least that each path answers."""

_SCALARS: tuple[Any, ...] = (None, True, False, 0, 1, -1, 2.0, 1.5, 1e30, 10**30, "", "x", "{", "[1]", "\n")
_LISTS: tuple[Any, ...] = ([], [None], [1], [1.5], [True], [""], ["x"], [[]], [["x"]], [{}], [{"a": 1}], ["a", 1])
_MORE_LISTS: tuple[Any, ...] = (["a", None], ["a", ["b"]], ["a", {}], [{"type": "x"}], [{"type": []}], [[{}]])
_OBJECTS: tuple[Any, ...] = ({}, {"a": 1}, {"": None}, {"type": "x"}, {"type": []}, {"type": {}}, {"type": ["x"]})
_ONE_OF_EACH: tuple[Any, ...] = (None, True, 1, 1.5, 10**30, "", "x", [], [1], [["x"]], [{}], {}, {"a": 1})
_TYPES = (*_SCALARS, *_LISTS, *_MORE_LISTS, *_OBJECTS)

_BROKEN = """
{"type": "json_schema"} {"type": "json_object"} {"type": "json"} {"type": "regex"} {"type": "grammar"}
{"type": "ebnf"} {"type": "structural_tag"} {"type": "json_schema", "json_schema": []}
{"type": "json_schema", "json_schema": 5} {"type": "json_schema", "json_schema": {}}
{"type": "json_schema", "json_schema": {"schema": []}}
{"type": "json_schema", "json_schema": {"schema": {"type": 5}}} {"type": "json_schema", "schema": 5}
{"type": "json_schema", "schema": []} {"type": "json_schema", "schema": {"$ref": 5}}
{"type": "json_schema", "schema": {"items": 5}} {"type": "json_schema", "name": [], "schema": []}
{"format": {"type": []}} {"format": []} {"choice": [{}]} {"choice": [1]} {"choice": [["a"]]} {"choice": {}}
{"choice": 5} {"choice": ""} {"choice": []} {"json": [{}]} {"json": [1]} {"json": [["a"]]} {"json": {}}
{"json": 5} {"json": ""} {"json": []} {"regex": [{}]} {"regex": [1]} {"regex": [["a"]]} {"regex": {}}
{"regex": 5} {"regex": ""} {"regex": []} {"grammar": [{}]} {"grammar": [1]} {"grammar": [["a"]]} {"grammar": {}}
{"grammar": 5} {"grammar": ""} {"grammar": []} {"structural_tag": {}} {"json_object": {}} {"json_object": []}
{"value": 5, "type": "regex"} {"type": "regex", "regex": {}} {"type": "grammar", "grammar": 5}
{"type": "lark_grammar", "lark_grammar": []} {"$ref": 5} {"$ref": []} {"$ref": "#/a"} {"properties": []}
{"properties": {"a": 5}} {"enum": {}} {"required": 5, "type": "object"} {"required": [[]], "properties": {}}
{"anyOf": {}} {"anyOf": [5]} {"$defs": []} {"$defs": {"a": 5}, "$ref": "#/$defs/a"} {"items": 5}
{"pattern": 5, "type": "string"} {"additionalProperties": 5, "type": "object"} {"enum": []}
{"enum": [[], {}, 1e+30]} {"const": 1e308} {"minimum": "x", "type": "number"} {"type": "array", "minItems": []}
{"type": "array", "minItems": 1e+30} {"prefixItems": 5} {"allOf": [[]]} {"oneOf": [null]}
{"patternProperties": {"(": {}}} {"minLength": -1}
{"type": "array", "items": {"type": "null"}, "minItems": 1000000000} {"patternProperties": 5} {"$schema": 5}
[{"type": "function"}]
[{"type": "function", "function": 5},
 {"type": "function", "function": []}, {"type": "function", "function": {}},
 {"type": "function", "function": {"name": 5}}]
{"type": "function", "function": {"name": []}} {"type": "function", "name": {}} {"type": "tool", "name": []}
"""
"""Schemas, tools and other objects with a mistake in each."""


def _read(text: str) -> list[Any]:
    found, at, decoder = list[Any](), 0, json.JSONDecoder()
    while at < len(text.rstrip()):
        value, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        found.append(value)
    return found


_CONSTRAINING = {
    *("guided_choice", "guided_json", "guided_regex", "guided_grammar", "guided_json_object", "structured_outputs"),
    *("response_format", "json_schema", "regex", "ebnf", "grammar", "choice", "stop_regex", "format", "text"),
    *("tool_choice", "tools", "thinking", "reasoning", "stream_options", "chat_template_kwargs", "output_config"),
    *("logit_bias", "stop", "samplers", "system", "messages", "input"),
}
"""Fields that hold schemas, tools and other objects: these get broken ones too."""


def _schemas() -> Mapping[str, Mapping[str, Any]]:
    """The schema of the body of each path, without references."""
    document = openapi_document()

    def resolved(schema: Any) -> Any:
        while "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return schema

    found = dict[str, Mapping[str, Any]]()
    for path, operations in document["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {})
        if "application/json" in content:
            found[path] = resolved(content["application/json"]["schema"])
    return found


_FIELDS = {path: sorted(schema.get("properties", {})) for path, schema in _schemas().items()}
_SAME = {"/chat/completions", "/completions", "/embeddings", "/embedding"}
"""Other paths of the same."""
_OPTIONS = "options"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with client_of(fake_llm(tmp_path, RandomGraphs()), ServerOptions(max_tokens=2)) as client:  # one loop for all
        yield client


def _bodies(path: str, field: str) -> Iterator[dict[str, Any]]:
    body = _BODIES[path]
    values = (*_TYPES, *_read(_BROKEN)) if field in _CONSTRAINING else _ONE_OF_EACH
    for value in values:
        yield {**body, field: value}


def _failures(client: TestClient, path: str, fields: list[str]) -> list[str]:
    failed = list[str]()
    for field in fields:
        for body in _bodies(path, field):
            response = client.post(path, json=body)
            if response.status_code not in (200, 400, 404, 413):
                failed.append(f"{path} {field}={json.dumps(body[field])[:200]}: {response.status_code}")
    return failed


def test_every_path_with_a_body_is_asked() -> None:
    nothing = {"/api/copy", "/api/create", "/api/push", "/api/pull", "/api/delete", "/api/blobs/{digest}"}
    elsewhere = {"/models/load", "/models/unload", "/render", "/rerank", "/reranking", "/v1/rerank", "/v1/reranking"}
    assert _FIELDS.keys() - nothing - elsewhere - _SAME - _BODIES.keys() == set()


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/completion", "/api/chat", "/v1/responses"]
)
def test_a_list_of_anything_is_no_failure_where_choices_are_expected(
    client: TestClient, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "edgegen.server")
    assert _failures(client, path, ["guided_choice"]) == []
    assert not caplog.records


@pytest.mark.release
@pytest.mark.parametrize("path", _BODIES)
def test_no_value_of_any_field_is_a_failure_of_the_server(
    client: TestClient, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "edgegen.server")
    assert _failures(client, path, _FIELDS[path]) == []
    assert not caplog.records


@pytest.mark.release
@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/api/embed"])
def test_no_value_of_an_option_of_ollama_is_a_failure(client: TestClient, path: str) -> None:
    schema = openapi_document()["components"]["schemas"]["OllamaOptions"]["properties"]
    for name in schema:
        for value in _ONE_OF_EACH:
            response = client.post(path, json={**_BODIES[path], _OPTIONS: {"num_predict": 1, name: value}})
            assert response.status_code in (200, 400), (name, value, response.text)
