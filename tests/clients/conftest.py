"""One server process for the clients, with two models: a random one that calls tools, and the embedded one."""

import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.clients.asked import MODELS
from tests.clients.model import NAME, write_bundle
from tests.runtime.server.serving import serving
from tests.waiting import PATIENCE_S

Ask = Callable[..., dict[str, Any]]
"""The assistant's message to a body of ``/v1/chat/completions``, greedily, and without any client."""


@pytest.fixture(scope="session")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """That of OpenAI's API."""
    bundle = write_bundle(tmp_path_factory.mktemp("clients"))
    arguments = ("-m", str(bundle.path), "-m", "stories", "--no-store", "--threads", "1")
    with serving(*arguments) as (_, address):
        yield f"{address}/v1"


@pytest.fixture(params=MODELS)
def any_model(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def ask(base_url: str) -> Ask:
    def ask(messages: list[dict[str, Any]], *, model: str = NAME, **more: Any) -> dict[str, Any]:
        connection = HTTPConnection(urlsplit(base_url).netloc, timeout=PATIENCE_S)
        body = {"model": model, "messages": messages, "temperature": 0, **more}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        assert response.status == 200, answer
        return answer["choices"][0]["message"]

    return ask
