"""Whole numbers written as floats (``8192.0``), as clients in languages without a type for them write them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen.batch.input import InputLine
from edgegen.batch.line import parse_line
from edgegen.options.generation import GenerationOptions
from edgegen.server.wire.parameters import Parameters
from edgegen.strict_json.schema import INTEGER, any_of, array_of, const, map_of, object_of
from tests.runtime.models import RandomGraphs, fake_llm
from tests.runtime.server.material import HELLO, client_of

SCHEMA = {"type": "object", "properties": {"a": {"type": "array", "minItems": 1.0, "maxItems": 2.0}}}
BODIES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 2.0, "seed": 3.0, "top_k": 5.0, "n": 1.0}),
    "any seed": ("/v1/completions", {"prompt": "a", "seed": -1.0, "n_predict": 2.0, "min_tokens": 1.0, "top_k": 1.0}),
    "a schema": (
        "/v1/chat/completions",
        {"messages": HELLO, "max_tokens": 2.0, "response_format": {"type": "json_schema", "json_schema": {
            "name": "a", "schema": SCHEMA}}},
    ),
    "completion": ("/v1/completions", {"prompt": [1.0, 2.0], "max_tokens": 2.0, "logprobs": 1.0,
                                       "stop_token_ids": [255.0], "sequence_bias": [[[3.0], -1]]}),
    "responses": ("/v1/responses", {"input": "a", "max_output_tokens": 16.0, "top_logprobs": 0.0}),
    "messages": ("/v1/messages", {"messages": HELLO, "max_tokens": 2.0, "top_k": 1.0}),
    "ollama": ("/api/chat", {"messages": HELLO, "stream": False, "options": {"num_ctx": 8192.0, "num_predict": 2.0,
                                                                            "seed": 1.0, "repeat_last_n": -1.0}}),
    "ollama, a prompt": ("/api/generate", {"prompt": "a", "stream": False, "options": {"num_predict": 2.0}}),
    "llama-server": ("/completion", {"prompt": ["a", 5.0], "n_predict": 2.0, "n_probs": 1.0, "id_slot": -1.0,
                                     "logit_bias": [[97.0, -1.0]]}),
    "embeddings": ("/v1/embeddings", {"input": [[1.0, 2.0]], "dimensions": 2.0}),
    "text of ids": ("/detokenize", {"tokens": [72.0, 105.0]}),
}  # fmt: skip
WRONG: dict[str, tuple[str, Mapping[str, Any], str]] = {
    "no whole number": ("/v1/completions", {"prompt": "a", "top_k": 5.5}, "top_k: "),
    "nested": ("/api/chat", {"messages": HELLO, "options": {"num_ctx": 0.5}}, "options.num_ctx: a whole number"),
    "beyond its limit": ("/v1/completions", {"prompt": "a", "top_logprobs": 99.0}, "top_logprobs: "),
    "beyond any count": ("/api/chat", {"messages": HELLO, "options": {"num_ctx": 1e300}}, "found 1e+300"),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    folder: Path = tmp_path_factory.mktemp("whole") / "model"
    return client_of({"model": fake_llm(folder, RandomGraphs(), hidden=True)})


@pytest.mark.parametrize("name", BODIES)
def test_are_taken_on_every_wire_and_mean_the_same(client: TestClient, name: str) -> None:
    path, body = BODIES[name]
    written, meant = (client.post(path, json=one) for one in (body, _without_points(body)))
    assert written.status_code == meant.status_code == 200, written.text
    assert _said(written.json()) == _said(meant.json())


@pytest.mark.parametrize("name", WRONG)
def test_others_are_refused(client: TestClient, name: str) -> None:
    path, body, said = WRONG[name]
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert said in answer.text


def test_are_taken_in_a_batch_line() -> None:
    own = b'{"prompt": [1.0, 2.0], "max_new_tokens": 4.0, "top_k": 3.0, "stop_token_ids": [7.0]}'
    line = parse_line(InputLine(1, 0, own), GenerationOptions())
    assert line.problems == ()
    assert line.prompt == [1, 2]
    assert (line.options.max_new_tokens, line.options.top_k, line.options.stop_token_ids) == (4, 3, (7,))
    body = b'{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "logprobs": 2.0}}'
    line = parse_line(InputLine(1, 0, body), GenerationOptions())
    assert (line.problems, line.options.top_logprobs) == ((), 2)


def test_what_a_schema_leaves_free_stays_as_it_is() -> None:
    parameters = Parameters(
        "/here",
        object_of(
            {"n": any_of(INTEGER, const("all")), "ids": array_of(INTEGER), "by_name": map_of(INTEGER)},
            {"free": {}, "real": {"type": "number"}, "either": any_of(object_of({"m": INTEGER}), array_of(INTEGER))},
        ),
    )
    given = {"n": 4.0, "ids": [1.0, 2], "by_name": {"a": 3.0}, "free": {"n": 4.0}, "real": 1.0, "either": {"m": 5.0}}
    found = parameters.read(given)
    assert found == given
    assert repr(found["n"]) == "4"
    assert repr(found["ids"]) == "[1, 2]"
    assert repr(found["by_name"]) == "{'a': 3}"
    assert (repr(found["free"]), repr(found["real"]), repr(found["either"])) == ("{'n': 4.0}", "1.0", "{'m': 5}")
    assert repr(parameters.read({**given, "either": [6.0]})["either"]) == "[6]"
    assert given["n"] == 4.0
    assert type(given["n"]) is float  # the body is the caller's


def _without_points(value: Any) -> Any:
    if isinstance(value, float):
        return int(value)
    if isinstance(value, Mapping):
        return {name: _without_points(one) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return [*map(_without_points, value)] if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _said(answer: dict[str, Any]) -> Any:
    """An answer without what is new in each."""
    kept = ("choices", "output", "content", "message", "response", "data", "completion_probabilities")
    found = {name: answer[name] for name in kept if name in answer}
    for item in found.get("output", []):
        item.pop("id")
    return found
