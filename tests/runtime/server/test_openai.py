"""OpenAI's API: answers whole and streamed are what the model says, and what OpenAI's document says."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen.bundle.bundle import Bundle
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from tests.runtime.models import RandomGraphs, fake_llm
from tests.runtime.server.material import CHAT, COMPLETION, HELLO, OpenAIDocument, client_of, events

BODIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "sampled": {"temperature": 0.8, "seed": 7, "top_p": 0.9},
    "several": {"n": 3, "seed": 1, "temperature": 1.0},
    "stop": {"stop": ["a", "b", "c", "d"], "max_tokens": 200},
    "own options": {"min_p": 0.1, "seed": 3, "repetition_penalty": 1.2, "stop_regex": "[0-9]"},
    "biased": {"logit_bias": {"97": 100, "98": -100}, "presence_penalty": 0.5, "frequency_penalty": -0.5},
}
CHAT_BODIES = BODIES | {
    "logprobs": {"logprobs": True, "top_logprobs": 3},
    "JSON": {"response_format": {"type": "json_object"}, "max_tokens": 20},
    "asks nothing": {"user": "me", "metadata": {"a": "b"}, "store": False, "tool_choice": "none"},
}
TEXT_BODIES = BODIES | {
    "logprobs": {"logprobs": 2},
    "echo": {"echo": True},
    "echo with logprobs": {"echo": True, "logprobs": 2},
    "only echo": {"echo": True, "logprobs": 1, "max_tokens": 0},
    "prompts": {"prompt": ["One", "Two", ""], "n": 2, "temperature": 1.0, "seed": 4},
    "ids": {"prompt": [1, 2, 3], "echo": True, "logprobs": 0},
    "prompts of ids": {"prompt": [[1, 2, 3], [4]], "echo": True, "logprobs": 1},
}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return fake_llm(tmp_path_factory.mktemp("server") / "fake", RandomGraphs())


@pytest.fixture(scope="module")
def client(llm: LLM) -> TestClient:
    return client_of(llm)


@pytest.fixture(scope="module")
def document(test_data: Path) -> OpenAIDocument:
    document = OpenAIDocument(test_data / "suites" / "openai-openapi" / "openapi.yaml")
    choice = ("properties", "choices", "items", "properties")
    document.allow_null("CreateCompletionResponse", *choice, "finish_reason")
    document.allow_null("CreateCompletionResponse", "properties", "usage")
    logprobs = ("logprobs", "anyOf", 0, "properties")
    for name in ("token_logprobs", "top_logprobs"):  # of an echoed prompt, the first is null
        document.allow_null("CreateCompletionResponse", *choice, *logprobs, name, "items")  # pyright: ignore
    return document


@pytest.mark.parametrize("name", CHAT_BODIES)
def test_chat_completions_are_as_documented(client: TestClient, document: OpenAIDocument, name: str) -> None:
    body = {"model": "fake", "messages": HELLO, "max_tokens": 8, **CHAT_BODIES[name]}
    whole = client.post(CHAT, json=body).json()
    document.check("CreateChatCompletionResponse", whole)
    streamed = client.post(CHAT, json=body | {"stream": True, "stream_options": {"include_usage": True}})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    chunks = events(streamed.text)
    for chunk in chunks[:-1]:
        assert chunk["usage"] is None
        document.check("CreateChatCompletionStreamResponse", {k: v for k, v in chunk.items() if k != "usage"})
    document.check("CreateChatCompletionStreamResponse", chunks[-1])
    assert _tokens(chunks[-1]["usage"]) == _tokens(whole["usage"])
    for choice in whole["choices"]:
        pieces = [one for chunk in chunks for one in chunk["choices"] if one["index"] == choice["index"]]
        assert pieces[0]["delta"]["role"] == "assistant"
        assert "".join(one["delta"].get("content", "") for one in pieces) == choice["message"]["content"]
        assert [one["finish_reason"] for one in pieces if one["finish_reason"]] == [choice["finish_reason"]]
        said = [entry for one in pieces if one["logprobs"] for entry in one["logprobs"]["content"]]
        assert said == (choice["logprobs"] or {"content": []})["content"]


@pytest.mark.parametrize("name", TEXT_BODIES)
def test_completions_are_as_documented(client: TestClient, document: OpenAIDocument, name: str) -> None:
    body = {"model": "fake", "prompt": "Once", "max_tokens": 8, **TEXT_BODIES[name]}
    whole = client.post(COMPLETION, json=body).json()
    document.check("CreateCompletionResponse", whole)
    chunks = events(client.post(COMPLETION, json=body | {"stream": True}).text)
    for chunk in chunks:
        document.check("CreateCompletionResponse", chunk)
    assert [choice["index"] for choice in whole["choices"]] == [*range(len(whole["choices"]))]
    for choice in whole["choices"]:
        pieces = [one for chunk in chunks for one in chunk["choices"] if one["index"] == choice["index"]]
        assert "".join(one["text"] for one in pieces) == choice["text"]
        assert pieces[-1]["finish_reason"] == choice["finish_reason"]
        streamed = dict[str, list[Any]]()
        for one in pieces:
            logprobs: dict[str, list[Any]] = one["logprobs"] or {}
            for key, values in logprobs.items():
                streamed.setdefault(key, []).extend(values)
        assert streamed == (choice["logprobs"] or {})


def test_errors_and_models_are_as_documented(client: TestClient, document: OpenAIDocument) -> None:
    document.check("ErrorResponse", client.post(CHAT, json={}).json())
    models = client.get("/v1/models").json()
    document.check("ListModelsResponse", models)
    assert client.get("/v1/models/fake").json() == models["data"][0]
    assert client.get("/v1/models/other").status_code == 404


def test_answers_are_those_of_python(client: TestClient, llm: LLM) -> None:
    body = {"prompt": "Once", "max_tokens": 12, "seed": 5, "temperature": 0.9, "n": 2}
    told = llm.generate("Once", max_new_tokens=12, seed=5, temperature=0.9, num_return_sequences=2)
    choices = client.post(COMPLETION, json=body).json()["choices"]
    assert [choice["text"] for choice in choices] == [choice.text for choice in told.choices]
    spoken = client.post(CHAT, json={"messages": HELLO, "max_tokens": 12}).json()["choices"][0]
    assert spoken["message"]["content"] == llm.chat(HELLO, max_new_tokens=12).text


def test_defaults_of_the_lengths(client: TestClient) -> None:
    """As in OpenAI's API: a completion has 16 tokens, an answer in a chat all that fit."""
    never: dict[str, Any] = {"eos_token_id": []}
    assert client.post(COMPLETION, json={"prompt": "a", **never}).json()["usage"]["completion_tokens"] == 16
    usage = client.post(CHAT, json={"messages": HELLO, "logit_bias": {"10": -1000}, **never}).json()["usage"]
    assert usage["total_tokens"] == 513  # the last one is never fed


def test_echo_scores_the_prompt(client: TestClient, llm: LLM) -> None:
    body = {"prompt": "Once upon", "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
    choice = client.post(COMPLETION, json=body).json()["choices"][0]
    ids = llm.encode("Once upon")
    score = llm.score(ids[:1], ids[1:])
    values = choice["logprobs"]["token_logprobs"]
    assert values[0] is None
    assert values[1:-1] == pytest.approx([entry.logprob for entry in score.logprobs])
    assert len(values) == len(ids) + 1
    assert choice["logprobs"]["text_offset"] == [*range(len(ids) + 1)]
    assert choice["text"].startswith("Once upon")


def test_options_are_checked_where_a_prompt_is_only_echoed(client: TestClient) -> None:
    body = {"prompt": "Once upon", "max_tokens": 0, "echo": True, "logprobs": 1}
    for more in ({"grammar": "root ::= ("}, {"response_format": {"type": "jsn"}}, {"bad_words_ids": [[10**9]]}):
        answer = client.post(COMPLETION, json={**body, **more})
        assert answer.status_code == 400
        assert next(iter(more)) in answer.json()["error"]["message"]


def test_a_prefix_is_cached(int8_bundle: Bundle) -> None:
    client = client_of(LLM.load(int8_bundle.path, options=EngineOptions(threads=1)))
    body = {"prompt": "a long prefix that comes again", "max_tokens": 1}
    assert _cached(client.post(COMPLETION, json=body).json()) == 0
    assert _cached(client.post(COMPLETION, json=body).json()) > 20


def test_the_other_routes(client: TestClient, llm: LLM) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    props = client.get("/props").json()
    assert (props["model"], props["context"], props["chat_template"]) == ("fake", 512, "")
    assert props["note"] is None  # it has no model card
    assert props["parity"]["top1_agreement"] == 0.99
    told = client.post("/tokenize", json={"content": "Hellö"}).json()
    assert told == {"tokens": llm.encode("Hellö"), "count": 6, "max_model_len": 512}
    assert client.post("/detokenize", json={"tokens": told["tokens"]}).json() == {"content": "Hellö"}
    assert client.post("/tokenize", json={"content": ""}).json()["tokens"] == []
    for path, body in (
        ("/tokenize", {"content": 1}),
        ("/tokenize", {"contents": "a"}),
        ("/detokenize", {"tokens": ["a"]}),
        ("/detokenize", {"tokens": [10**6]}),
    ):
        assert client.post(path, json=body).status_code == 400
    metrics = client.get("/metrics").text
    assert 'edgegen_tokens_total{kind="completion",model="fake"}' in metrics
    assert "edgegen_requests_in_progress 0.0" in metrics


def test_several_models(tmp_path: Path) -> None:
    models = {name: fake_llm(tmp_path / name, RandomGraphs(seed)) for seed, name in enumerate(("one", "two"))}
    client = client_of(models)
    for name, llm in models.items():
        answer = client.post(COMPLETION, json={"model": name, "prompt": "a", "max_tokens": 9}).json()
        assert (answer["model"], answer["choices"][0]["text"]) == (name, llm.generate("a", max_new_tokens=9).text)
    assert client.post(COMPLETION, json={"prompt": "a"}).json()["model"] == "one"
    assert client.get("/props?model=two").json()["model"] == "two"


def _tokens(usage: dict[str, Any]) -> tuple[int, int]:
    return usage["prompt_tokens"], usage["completion_tokens"]


def _cached(body: dict[str, Any]) -> int:
    return body["usage"]["prompt_tokens_details"]["cached_tokens"]
