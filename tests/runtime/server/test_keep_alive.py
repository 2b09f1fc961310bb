"""Streams in which nothing is said yet: their headers at once, keep-alives while the prompt is read or waits."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from edgegen.server.app import create_app
from edgegen.server.http.options import ServerOptions
from edgegen.tokenizer import Tokenizer
from tests.runtime.models import FakeGraphs, Gate, digest_of, fake_llm, fake_runner, write_fake_bundle
from tests.runtime.saying import ASKED, TEMPLATE, saying
from tests.runtime.server.material import CHAT, COMPLETION, HELLO, OWN, events
from tests.runtime.server.messages import MESSAGES, assembled, events_of
from tests.runtime.server.test_running import Exchange
from tests.waiting import PATIENCE_S, until

COMMENT = ": keep-alive\n\n"
PING = 'event: ping\ndata: {"type": "ping"}\n\n'
RESPONSES = "/v1/responses"
SHORT = ServerOptions(keep_alive_seconds=0.002)

BODIES: dict[str, dict[str, Any]] = {
    COMPLETION: {"prompt": "Once", "max_tokens": 6},
    CHAT: {"messages": HELLO, "max_tokens": 6},
    RESPONSES: {"input": "Hello", "max_output_tokens": 6},
    MESSAGES: {"messages": HELLO, "max_tokens": 6},
}


class Opening:
    """Opens ``gate``, at which a model waits, once ``count`` keep-alives have been sent; keeps what was sent before."""

    def __init__(self, app: ASGIApp, gate: Gate, text: str, count: int = 3) -> None:
        self._app, self._gate = app, gate
        self._text, self._left = text.encode(), count
        self.before = list[Message]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def watched(message: Message) -> None:
            await send(message)
            if self._gate.opened.is_set():
                return
            self.before.append(message)
            if self._gate.reached.is_set() and message.get("body") == self._text:
                self._left -= 1
                if not self._left:
                    self._gate.opened.set()

        await self._app(scope, receive, watched)


def slow(llm: LLM, graphs: FakeGraphs, text: str = COMMENT, *, at: int = 1) -> Opening:
    """A server whose model waits at its ``at``-th run until keep-alives were sent."""
    return Opening(create_app({"model": llm}, SHORT), Gate(graphs, at), text)


@pytest.mark.parametrize("path", BODIES)
def test_keep_alives_while_the_prompt_is_read(tmp_path: Path, path: str) -> None:
    """The headers are sent before; without the keep-alives the stream is that of a fast model."""
    graphs, text = FakeGraphs(digest_of), PING if path == MESSAGES else COMMENT
    llm = fake_llm(tmp_path / "fake", graphs, template=TEMPLATE)
    body = BODIES[path] | {"stream": True}
    fast = TestClient(create_app({"model": llm}, ServerOptions()), base_url=OWN).post(path, json=body)
    opening = slow(llm, graphs, text)
    response = TestClient(opening, base_url=OWN).post(path, json=body)
    assert opening.before[0]["type"] == "http.response.start"
    assert opening.before[0]["status"] == response.status_code == 200
    assert all(message["body"].endswith(b"\n\n") for message in opening.before[1:])  # between whole events
    assert response.text.count(text) >= 3
    names = [line for line in response.text.split("\n") if line.startswith("event: ") and line != "event: ping"]
    assert names == [line for line in fast.text.split("\n") if line.startswith("event: ") and line != "event: ping"]
    if path == MESSAGES:
        found = [assembled(events_of(one)) for one in (fast, response)]
        for message in found:
            del message["id"]
        assert found[0] == found[1]
    elif path != RESPONSES:
        texts = [events(one.replace(COMMENT, "")) for one in (fast.text, response.text)]
        assert [one["choices"] for one in texts[0]] == [one["choices"] for one in texts[1]]


def test_keep_alives_between_two_tokens(tmp_path: Path) -> None:
    graphs = FakeGraphs(digest_of)
    opening = slow(fake_llm(tmp_path / "fake", graphs), graphs, at=4)
    response = TestClient(opening, base_url=OWN).post(COMPLETION, json=BODIES[COMPLETION] | {"stream": True})
    begun, _, rest = response.text.rpartition(COMMENT)
    assert begun.replace(COMMENT, "").startswith("data: ")
    assert len(events(response.text.replace(COMMENT, ""))) > len(rest.split("\n\n")) - 2 > 0


def test_keep_alives_while_a_request_waits_for_another(tmp_path: Path) -> None:
    """There is room for one; ollama's lines have no keep-alive."""
    bundle, graphs = write_fake_bundle(tmp_path / "fake"), FakeGraphs(digest_of)
    tokenizer = Tokenizer.from_file(bundle.file("tokenizer.json"))
    llm = LLM(bundle, tokenizer, fake_runner(graphs), EngineOptions(prefix_cache=0, max_batch_size=1))
    gate = Gate(graphs, 1)
    app = create_app({"model": llm}, SHORT, running=1)
    body = BODIES[COMPLETION] | {"stream": True}
    lines = {"model": "model", "prompt": "Once", "raw": True, "options": {"num_predict": 6}}

    async def ask() -> tuple[Exchange, Exchange]:
        first, second = Exchange(app, lines, "/api/generate"), Exchange(app, body)
        running = [asyncio.ensure_future(first.run())]
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        running.append(asyncio.ensure_future(second.run()))
        assert await asyncio.to_thread(until, lambda: len(second.sent) > 4)
        assert [message["type"] for message in first.sent] == ["http.response.start"]
        gate.opened.set()
        await asyncio.gather(*running)
        return first, second

    first, second = asyncio.run(ask())
    assert [message["body"] for message in second.sent[1:5]] == [COMMENT.encode()] * 4
    assert events(b"".join(message["body"] for message in second.sent[1:]).decode().replace(COMMENT, ""))
    said = b"".join(message["body"] for message in first.sent[1:]).splitlines()
    assert json.loads(said[-1])["done"]


def test_a_prompts_error_has_its_status(tmp_path: Path) -> None:
    client = TestClient(create_app({"model": fake_llm(tmp_path, FakeGraphs(digest_of))}, SHORT), base_url=OWN)
    response = client.post(COMPLETION, json={"prompt": "a" * 600, "stream": True})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_the_openai_client_reads_over_them(tmp_path: Path) -> None:
    openai: Any = pytest.importorskip("openai", reason="the openai client is the oracle here, and it is not installed")
    llm, graphs = saying(tmp_path / "bundle", "It rains.")

    def client() -> Any:
        http = TestClient(slow(llm, graphs), base_url=OWN)
        return openai.OpenAI(http_client=http, base_url=f"{OWN}/v1", api_key="none", max_retries=0)

    chunks = client().chat.completions.create(model="model", messages=ASKED, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "It rains."
    with client().responses.stream(model="model", input="Weather?") as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == "It rains."
    assert kinds[-1] == "response.completed"
    chunks = client().completions.create(model="model", prompt="a<assistant>", stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "It rains."


def test_the_anthropic_client_reads_over_them(tmp_path: Path) -> None:
    anthropic: Any = pytest.importorskip("anthropic", reason="the anthropic client is the oracle here")
    llm, graphs = saying(tmp_path / "bundle", "It rains.")
    http = TestClient(slow(llm, graphs, PING), base_url=OWN)
    client = anthropic.Anthropic(http_client=http, base_url=OWN, api_key="none", max_retries=0)
    with client.messages.stream(model="model", max_tokens=400, messages=ASKED) as stream:
        assert "".join(stream.text_stream) == "It rains."
        assert stream.get_final_message().stop_reason == "end_turn"
