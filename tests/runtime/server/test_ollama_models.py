"""Ollama's routes about models: what is listed and shown, loading and unloading by requests, pulling and deleting."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen.bundle.bundle import Bundle
from edgegen.generation.fill import fill_tokens
from edgegen.options.engine import EngineOptions
from edgegen.server.http.options import ServerOptions
from edgegen.server.models.installed_models import InstalledModels
from edgegen.server.models.served_models import ModelLoadError
from edgegen.server.ollama.model_routes import VERSION
from edgegen.server.ollama.schema import CHAT, DELETE, EMBED, EMBEDDINGS, GENERATE, PULL, REFUSED, SHOW
from tests.runtime.models import EOS, RandomGraphs, fake_llm, write_fake_bundle
from tests.runtime.saying import TEMPLATE, THINKING
from tests.runtime.server.material import HELLO, client_of
from tests.runtime.server.test_models import FakeSource, client_over, in_time, served_of, statuses, use
from tests.waiting import until

TAGS, PS = "/api/tags", "/api/ps"


@pytest.fixture
def source(tmp_path: Path) -> FakeSource:
    return FakeSource(tmp_path, "a", "b", "c", budget=20)


@pytest.fixture
def client(source: FakeSource) -> Iterator[TestClient]:
    """In one event loop, as a server has it: what unloads a model outlives the request."""
    with client_over(source, "a") as client:
        yield client


def names(client: TestClient, path: str) -> list[str]:
    return [model["name"] for model in client.get(path).json()["models"]]


def error_of(response: Any, status: int = 400) -> str:
    assert response.status_code == status, response.text
    assert response.json().keys() == {"error"}
    return response.json()["error"]


def test_tags_are_all_and_ps_those_that_are_loaded(client: TestClient) -> None:
    assert names(client, TAGS) == ["a:latest", "b:latest", "c:latest"]
    assert names(client, PS) == ["a:latest"]
    client.post(GENERATE, json={"model": "b"})
    (_, loaded) = client.get(PS).json()["models"]
    assert (loaded["size"], loaded["size_vram"], loaded["context_length"]) == (10, 0, 512)
    assert loaded["expires_at"] > "2200"
    tag = client.get(TAGS).json()["models"][0]
    assert len(tag["digest"]) == 64
    assert tag["details"] == {
        "parent_model": "",
        "format": "onnx",
        "family": "gpt2",
        "families": ["gpt2"],
        "parameter_size": "1.0K",
        "quantization_level": "FP32",
    }


@pytest.mark.parametrize("name", ["model", "name"])
def test_show_tells_what_a_model_is_and_loads_none(client: TestClient, source: FakeSource, name: str) -> None:
    shown = client.post(SHOW, json={name: "c:latest", "verbose": True, "system": "", "options": None}).json()
    assert shown["details"]["family"] == "gpt2"
    assert shown["model_info"]["general.architecture"] == "gpt2"
    assert shown["model_info"]["gpt2.context_length"] == 512
    assert shown["capabilities"] == ["completion"]
    assert shown["modelfile"].startswith("FROM c:latest\nPARAMETER num_ctx 512\n")
    assert source.loads == []
    assert error_of(client.post(SHOW, json={name: "d"}), 404).startswith("model 'd' not found")
    assert (
        error_of(client.post(SHOW, json={"model": "a", "name": "b"}))
        == "model and name are two models: leave name out."
    )
    assert error_of(client.post(SHOW, json={})) == "model is missing: the name of a model expected."


def test_show_tells_capabilities_and_parameters(tmp_path: Path) -> None:
    config = {"do_sample": True, "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.1, "eos_token_id": EOS}
    for name, template, hidden, found in (
        ("tools", TEMPLATE, False, ["completion", "tools"]),
        ("thinking", THINKING, True, ["completion", "tools", "thinking", "embedding"]),
    ):
        llm = fake_llm(tmp_path / name, RandomGraphs(), template=template, hidden=hidden, config=config)
        shown = client_of({name: llm}).post(SHOW, json={"model": name}).json()
        assert shown["capabilities"] == found
        assert shown["template"] == template
        settings = dict(line.split() for line in shown["parameters"].splitlines())
        assert settings == {"num_ctx": "512", "temperature": "0.7", "top_k": "20", "repeat_penalty": "1.1"}


def test_tokens_for_a_prefix_and_a_suffix() -> None:
    qwen = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    assert fill_tokens(dict.fromkeys((*qwen, "other"), 1)) == qwen
    assert fill_tokens(dict.fromkeys(qwen[:2], 1)) is None


def test_version(client: TestClient) -> None:
    assert client.get("/api/version").json() == {"version": VERSION}


def test_a_request_without_a_prompt_loads_the_model(client: TestClient, source: FakeSource) -> None:
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        (CHAT, {"messages": []}, {"message": {"role": "assistant", "content": ""}}),
        (GENERATE, {"prompt": ""}, {"response": ""}),
    ]
    for path, asked, said in cases:
        answer = client.post(path, json={"model": "b:latest", **asked})
        assert answer.headers["content-type"] == "application/json"
        body = answer.json()
        assert {key: body[key] for key in said} == said
        assert (body["model"], body["done"], body["done_reason"]) == ("b:latest", True, "load")
    assert source.loads == ["b"]


@pytest.mark.parametrize("path", [CHAT, GENERATE])
def test_keep_alive_0_without_a_prompt_unloads(client: TestClient, path: str) -> None:
    answer = client.post(path, json={"model": "a", "keep_alive": 0})
    assert (answer.status_code, answer.json()["done_reason"]) == (200, "unload")
    assert names(client, PS) == []
    assert client.post(path, json={"model": "a", "keep_alive": "0s"}).json()["done_reason"] == "unload"


@pytest.mark.parametrize("keep_alive", [0, 0.01])
def test_a_model_is_unloaded_once_its_time_is_over(client: TestClient, keep_alive: float) -> None:
    body = {"model": "b", "keep_alive": keep_alive, "stream": False, "options": {"num_predict": 2}}
    assert client.post(CHAT, json={**body, "messages": HELLO}).status_code == 200
    until(lambda: names(client, PS) == ["a:latest"])
    assert client.post(GENERATE, json={**body, "prompt": "a"}).status_code == 200
    until(lambda: names(client, PS) == ["a:latest"])


def test_keep_alive_is_told_and_kept(client: TestClient) -> None:
    client.post(GENERATE, json={"model": "a", "keep_alive": "1h"})
    hour = client.get(PS).json()["models"][0]["expires_at"]
    assert hour < "2200"
    client.post("/v1/completions", json={"model": "a", "prompt": "a", "max_tokens": 1})
    assert client.get(PS).json()["models"][0]["expires_at"] < "2200"
    client.post(GENERATE, json={"model": "a", "keep_alive": -1})
    assert client.get(PS).json()["models"][0]["expires_at"] > "2200"


def test_a_model_in_use_is_unloaded_when_its_requests_have_ended(source: FakeSource) -> None:
    served, told = served_of(source, "a")

    async def work() -> None:
        async with served.lease("a", keep_alive=0.001):
            async with served.lease("a"):
                assert (await served.release("a")).status == "loaded"
            await asyncio.sleep(0.01)
            assert (await statuses(served))["a"] == "loaded"
        while "a unloaded" not in told.events:
            await asyncio.sleep(0.001)
        await use(served, "a")
        assert (await served.find("a")).keep_alive is None

    in_time(work())


def test_a_request_ends_the_time_of_an_earlier_one(source: FakeSource) -> None:
    served, told = served_of(source, "a")

    async def work() -> None:
        async with served.lease("a", keep_alive=0.001):
            pass
        async with served.lease("a"):
            await asyncio.sleep(0.01)
            assert told.events == []
        async with served.lease("a", keep_alive=float("inf")):
            pass
        await asyncio.sleep(0.01)
        assert told.events == []

    in_time(work())


def test_models_that_stay_loaded_are_not_unloaded(tmp_path: Path) -> None:
    client = client_of({"a": fake_llm(tmp_path / "a", RandomGraphs())})
    assert error_of(client.post(CHAT, json={"keep_alive": 0})) == "the models of this server stay loaded."
    body = {"prompt": "a", "keep_alive": 0, "stream": False, "options": {"num_predict": 1}}
    assert client.post(GENERATE, json=body).status_code == 200
    assert names(client, PS) == ["a:latest"]
    assert error_of(client.request("DELETE", DELETE, json={"model": "a"}))


def test_a_tag_of_another_api_is_the_same_model(client: TestClient) -> None:
    asked = {"model": "a:latest", "prompt": "a", "max_tokens": 1}
    assert client.post("/v1/completions", json=asked).json()["model"] == "a"
    assert client.post("/v1/completions", json={**asked, "model": "a:4b"}).status_code == 404


def test_pull_succeeds_where_the_model_is_there(client: TestClient) -> None:
    answer = client.post(PULL, json={"model": "b:latest"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in answer.text.splitlines()][-1] == {"status": "success"}
    assert client.post(PULL, json={"name": "b", "stream": False}).json() == {"status": "success"}
    assert "this server pulls no models: start it with --allow-pull" in error_of(
        client.post(PULL, json={"model": "llama3.2"})
    )


@pytest.mark.parametrize("path", REFUSED)
def test_what_edgegen_does_not_do_is_refused_by_name(client: TestClient, path: str) -> None:
    assert error_of(client.post(path, json={"source": "a", "destination": "b"})).startswith("edgegen ")


def test_delete(client: TestClient, source: FakeSource) -> None:
    source.removable = {"b"}
    client.post(GENERATE, json={"model": "b"})
    answer = client.request("DELETE", DELETE, json={"name": "b:latest"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert names(client, TAGS) == ["a:latest", "c:latest"]
    assert error_of(client.request("DELETE", DELETE, json={"model": "b"}), 404).startswith("model 'b' not found")
    client.post(GENERATE, json={"model": "c"})
    assert error_of(client.request("DELETE", DELETE, json={"model": "c"})) == "'c' cannot be deleted."
    assert "c:latest" in names(client, PS)  # and stays loaded


def test_only_bundles_of_the_store_are_deleted(edgegen_home: Path, tmp_path: Path) -> None:
    store = edgegen_home / "bundles"
    for folder in (store / "mine", store / "given", tmp_path / "other"):
        write_fake_bundle(folder)
    models = InstalledModels({"given": "given", "other": str(tmp_path / "other")}, EngineOptions(threads=1))
    models.remove("mine")
    assert not (store / "mine").exists()
    for name in ("given", "other", "stories"):
        with pytest.raises(ValueError, match=f"'{name}' cannot be deleted"):
            models.remove(name)
    assert (store / "given").exists()
    with pytest.raises(ModelLoadError, match="has been removed"):
        models.remove("mine")
    assert isinstance(models.bundle("given"), Bundle)
    shutil.rmtree(store / "given")
    with pytest.raises(ModelLoadError):
        models.bundle("given")


def test_an_unreadable_bundle_is_left_out_of_the_list(client: TestClient, source: FakeSource) -> None:
    source.unreadable = {"c"}
    assert names(client, TAGS) == ["a:latest", "b:latest"]
    assert error_of(client.post(SHOW, json={"model": "c"}), 500) == "cannot load 'c'."


# ---------------------------------------------------------------- embeddings


@pytest.fixture
def embedding(tmp_path: Path) -> TestClient:
    return client_of({"model": fake_llm(tmp_path / "model", RandomGraphs(), hidden=True, max_context=16)})


def test_embed(embedding: TestClient) -> None:
    asked = {"input": ["Hello", "Good day"], "dimensions": 4, "options": {"num_ctx": 8}, "keep_alive": "5m"}
    answer = embedding.post(EMBED, json={"model": "model:latest", **asked}).json()
    openai = embedding.post("/v1/embeddings", json={"input": asked["input"], "dimensions": 4}).json()
    assert answer["embeddings"] == [one["embedding"] for one in openai["data"]]
    assert (answer["model"], answer["prompt_eval_count"]) == ("model:latest", openai["usage"]["prompt_tokens"])
    assert answer["total_duration"] >= answer["load_duration"] > 0
    one = embedding.post(EMBED, json={"input": "Hello", "dimensions": 4}).json()
    assert one["embeddings"] == answer["embeddings"][:1]
    empty: list[Any] = ["", []]
    for nothing in empty:
        assert embedding.post(EMBED, json={"input": nothing}).json()["embeddings"] == []


def test_a_long_text_is_truncated_unless_told_otherwise(embedding: TestClient) -> None:
    cut = embedding.post(EMBED, json={"input": "a" * 16}).json()["embeddings"]
    assert embedding.post(EMBED, json={"input": "a" * 40}).json()["embeddings"] == cut
    assert "prompt is too long" in error_of(embedding.post(EMBED, json={"input": "a" * 40, "truncate": False}))


def test_the_older_api_of_embeddings(embedding: TestClient) -> None:
    found = embedding.post(EMBEDDINGS, json={"model": "model", "prompt": "Hello"}).json()
    openai = embedding.post("/v1/embeddings", json={"input": "Hello", "normalize": False}).json()
    assert found == {"embedding": openai["data"][0]["embedding"]}
    assert embedding.post(EMBEDDINGS, json={"model": "model"}).json() == {"embedding": []}
    assert error_of(embedding.post(EMBEDDINGS, json={"prompt": 3})).startswith("prompt: text expected")


def test_a_model_without_hidden_states_makes_none(client: TestClient) -> None:
    assert "--with-hidden" in error_of(client.post(EMBED, json={"model": "a", "input": "a"}))


# ---------------------------------------------------------------- errors and access


def test_errors_of_all_kinds_are_ollama_s(source: FakeSource) -> None:
    options = ServerOptions(keys=("secret",))
    with client_over(source, "a", options=options) as client:
        assert "needs an API key" in error_of(client.get(TAGS), 401)
        key = {"Authorization": "Bearer secret"}
        assert client.get(TAGS, headers=key).status_code == 200
        assert "may not use" in error_of(client.get(TAGS, headers={**key, "Origin": "http://evil.example"}), 403)
        assert "did you mean '/api/tags'" in error_of(client.get("/api/tag", headers=key), 404)
        assert error_of(client.get(CHAT, headers=key), 405) == "/api/chat takes no GET."
        assert "not JSON" in error_of(client.post(CHAT, headers=key, content=b"{"))
        assert client.head("/").status_code == 200
        assert client.head("/", headers={"host": "evil.example"}).status_code == 403
