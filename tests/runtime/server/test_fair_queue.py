"""A client's long prompt, or its many prompts, do not hold up another client; no client goes before others unasked."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen.engine.engine_thread import EngineThread
from edgegen.engine.sequence import SequenceGroup
from edgegen.server.http.options import ServerOptions
from tests.runtime.models import FakeGraphs, RandomGraphs, fake_llm
from tests.runtime.server.material import CHAT, COMPLETION, HELLO, client_of

ENOUGH = 60.0
"""Seconds after which what is waited for will not come."""

RUNS = 12
"""Runs of the model until a prompt of one chunk is answered with two tokens, beside any other request."""


class Gate:
    """Lets the model run when it is told to, and knows how many prompts the engine was given."""

    def __init__(self, graphs: FakeGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
        self._permits, self._submitted = Semaphore(0), Semaphore(0)
        self._open = Event()
        graphs.before_run = self._wait
        submit = EngineThread.submit

        def submit_and_tell(thread: EngineThread, group: SequenceGroup) -> None:
            submit(thread, group)
            self._submitted.release()

        monkeypatch.setattr(EngineThread, "submit", submit_and_tell)

    def _wait(self) -> None:
        if not self._open.is_set():
            assert self._permits.acquire(timeout=ENOUGH)

    def wait_for_prompts(self, count: int) -> None:
        for _ in range(count):
            assert self._submitted.acquire(timeout=ENOUGH)

    def let_run(self, count: int) -> None:
        for _ in range(count):
            self._permits.release()

    def open(self) -> None:
        """From now on the model runs freely."""
        self._open.set()
        self.let_run(1)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def post(threads: ThreadPoolExecutor, client: TestClient, path: str, body: dict[str, Any]) -> Future[Any]:
    return threads.submit(lambda: client.post(path, json=body))


BIG: dict[str, tuple[str, dict[str, Any], int]] = {
    "a long prompt": (COMPLETION, {"prompt": "a" * 1500, "max_tokens": 1}, 1),
    "many prompts": (COMPLETION, {"prompt": ["abc"] * 60, "max_tokens": 40}, 60),
    "many prompts, many answers": (COMPLETION, {"prompt": ["abc"] * 12, "n": 12, "max_tokens": 20}, 12),
    "many answers": (CHAT, {"messages": HELLO, "n": 40, "max_tokens": 60}, 1),
    "many prompts of llama-server": ("/completion", {"prompt": ["abc"] * 60, "n_predict": 40}, 60),
}


@pytest.mark.parametrize("name", BIG)
def test_a_short_request_is_answered_beside_a_big_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: ThreadPoolExecutor, name: str
) -> None:
    graphs, (path, body, prompts) = RandomGraphs(), BIG[name]
    gate = Gate(graphs, monkeypatch)
    with client_of(fake_llm(tmp_path / "fake", graphs, max_context=2048)) as client:
        big = post(threads, client, path, body)
        try:
            gate.wait_for_prompts(prompts)
            gate.let_run(3)
            short = post(threads, client, COMPLETION, {"prompt": "Hello", "max_tokens": 2})
            gate.wait_for_prompts(1)
            gate.let_run(RUNS)
            assert short.result(ENOUGH).status_code == 200
            assert not big.done()
        finally:
            gate.open()
        assert big.result(ENOUGH).status_code == 200


PATHS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO},
    COMPLETION: {"prompt": "a"},
    "/v1/responses": {"input": "a"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 1},
    "/completion": {"prompt": "a", "n_predict": 1},
    "/api/chat": {"messages": HELLO, "stream": False},
    "/api/generate": {"prompt": "a", "stream": False},
}


def with_priority(path: str, priority: Any) -> dict[str, Any]:
    return PATHS[path] | ({"options": {"priority": priority}} if path.startswith("/api/") else {"priority": priority})


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return client_of(fake_llm(tmp_path_factory.mktemp("server") / "fake", RandomGraphs()), ServerOptions(max_tokens=2))


@pytest.mark.parametrize("path", PATHS)
def test_nobody_goes_before_others(client: TestClient, path: str) -> None:
    for priority in (-1, -5, -(2**31)):
        response = client.post(path, json=with_priority(path, priority))
        assert response.status_code == 400, response.text
        assert f"priority: 0 or more expected, found {priority}" in response.text
        assert "--allow-priority" in response.text


@pytest.mark.parametrize("path", PATHS)
def test_anybody_may_let_others_go_first(client: TestClient, path: str) -> None:
    for priority in (0, 7):
        assert client.post(path, json=with_priority(path, priority)).status_code == 200


def test_a_server_may_allow_it(tmp_path: Path) -> None:
    options = ServerOptions(allow_priority=True, max_tokens=2)
    client = client_of(fake_llm(tmp_path / "fake", RandomGraphs()), options)
    assert client.post(COMPLETION, json=with_priority(COMPLETION, -5)).status_code == 200
