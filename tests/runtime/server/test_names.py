"""Names of models: aliases, any name, and what the lists of models tell of them."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from edgegen.errors import OptionError
from edgegen.server.app import create_app
from edgegen.server.http.options import ServerOptions
from tests.runtime.models import RandomGraphs, fake_llm
from tests.runtime.server.material import COMPLETION, OWN, error_of, fake_client
from tests.runtime.server.test_models import FakeSource

ASKED = {"prompt": "Once", "max_tokens": 2}
ALIASES = ServerOptions(aliases=("gpt-4o-mini", "mine"))


def default_name(client: TestClient) -> str:
    return client.get("/v1/models").json()["data"][0]["id"]


@pytest.mark.parametrize("name", ["gpt-4o-mini", "mine", "mine:latest"])
def test_a_model_answers_to_its_aliases(tmp_path: Path, name: str) -> None:
    client = fake_client(tmp_path, ALIASES)
    response = client.post(COMPLETION, json={**ASKED, "model": name})
    assert response.status_code == 200
    assert response.json()["model"] == default_name(client)


def test_aliases_are_listed_with_their_model(tmp_path: Path) -> None:
    client = fake_client(tmp_path, ALIASES)
    (entry,) = client.get("/v1/models").json()["data"]
    assert entry["aliases"] == ["gpt-4o-mini", "mine"]
    assert client.get("/v1/models/mine").json() == entry


def test_other_names_are_unknown_and_the_nearest_alias_is_told(tmp_path: Path) -> None:
    response = fake_client(tmp_path, ALIASES).post(COMPLETION, json={**ASKED, "model": "gpt-4o-min"})
    assert response.status_code == 404
    assert "did you mean 'gpt-4o-mini'?" in error_of(response)["message"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/messages", "/api/generate"])
def test_any_name_is_the_one_models_where_that_is_said(tmp_path: Path, path: str) -> None:
    client = fake_client(tmp_path, ServerOptions(any_model=True))
    said = (
        {"messages": [{"role": "user", "content": "Hi"}]} if "chat" in path or "messages" in path else {"prompt": "Hi"}
    )
    limit = {"options": {"num_predict": 2}, "stream": False} if "api" in path else {"max_tokens": 2}
    assert client.post(path, json={"model": "claude-9", **said, **limit}).status_code == 200


def test_any_name_unloads_and_deletes_nothing(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "first", "second")
    app = create_app({"first": source.load("first")}, ServerOptions(any_model=True), source=source)
    client = TestClient(app, base_url=OWN)
    assert client.post("/models/unload", json={"model": "third"}).status_code == 404
    assert client.request("DELETE", "/api/delete", json={"model": "third"}).status_code == 404
    assert client.post("/api/pull", json={"model": "third"}).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "more"),
    [
        ("POST", "/models/unload", {}),
        ("DELETE", "/api/delete", {}),
        ("POST", "/api/generate", {"keep_alive": 0}),
    ],
)
@pytest.mark.parametrize("alias", ["mine", "mine:latest"])
def test_an_alias_unloads_and_deletes_nothing(
    tmp_path: Path, method: str, path: str, more: dict[str, int], alias: str
) -> None:
    source = FakeSource(tmp_path, "first", "second")
    source.removable = {"first", "second"}
    client = TestClient(create_app({"first": source.load("first")}, ALIASES, source=source), base_url=OWN)
    response = client.request(method, path, json={"model": alias, **more})
    assert response.status_code == 400
    assert f"'{alias}' is an alias of 'first'" in response.text
    assert [model["id"] for model in client.get("/models").json()["data"] if model["status"]["value"] == "loaded"] == [
        "first"
    ]


def test_models_tell_their_context_and_what_they_can_do(tmp_path: Path) -> None:
    llm = fake_llm(tmp_path, RandomGraphs())
    client = TestClient(create_app({"tiny": llm}, ServerOptions()), base_url=OWN)
    (entry,) = client.get("/v1/models").json()["data"]
    assert entry["context_length"] == entry["max_model_len"] == llm.max_context
    assert entry["capabilities"][0] == "completion"
    assert client.post("/api/show", json={"model": "tiny"}).status_code in (200, 400)


def test_a_bundle_that_cannot_be_read_is_listed_by_its_name(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "first", "second")
    source.unreadable.add("second")
    client = TestClient(create_app({"first": source.load("first")}, ServerOptions(), source=source), base_url=OWN)
    first, second = client.get("/v1/models").json()["data"]
    assert "context_length" in first
    assert second.keys() == {"id", "object", "created", "owned_by"}


@pytest.mark.parametrize("alias", ["", " ", " mine"])
def test_aliases_are_names(alias: str) -> None:
    with pytest.raises(OptionError, match=r"aliases: .* is not a name"):
        ServerOptions(aliases=(alias,))
