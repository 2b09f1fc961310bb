"""Clients of a server over a model of a few lines, and OpenAI's document of its API."""

import json
from pathlib import Path
from typing import Any, cast

import jsonschema
import yaml
from starlette.testclient import TestClient

from edgegen.llm import LLM
from edgegen.server.app import create_app
from edgegen.server.http.options import ServerOptions
from tests.runtime.models import FakeGraphs, RandomGraphs, fake_llm

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]
OWN = "http://127.0.0.1:8000"


def client_of(models: LLM | dict[str, LLM], options: ServerOptions | None = None, *, running: int = 8) -> TestClient:
    named = {"fake": models} if isinstance(models, LLM) else models
    return TestClient(create_app(named, options or ServerOptions(), running=running), base_url=OWN)


def fake_client(folder: Path, options: ServerOptions | None = None, graphs: FakeGraphs | None = None) -> TestClient:
    return client_of(fake_llm(folder, graphs or RandomGraphs()), options)


def error_of(response: Any) -> dict[str, Any]:
    """The error of a refusal; it is as OpenAI's API has them."""
    error: dict[str, Any] = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    assert "\n" not in error["message"]
    return error


def events(text: str) -> list[dict[str, Any]]:
    """The chunks of a stream, which ends as it should."""
    *data, last, rest = text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    assert all(one.startswith("data: ") for one in data)
    return [json.loads(one.removeprefix("data: ")) for one in data]


class OpenAIDocument:
    """The schemas of OpenAI's own description of its API."""

    def __init__(self, path: Path) -> None:
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._document: dict[str, Any] = yaml.load(path.read_text("utf-8"), loader)
        _read_nullable(self._document["components"]["schemas"])

    def check(self, name: str, body: Any) -> None:
        """``body`` is what the document says of the schema ``name``."""
        schema = {"$ref": f"#/components/schemas/{name}", "components": self._document["components"]}
        jsonschema.Draft202012Validator(schema).validate(body)  # pyright: ignore[reportUnknownMemberType]

    def allow_null(self, schema: str, *path: str) -> None:
        """As the servers send it, and the document of an older version does not say."""
        at = self._document["components"]["schemas"][schema]
        for step in path:
            at = at[step]
        one = {**at}
        at.clear()
        at["anyOf"] = [one, {"type": "null"}]


def _read_nullable(schema: Any) -> None:
    """OpenAPI's older ``nullable`` as JSON Schema has it."""
    if isinstance(schema, dict):
        content = cast(dict[str, Any], schema)
        for part in content.values():
            _read_nullable(part)
        if content.pop("nullable", None) is True:
            one = {**content}
            content.clear()
            content["anyOf"] = [one, {"type": "null"}]
    elif isinstance(schema, list):
        for part in cast(list[Any], schema):
            _read_nullable(part)
