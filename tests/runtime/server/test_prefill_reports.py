"""``return_progress``: streams that tell how much of a prompt has been read, as llama-server has it."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgegen.server.app import create_app
from edgegen.server.http.options import ServerOptions
from tests.runtime.models import FakeGraphs, Gate, digest_of, fake_llm
from tests.runtime.saying import TEMPLATE
from tests.runtime.server.material import CHAT, COMPLETION, HELLO, OWN, client_of

BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO, "max_tokens": 3},
    COMPLETION: {"prompt": "a" * 30, "max_tokens": 3},
    "/completion": {"prompt": "a" * 30, "n_predict": 3},
}
ASKED = {"stream": True, "return_progress": True}


class UntilTold:
    """Opens ``gate``, at which a model waits, once the client has been told of progress."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def watched(message: Message) -> None:
            await send(message)
            if self._gate.reached.is_set() and b"prompt_progress" in message.get("body", b""):
                self._gate.opened.set()

        await self._app(scope, receive, watched)


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_tells_how_much_of_the_prompt_has_been_read(tmp_path: Path, path: str) -> None:
    graphs = FakeGraphs(digest_of)
    app = create_app({"model": fake_llm(tmp_path / "fake", graphs, template=TEMPLATE)}, ServerOptions())
    client = TestClient(UntilTold(app, Gate(graphs, at=3)), base_url=OWN)
    told = events(client.post(path, json=BODIES[path] | ASKED))
    found = [one["prompt_progress"] for one in told if "prompt_progress" in one]
    total = found[-1]["total"]
    assert [one["processed"] for one in found] == sorted({one["processed"] for one in found})
    assert found[-1]["processed"] == total > found[0]["processed"]
    assert all(one["cache"] == 0 and one["total"] == total and one["time_ms"] >= 0 for one in found)
    assert all(one.keys() == {"total", "cache", "processed", "time_ms"} for one in found)
    whole = events(client.post(path, json=BODIES[path] | {"stream": True}))
    assert [text_of(one) for one in told if "prompt_progress" not in one] == [text_of(one) for one in whole]
    assert not any(text_of(one) for one in told[: len(found)])  # they are all before the text


def events(response: Any) -> list[dict[str, Any]]:
    """Of llama-server's own streams too, which have no last word."""
    lines = [line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def text_of(event: dict[str, Any]) -> str:
    if "content" in event:
        return event["content"]
    choice = event["choices"][0]
    return choice.get("text") or choice.get("delta", {}).get("content") or ""


def test_of_several_prompts_each_has_its_own(tmp_path: Path) -> None:
    client = client_of({"model": fake_llm(tmp_path / "fake", FakeGraphs(digest_of))})
    body = {"prompt": ["a" * 9, "b" * 40], "max_tokens": 2, **ASKED}
    told = [one for one in events(client.post(COMPLETION, json=body)) if "prompt_progress" in one]
    last = {one["choices"][0]["index"]: one["prompt_progress"] for one in told}
    assert {at: (one["processed"], one["total"]) for at, one in last.items()} == {0: (9, 9), 1: (40, 40)}


def test_what_prefix_caching_had_is_told(tmp_path: Path) -> None:
    client = client_of({"model": fake_llm(tmp_path / "fake", FakeGraphs(digest_of), prefix_cache=None)})
    body = {"prompt": "a" * 30, "max_tokens": 1, **ASKED}
    first, again = (
        next(
            one["prompt_progress"]
            for one in reversed(events(client.post(COMPLETION, json=body)))
            if "prompt_progress" in one
        )
        for _ in range(2)
    )
    assert (first["cache"], first["processed"]) == (0, 30)
    assert again["cache"] > 0


def test_a_whole_answer_has_none(tmp_path: Path) -> None:
    client = client_of({"model": fake_llm(tmp_path / "fake", FakeGraphs(digest_of))})
    answer = client.post(COMPLETION, json={"prompt": "a", "max_tokens": 1, "return_progress": True})
    assert answer.status_code == 200
    assert "prompt_progress" not in json.dumps(answer.json())


def test_openai_s_client_reads_such_a_stream(tmp_path: Path) -> None:
    client = client_of({"model": fake_llm(tmp_path / "fake", FakeGraphs(digest_of), template=TEMPLATE)})
    library: Any = pytest.importorskip("openai")
    openai = library.OpenAI(base_url=f"{OWN}/v1", api_key="none", http_client=client)
    asked = {"model": "model", "messages": HELLO, "max_tokens": 3, "stream": True}
    pieces = [*openai.chat.completions.create(**asked, extra_body={"return_progress": True})]
    assert pieces[0].model_extra["prompt_progress"]["processed"] > 0
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces)
