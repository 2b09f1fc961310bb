"""schemathesis reads the server's OpenAPI document and sends what it allows and what it does not."""

import copy
import json
import logging
from collections import Counter
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks as openapi_checks
from starlette.applications import Starlette

from edgegen.server.app import create_app
from edgegen.server.http.options import ServerOptions
from edgegen.server.ollama.prompt import Memory
from edgegen.server.openapi import openapi_document
from tests.runtime.models import VOCAB_SIZE, RandomGraphs, fake_llm
from tests.runtime.server.material import OWN

EXAMPLES = 50
"""Of each kind for each route, right ones and wrong ones."""
MOST_TOKENS = 8

CONTEXT = Memory(text="Once").context
"""Of an earlier answer."""

OWN_CHECKS: Any = checks
OPENAPI_CHECKS: Any = openapi_checks
CHECKS = (
    OWN_CHECKS.not_a_server_error,
    OPENAPI_CHECKS.status_code_conformance,
    OPENAPI_CHECKS.content_type_conformance,
    OPENAPI_CHECKS.response_headers_conformance,
    OPENAPI_CHECKS.response_schema_conformance,
    OPENAPI_CHECKS.negative_data_rejection,
)

pytestmark = pytest.mark.release


def document() -> dict[str, Any]:
    """The server's document, with what only a server knows: its models, their vocabulary, its most tokens."""
    found = copy.deepcopy(openapi_document())
    schemas = found["components"]["schemas"]
    schemas["ModelName"] = {"enum": ["fake"]}
    schemas["AnyTokenId"] = dict(schemas["TokenId"])
    schemas["TokenId"]["maximum"] = VOCAB_SIZE - 1
    for schema in schemas.values():
        if end := schema.get("properties", {}).get("eos_token_id"):  # which the vocabulary need not have
            end["anyOf"] = json.loads(json.dumps(end["anyOf"]).replace("/TokenId", "/AnyTokenId"))
    for name in ("ChatCompletionRequest", "CompletionRequest", "ResponseRequest", "MessageRequest"):
        for limit in ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens"):
            if limit in schemas[name]["properties"]:
                schemas[name]["properties"][limit]["maximum"] = MOST_TOKENS
    for limit in ("num_predict", "max_new_tokens"):
        schemas["OllamaOptions"]["properties"][limit]["maximum"] = MOST_TOKENS
    schemas["OllamaGenerateRequest"]["properties"]["context"] = {"enum": [None, CONTEXT]}
    return found


SCHEMA: Any = schemathesis.openapi.from_dict(document())
OPERATIONS: dict[str, Any] = {
    operation.label: operation for operation in (found.ok() for found in SCHEMA.get_all_operations())
}
REFUSED = {
    *("POST /api/copy", "POST /api/create", "POST /api/push"),
    *("POST /rerank", "POST /reranking", "POST /v1/rerank", "POST /v1/reranking"),
}
"""Routes that do nothing for anyone."""

TAKES_NOTHING = {
    "GET /v1/models",
    "GET /models",
    "GET /models/catalogue",
    "GET /metrics",
    "GET /health",
    "GET /v1/health",
    "GET /slots",
    "GET /lora-adapters",
    "GET /openapi.json",
    "GET /",
    "GET /api/tags",
    "GET /api/ps",
    "GET /api/version",
    *REFUSED,
}
"""There is one request to these only, and none that is wrong."""

NAMES_A_MODEL = {
    "GET /props",
    "GET /v1/models/{model}",
    "POST /models/load",
    "POST /models/unload",
    "POST /api/show",
    "POST /api/pull",
    "DELETE /api/delete",
}
"""There are few requests to these that are right."""

REFUSED_HERE = {
    "POST /models/unload",
    "DELETE /api/delete",
    "POST /v1/embeddings",
    "POST /embeddings",
    "POST /embedding",
    "POST /infill",
    "POST /apply-template",
    "POST /api/embed",
    "POST /api/embeddings",
    *REFUSED,
}
"""Routes that the fake model cannot serve: it stays loaded, and has no hidden states, no chat template and no FIM
tokens."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Starlette:
    llm = fake_llm(tmp_path_factory.mktemp("server") / "fake", RandomGraphs())
    return create_app({"fake": llm}, ServerOptions(max_tokens=MOST_TOKENS))


REQUESTS = [
    pytest.param(label, mode, id=f"{label}-{mode.value}")
    for label in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or label not in TAKES_NOTHING
]


@pytest.mark.parametrize(("label", "mode"), REQUESTS)
def test_the_server_keeps_to_its_document(
    app: Starlette, caplog: pytest.LogCaptureFixture, label: str, mode: GenerationMode
) -> None:
    statuses = Counter[int]()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        if mode is GenerationMode.POSITIVE:
            case.body = with_whole_numbers(case.body)
        response = case.call(app=app, base_url=OWN)
        statuses[response.status_code] += 1
        too_large = response.status_code == 413  # refused unread, which schemathesis takes for no refusal
        judged = [check for check in CHECKS if not (too_large and check is OPENAPI_CHECKS.negative_data_rejection)]
        case.validate_response(response, checks=judged)

    with caplog.at_level(logging.WARNING):
        send()
    assert not [record for record in caplog.records if record.name.startswith("edgegen")]
    if mode is GenerationMode.NEGATIVE:
        assert statuses.total() >= EXAMPLES
        assert all(400 <= status < 500 for status in statuses)
    else:
        assert statuses.total() >= (1 if label in TAKES_NOTHING | NAMES_A_MODEL else EXAMPLES)
        assert label in REFUSED_HERE or statuses[200] >= statuses.total() / 10, statuses


def with_whole_numbers(value: Any) -> Any:
    """2.0 is an integer to JSON Schema, and to no other reader of JSON."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {name: with_whole_numbers(one) for name, one in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [with_whole_numbers(one) for one in cast(list[Any], value)]
    return value
