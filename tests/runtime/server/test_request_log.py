"""The server's log: a line for each request, as text or JSON, without prompts, and never in the way."""

import asyncio
import json
import logging
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgegen.server.app import create_app
from edgegen.server.http.log import LogFormat, LogLevel, log_to
from edgegen.server.http.options import ServerOptions
from tests.docs.markdown import ROOT, blocks
from tests.runtime.models import FailAt, FakeGraphs, Gate, RandomGraphs, digest_of, fake_llm
from tests.runtime.server.material import CHAT, COMPLETION, client_of, fake_client
from tests.runtime.server.test_running import ENDLESS, Exchange
from tests.waiting import PATIENCE_S

Read = Callable[[], str]

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
FIGURES = r"( model=\S+)?( in=\d+)?( cached=\d+)?( out=\d+)? seconds=[\d.]+( first=[\d.]+)?( code=\S+)?( param=\S+)?"
LINE = rf"{TIME} (INFO|DEBUG) [A-Z]+ /\S* \d{{3}}{FIGURES}"


@contextmanager
def logged(level: LogLevel = "info", form: LogFormat = "text") -> Generator[Read]:
    """The next line of the log, for which it waits."""
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="ascii", newline="\n") as lines, log_to(writing, level, form):
        yield lines.readline
    os.close(writing)


def objects(read: Read) -> dict[str, Any]:
    return json.loads(read())


def test_a_line_of_text(tmp_path: Path) -> None:
    client = fake_client(tmp_path)
    with logged() as read:
        answer = client.post(COMPLETION, json={"prompt": ["Once", "Two"], "max_tokens": 5, "eos_token_id": []})
        line = read()
    used = answer.json()["usage"]
    assert used["completion_tokens"] == 10
    figures = rf"model=fake in={used['prompt_tokens']} cached=0 out=10 seconds=[\d.]+ first=[\d.]+"
    assert re.fullmatch(rf"{TIME} INFO POST {COMPLETION} 200 {figures}\n", line)
    assert re.fullmatch(LINE, line.strip())


def test_the_lines_of_the_page_are_such_lines() -> None:
    [block] = [one for one in blocks(ROOT / "docs" / "serving.md") if one.kind == "log"]
    for line in block.code.split("\n"):
        assert re.fullmatch(LINE, line)


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        (COMPLETION, {"prompt": "a secret", "temperature": "hot"}, "param=temperature"),
        (COMPLETION, {"prompt": "a secret", "a secret": 1}, "code=unknown_parameter"),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}, r"param=messages\S*"),
        (COMPLETION, {"prompt": "a secret", "model": "other"}, "code=model_not_found param=model"),
        ("/v1/messages", {"messages": [], "max_tokens": 1}, r"param=messages\S*"),
        ("/tokenize", {"content": 5}, "param=content"),
        ("/nothing", {}, "code=unknown_path"),
    ],
)
def test_a_refusal_is_logged_with_its_code_and_parameter_and_nothing_of_the_prompt(
    tmp_path: Path, path: str, body: dict[str, Any], why: str
) -> None:
    client = fake_client(tmp_path)
    with logged() as read:
        client.post(path, json=body)
        line = read()
    assert re.fullmatch(rf"{TIME} INFO POST {path} 40[04]( model=\S+)? seconds=[\d.]+ ?{why}\n", line), line
    assert "secret" not in line


def test_the_object_of_a_stream(tmp_path: Path) -> None:
    """The second request finds the prefix of the first."""
    client = client_of({"a name": fake_llm(tmp_path, RandomGraphs(), prefix_cache=1 << 20)})
    body = {"messages": [{"role": "user", "content": "Hello " * 20}], "max_tokens": 5, "eos_token_id": []}
    asked = body | {"stream": True, "stream_options": {"include_usage": True}}
    with logged(form="json") as read:
        client.post(CHAT, json=body)
        stream = client.post(CHAT, json=asked)
        read()
        found = objects(read)
    used = json.loads(stream.text.split("\n\n")[-3].removeprefix("data: "))["usage"]
    assert used["prompt_tokens_details"]["cached_tokens"] > 0
    assert re.fullmatch(TIME, found.pop("time"))
    assert 0 <= found.pop("first_token_seconds") <= found.pop("seconds")
    assert found == {
        "level": "info",
        "method": "POST",
        "path": CHAT,
        "status": 200,
        "model": "a name",
        "prompt_tokens": used["prompt_tokens"],
        "cached_tokens": used["prompt_tokens_details"]["cached_tokens"],
        "completion_tokens": 5,
    }


def test_embeddings(tmp_path: Path) -> None:
    client = client_of(fake_llm(tmp_path, RandomGraphs(), hidden=True))
    with logged(form="json") as read:
        used = client.post("/v1/embeddings", json={"input": "Once"}).json()["usage"]
        found = objects(read)
    assert (found["model"], found["prompt_tokens"]) == ("fake", used["prompt_tokens"])
    assert found["status"] == 200
    assert "completion_tokens" not in found


def test_refusals_have_their_status_and_no_line_of_a_client_s_own(tmp_path: Path) -> None:
    client = fake_client(tmp_path)
    with logged() as read:
        client.post(COMPLETION, json={"prompt": "a", "model": "other"})
        client.post(COMPLETION, json={"prompt": "a", "temperature": -1})
        client.get("/no%0A2026%20INFO/wh\u00e9re?secret=1")
        said = [re.sub(rf"{TIME} INFO (.*) seconds=[\d.]+(.*)\n", r"\1\2", read()) for _ in range(3)]
    assert said == [
        f"POST {COMPLETION} 404 code=model_not_found param=model",
        f"POST {COMPLETION} 400 model=fake param=temperature",
        "GET /no%0A2026%20INFO/wh%C3%A9re 404 code=unknown_path",
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_499(tmp_path: Path, stream: bool) -> None:
    """Also amid a stream, which has begun with 200."""
    graphs = FakeGraphs(digest_of)
    gate = Gate(graphs, 4)
    app = create_app({"fake": fake_llm(tmp_path, graphs)}, ServerOptions())

    async def leave() -> None:
        exchange = Exchange(app, ENDLESS | {"stream": stream})
        running = asyncio.ensure_future(exchange.run())
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        exchange.left.set()
        await running

    with logged(form="json") as read:
        asyncio.run(leave())
        found = objects(read)
    assert (found["status"], found["model"]) == (499, "fake")
    assert found["prompt_tokens"] > 0
    assert found["completion_tokens"] <= 4
    assert "cached_tokens" not in found


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_has_its_status_and_its_cause(tmp_path: Path, stream: bool) -> None:
    graphs = RandomGraphs()
    client = fake_client(tmp_path, graphs=graphs)
    graphs.before_run = FailAt(3, RuntimeError("what went wrong"))
    with logged(form="json") as read:
        client.post(COMPLETION, json={"prompt": "a", "max_tokens": 9, "eos_token_id": [], "stream": stream})
        lines = [objects(read)]
        while "status" not in lines[-1]:
            lines.append(objects(read))
    assert [(one["level"], one["message"]) for one in lines[:-1]] == [("error", "a request failed")]
    assert "RuntimeError: what went wrong" in lines[0]["exception"]
    assert (lines[-1]["level"], lines[-1]["status"]) == ("info", 500)


def test_no_level_tells_prompts_or_answers(tmp_path: Path) -> None:
    client = fake_client(tmp_path, graphs=FakeGraphs(digest_of))
    body: dict[str, Any] = {"prompt": "a-secret-word", "max_tokens": 9, "eos_token_id": []}
    with logged("debug") as read:
        text = client.post(COMPLETION, json=body).json()["choices"][0]["text"]
        client.post(COMPLETION, json=body | {"a-secret-name": 1})
        client.get("/health")
        said = read() + read() + read()
    assert said.count("\n") == 3
    assert " DEBUG GET /health 200 " in said
    assert "secret" not in said
    assert text
    assert text not in said


def test_what_anyone_may_ask_again_and_again_is_logged_on_debug_only(tmp_path: Path) -> None:
    client = fake_client(tmp_path, ServerOptions(keys=("key",)))

    def ask() -> None:
        for path in ("/", "/health", "/v1/models", "/nowhere"):  # the last two need a key
            client.get(path)
        for path in ("/metrics", "/v1/models"):
            client.get(path, headers={"x-api-key": "key"})

    with logged() as read:
        ask()
        assert " INFO GET /v1/models 200 " in read()
    with logged("debug") as read:
        ask()
        said = [read().split()[1:5] for _ in range(6)]
    assert said == [
        ["DEBUG", "GET", "/", "200"],
        ["DEBUG", "GET", "/health", "200"],
        ["DEBUG", "GET", "/v1/models", "401"],
        ["DEBUG", "GET", "/nowhere", "401"],
        ["DEBUG", "GET", "/metrics", "200"],
        ["INFO", "GET", "/v1/models", "200"],
    ]


def test_a_higher_level_has_no_requests(tmp_path: Path) -> None:
    client = fake_client(tmp_path)
    with logged("warning") as read:
        client.post(COMPLETION, json={"prompt": "a", "max_tokens": 1})
        logging.getLogger("edgegen.server").warning("told: %s", "é\nb")
        assert re.fullmatch(rf"{TIME} WARNING told: \\xe9\n", read())


def test_a_log_that_nobody_reads_stops_nothing() -> None:
    reading, writing = os.pipe()
    log = logging.getLogger("edgegen.server")
    with log_to(writing, "info", "text"):
        for _ in range(3000):
            log.info("x" * 100)
        os.close(reading)
    os.close(writing)


def test_the_loggers_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    loggers = [logging.getLogger(name) for name in ("edgegen", "uvicorn", "asyncio")]
    for one in loggers:
        monkeypatch.setattr(one, "propagate", True)
    before = [(one.level, one.propagate, one.handlers[:]) for one in loggers]
    with logged("debug"):
        assert loggers[0].level == logging.DEBUG
        assert not any(one.propagate for one in loggers)
    assert [(one.level, one.propagate, one.handlers) for one in loggers] == before
