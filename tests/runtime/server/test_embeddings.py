"""Embeddings over HTTP: OpenAI's API, its limits and refusals, and the openai client unchanged."""

import asyncio
import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from edgegen.llm import LLM
from edgegen.server.http.options import MOST_EMBEDDING_INPUTS, ServerOptions
from edgegen.server.wire.embeddings import EMBEDDINGS
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.runtime.models import EOS, HIDDEN_SIZE, FakeGraphs, Gate, RandomGraphs, fake_llm, random_ids
from tests.runtime.server.material import COMPLETION, OpenAIDocument, client_of, error_of
from tests.runtime.server.test_running import Exchange, app_of
from tests.waiting import PATIENCE_S, until

TEXT = "Zoë asked: “Why?”"
INPUTS: dict[str, Any] = {
    "a text": TEXT,
    "texts": [TEXT, "Once"],
    "ids": [1, 2, 3],
    "several ids": [[1, 2, 3], [4]],
    "texts and ids": ["Once", [4]],
}


@pytest.fixture(scope="module")
def graphs() -> RandomGraphs:
    return RandomGraphs()


@pytest.fixture(scope="module")
def llm(graphs: RandomGraphs, tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return fake_llm(tmp_path_factory.mktemp("server") / "fake", graphs, max_context=64, hidden=True)


@pytest.fixture(scope="module")
def client(llm: LLM) -> TestClient:
    return client_of(llm)


@pytest.fixture(scope="module")
def document(test_data: Path) -> OpenAIDocument:
    return OpenAIDocument(test_data / "suites" / "openai-openapi" / "openapi.yaml")


def vectors_of(response: Any) -> list[Any]:
    assert response.status_code == 200, response.text
    data = response.json()["data"]
    assert [one["index"] for one in data] == list(range(len(data)))
    return [one["embedding"] for one in data]


class TestAnswers:
    @pytest.mark.parametrize("given", INPUTS.values(), ids=INPUTS)
    def test_are_what_the_model_says_and_the_document_says(
        self, client: TestClient, llm: LLM, document: OpenAIDocument, given: Any
    ) -> None:
        body = {"model": "fake", "input": given, "user": "me"}
        response = client.post(EMBEDDINGS, json=body)
        told = llm.embed(given)
        np.testing.assert_array_equal(np.array(vectors_of(response), np.float32), told.vectors)
        answer = response.json()
        document.check("CreateEmbeddingResponse", answer)
        assert answer["model"] == "fake"
        assert answer["usage"] == {"prompt_tokens": told.prompt_tokens, "total_tokens": told.prompt_tokens}

    def test_in_base64_are_the_same_floats(self, client: TestClient) -> None:
        plain = vectors_of(client.post(EMBEDDINGS, json={"input": [TEXT, "a"]}))
        coded = vectors_of(client.post(EMBEDDINGS, json={"input": [TEXT, "a"], "encoding_format": "base64"}))
        for one, other in zip(plain, coded, strict=True):
            np.testing.assert_array_equal(np.array(one, np.float32), np.frombuffer(base64.b64decode(other), "<f4"))

    def test_are_pooled_and_cut_as_asked(self, client: TestClient, llm: LLM) -> None:
        body = {"input": TEXT, "pooling": "last", "normalize": False, "dimensions": 2}
        told = llm.embed(TEXT, pooling="last", normalize=False, dimensions=2).vectors
        np.testing.assert_array_equal(np.array(vectors_of(client.post(EMBEDDINGS, json=body)), np.float32), told)

    def test_take_null_for_left_out(self, client: TestClient) -> None:
        body = {"input": "a", "model": None, "dimensions": None, "encoding_format": None, "normalize": None}
        assert vectors_of(client.post(EMBEDDINGS, json=body)) == vectors_of(
            client.post(EMBEDDINGS, json={"input": "a"})
        )

    def test_are_told_among_the_capabilities_and_counted(self, llm: LLM) -> None:
        client = client_of(llm)
        assert client.get("/props").json()["capabilities"]["embeddings"] is True
        client.post(EMBEDDINGS, json={"input": [[1, 2, 3], [4]]})
        metrics = client.get("/metrics").text
        assert 'edgegen_tokens_total{kind="prompt",model="fake"} 4.0' in metrics
        assert 'edgegen_requests_total{path="/v1/embeddings",status="200"} 1.0' in metrics


def said(**more: Any) -> dict[str, Any]:
    return {"input": "a", **more}


AT_LIMIT: dict[str, dict[str, Any]] = {
    "inputs": said(input=[[1]] * MOST_EMBEDDING_INPUTS),
    "context": said(input=random_ids(64)),
    "dimensions": said(dimensions=HIDDEN_SIZE),
    "one dimension": said(dimensions=1),
}

VALUES: dict[str, list[Any]] = {
    "input": [
        [[1]] * (MOST_EMBEDDING_INPUTS + 1),
        ["a"] * 10 * MOST_EMBEDDING_INPUTS,
        random_ids(65),
        [[1], random_ids(640)],
        [EOS + 1],
        [-1],
        "",
        ["a", ""],
        [],
        [[]],
        [[1], []],
        None,
        3,
        {},
        [1, "a"],
        [1.5],
        [True],
        [None],
    ],
    "dimensions": [HIDDEN_SIZE + 1, 10 * HIDDEN_SIZE, 0, -1, 1.5, "2", True, [2], 10**400],
    "encoding_format": ["flaot", "", 3, [], {}],
    "pooling": ["cls", "", 3, [], ["mean"], {}],
    "normalize": ["yes", 1, []],
    "model": [3, []],
}


class TestLimits:
    @pytest.mark.parametrize("name", AT_LIMIT)
    def test_at_the_limit_is_answered(self, client: TestClient, name: str) -> None:
        response = client.post(EMBEDDINGS, json=AT_LIMIT[name])
        assert response.status_code == 200, response.text

    @pytest.mark.parametrize(
        ("param", "value"),
        [(param, value) for param, values in VALUES.items() for value in values],
        ids=lambda value: str(value)[:40],
    )
    def test_above_the_limit_is_refused(self, client: TestClient, graphs: RandomGraphs, param: str, value: Any) -> None:
        before = len(graphs.runs)
        response = client.post(EMBEDDINGS, json=said() | {param: value})
        assert response.status_code == 400, response.text
        assert error_of(response)["param"] == param
        assert len(graphs.runs) == before

    def test_all_tokens_together_are_limited(self, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("edgegen.server.wire.embeddings.MOST_EMBEDDED_TOKENS", 5)
        assert client.post(EMBEDDINGS, json={"input": [[1, 2, 3], [4, 5]]}).status_code == 200
        error = error_of(client.post(EMBEDDINGS, json={"input": [[1, 2, 3], [4, 5, 6]]}))
        assert (error["param"], error["message"]) == (
            "input",
            "input: at most 5 tokens in a request, found 6: send several.",
        )

    def test_an_input_longer_than_the_context_has_its_code(self, client: TestClient) -> None:
        error = error_of(client.post(EMBEDDINGS, json={"input": ["a", random_ids(65)]}))
        assert error["code"] == "context_length_exceeded"
        assert "prompt 2 has 65 tokens" in error["message"]


class TestRefused:
    def test_a_model_without_hidden_states_says_how_to_export_some(self, tmp_path: Path) -> None:
        client = client_of(fake_llm(tmp_path / "plain", RandomGraphs()))
        assert client.get("/props").json()["capabilities"]["embeddings"] is False
        response = client.post(EMBEDDINGS, json={"input": "a"})
        assert response.status_code == 400
        error = error_of(response)
        assert (error["param"], error["code"]) == ("model", "no_embeddings")
        assert "edgegen export MODEL --with-hidden" in error["message"]

    def test_an_unknown_parameter_suggests_the_right_one(self, client: TestClient) -> None:
        error = error_of(client.post(EMBEDDINGS, json={"input": "a", "dimension": 3}))
        assert (error["param"], error["code"]) == ("dimension", "unknown_parameter")
        assert "did you mean 'dimensions'?" in error["message"]

    def test_an_unknown_model_and_method(self, client: TestClient) -> None:
        assert client.post(EMBEDDINGS, json={"input": "a", "model": "fkae"}).status_code == 404
        assert client.get(EMBEDDINGS).status_code == 405

    def test_a_closed_model_is_no_traceback(self, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "closed", RandomGraphs(), hidden=True)
        client = client_of(llm)
        llm.close()
        assert "closed" in error_of(client.post(EMBEDDINGS, json={"input": "a"}))["message"]


class TestBesideOthers:
    def test_a_model_that_is_closed_meanwhile_ends_it(self, tmp_path: Path) -> None:
        graphs = FakeGraphs(lambda ids: 1)
        llm = fake_llm(tmp_path / "fake", graphs, hidden=True)
        client, gate = client_of(llm), Gate(graphs, 2)
        closing = threading.Thread(target=lambda: (gate.reached.wait(PATIENCE_S), llm.close()))
        closing.start()
        response = client.post(EMBEDDINGS, json={"input": [random_ids(40)]})
        closing.join(PATIENCE_S)
        assert response.status_code == 503
        assert error_of(response)["code"] == "cancelled"

    def test_a_client_that_leaves_frees_the_model(self, tmp_path: Path) -> None:
        graphs = FakeGraphs(lambda ids: 1)
        llm = fake_llm(tmp_path / "fake", graphs, hidden=True)
        gate = Gate(graphs, 2)

        async def leave() -> Exchange:
            exchange = Exchange(app_of(llm), {"input": [random_ids(40)] * 3}, EMBEDDINGS)
            running = asyncio.ensure_future(exchange.run())
            await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
            exchange.left.set()
            await running
            return exchange

        assert asyncio.run(leave()).sent == []
        assert len(graphs.runs) <= 2
        assert llm.embed("a").complete

    def test_a_request_out_of_time_is_ended_and_frees_the_model(self, tmp_path: Path) -> None:
        graphs = FakeGraphs(lambda ids: 1)
        client = client_of(fake_llm(tmp_path / "fake", graphs, hidden=True), ServerOptions(request_seconds=0.2))
        Gate(graphs, 2)
        response = client.post(EMBEDDINGS, json={"input": [random_ids(40)]})
        assert response.status_code == 503
        assert error_of(response)["code"] == "request_timeout"
        graphs.before_run = lambda: None
        assert until(lambda: client.post(EMBEDDINGS, json={"input": "a"}).status_code == 200)

    def test_completions_run_on_while_embeddings_wait(self, tmp_path: Path) -> None:
        """And as many embeddings as may be leave threads for others."""
        graphs = RandomGraphs()
        llm = fake_llm(tmp_path / "fake", graphs, hidden=True)
        with client_of(llm) as client:  # one event loop for all
            alone = client.post(COMPLETION, json={"prompt": "The", "seed": 1}).json()["choices"][0]["text"]
            told = llm.embed(TEXT).vectors[0].tolist()
            found = list[Any]()
            threads = [
                threading.Thread(
                    target=lambda: found.append(client.post(EMBEDDINGS, json={"input": [TEXT] * 20}).json())
                )
                for _ in range(12)
            ]
            for thread in threads:
                thread.start()
            text = client.post(COMPLETION, json={"prompt": "The", "seed": 1}).json()["choices"][0]["text"]
            for thread in threads:
                thread.join(PATIENCE_S)
        assert text == alone
        assert [one["embedding"] for body in found for one in body["data"]] == [told] * 240


@pytest.fixture(scope="module")
def address(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, LLM]]:
    from tests.runtime.server.serving import serving

    bundle, _ = export(
        str(checkpoint),
        tmp_path_factory.mktemp("hidden") / "tiny",
        ExportOptions(scheme="int8", fast=True, with_hidden=True),
    )
    with serving("-m", str(bundle.path), "--threads", "1") as (_, address), LLM.load(bundle.path) as llm:
        yield address, llm


def test_the_openai_client_unchanged(address: tuple[str, LLM]) -> None:
    openai: Any = pytest.importorskip("openai", reason="the openai client is the oracle here, and it is not installed")
    url, llm = address
    told = llm.embed([TEXT, "Once upon a time"], dimensions=16)
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S) as client:
        for more in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
            answer = client.embeddings.create(model="tiny", input=[TEXT, "Once upon a time"], dimensions=16, **more)
            found = [
                np.frombuffer(base64.b64decode(one.embedding), "<f4")
                if isinstance(one.embedding, str)
                else one.embedding
                for one in answer.data
            ]
            np.testing.assert_allclose(found, told.vectors, rtol=1e-5, atol=1e-6)
            assert answer.usage.prompt_tokens == told.prompt_tokens
        with pytest.raises(openai.BadRequestError, match="dimensions: must be between 1 and"):
            client.embeddings.create(model="tiny", input="a", dimensions=100_000)
