"""The comparison of servers over a fake one: load, times, percentiles, failures."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from bench.compare.environments import ROOT
from bench.serve.__main__ import Plan, measure, measure_mixed
from bench.serve.load import WORDS, Answer, Load, LoadError, run_load, timed
from bench.serve.mixed import Mixed, MixedMeasured, MixedTimes, mixed_table, run_mixed
from bench.serve.report import Measured, percentile, table
from bench.serve.servers import Machine, Server, ServerError, edgegen, llama_cpp_python, llama_server
from tests.runtime.server.sockets import on_socket

pytestmark = pytest.mark.slow

LOAD = Load(clients=3, requests=2, tokens=4, words=5)


def event(text: str, reason: str | None = None) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'text': text, 'finish_reason': reason}]})}"


def times(*lines: str) -> Answer:
    """Of lines that come a second apart, the first of them a second after the request."""

    async def read() -> Answer:
        async def one_by_one() -> AsyncIterator[str]:
            for line in lines:
                yield line

        return await timed(one_by_one(), 10.0, (float(second) for second in count(11)).__next__)

    return asyncio.run(read())


def test_times_are_of_pieces_of_text() -> None:
    """And not of empty lines, comments, chunks without text, the end."""
    answer = times(": ping", event(""), event("a"), "", event("b"), event("", "length"), "data: [DONE]")
    assert answer == Answer(first=3.0, gaps=(2.0,))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([event("a", "stop")], "an answer ended after 1 pieces of text with finish_reason 'stop'"),
        ([event("a")], "with finish_reason None"),
        ([event("", "length")], "an answer has no text"),
        (['data: {"error": {"message": "out of memory"}}'], "out of memory"),
    ],
)
def test_answers_that_are_none(lines: list[str], said: str) -> None:
    with pytest.raises(LoadError, match=said):
        times(*lines)


def test_prompts_are_the_same_for_each_server_and_begin_differently() -> None:
    prompts = LOAD.prompts(1)
    assert prompts == LOAD.prompts(1) != LOAD.prompts(2)
    assert [len(texts) for texts in prompts] == [2, 2, 2]
    texts = [text.split() for of_client in prompts for text in of_client]
    assert {len(words) for words in texts} == {5}
    assert len({tuple(words[:2]) for words in texts}) == 6
    assert {word for words in texts for word in words} <= {*WORDS}


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(1, 201)]
    assert [percentile(values, at) for at in (50, 99, 100)] == [100, 198, 200]
    assert percentile([3.0], 99) == 3


def test_the_table_is_ordered_by_clients() -> None:
    answers = [Answer(0.1, (0.02, 0.04)), Answer(0.3, (0.06, 0.01))]
    rows = [
        Measured("b", 4, answers, [10.0, 30.0, 20.0]),
        Measured("a", 1, failure="no | such\nfile"),
        Measured("c", 4, answers, [1.0]),
    ]
    head, _, *lines = table(rows).splitlines()
    assert (
        head == "| clients | server | first token p50, ms | p99 | between tokens p50, ms | p99 | longest | tokens/s |"
    )
    assert lines == [
        "| 1 | a | no / such file | – | – | – | – | – |",
        "| 4 | b | 100.0 | 300.0 | 20.0 | 60.0 | 60.0 | 20 |",
        "| 4 | c | 100.0 | 300.0 | 20.0 | 60.0 | 60.0 | 1 |",
    ]


class FakeServer:
    """Answers with as many tokens as are asked for, and remembers who asked what, and how many at a time."""

    def __init__(self) -> None:
        self.bodies = list[dict[str, Any]]()
        self.now = self.most = 0
        self.fails = False
        self.fails_on: int | None = None  # words of a prompt

    async def complete(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append(body)
        if self.fails or len(body["prompt"].split()) == self.fails_on:
            return PlainTextResponse("out of memory", 500)

        async def answer() -> AsyncIterator[str]:
            self.now += 1
            self.most = max(self.most, self.now)
            for left in reversed(range(body["max_tokens"])):
                await asyncio.sleep(0)
                yield event("x", None if left else "length") + "\r\n\r\n"
            yield "data: [DONE]\r\n\r\n"
            self.now -= 1

        return StreamingResponse(answer(), media_type="text/event-stream")

    async def models(self, request: Request) -> Response:
        return JSONResponse({"data": []})


@pytest.fixture
def fake() -> FakeServer:
    return FakeServer()


@pytest.fixture
def url(fake: FakeServer) -> Iterator[str]:
    routes = [Route("/v1/completions", fake.complete, methods=["POST"]), Route("/v1/models", fake.models)]
    with on_socket(Starlette(routes=routes)) as (host, port):
        yield f"http://{host}:{port}"


def test_a_load_is_all_prompts_by_so_many_clients(fake: FakeServer, url: str) -> None:
    prompts = LOAD.prompts(0)
    answers, seconds = asyncio.run(run_load(url, LOAD, prompts, {"ignore_eos": True}))
    assert [len(answer.gaps) for answer in answers] == [3] * 6
    assert 0 < max(answer.first + sum(answer.gaps) for answer in answers) < seconds
    assert 1 <= fake.most <= 3
    assert {body["prompt"] for body in fake.bodies} == {text for texts in prompts for text in texts}
    for body in fake.bodies:
        asked = {name: body[name] for name in ("max_tokens", "temperature", "stream", "ignore_eos")}
        assert asked == {"max_tokens": 4, "temperature": 0, "stream": True, "ignore_eos": True}


MIXED = Mixed(words=500, streams=2, chat_words=5, tokens=3, stream_tokens=6)


def test_a_mixed_load_is_a_long_prompt_beside_streams_and_chats(fake: FakeServer, url: str) -> None:
    times = asyncio.run(run_mixed(url, MIXED, 0, {"ignore_eos": True}))
    assert len(times.long.gaps) == len(times.alone.gaps) == 2
    assert times.chats
    assert len(times.streams) >= 2
    assert {len(answer.gaps) for answer in times.chats} == {2}
    assert {len(answer.gaps) for answer in times.streams} == {5}
    asked = [(len(body["prompt"].split()), body["max_tokens"]) for body in fake.bodies]
    assert asked[:3] == [(5, 3), (5, 6), (5, 6)]  # the chat alone, the streams, and then the long prompt
    assert asked.count((500, 3)) == 1
    assert set(asked) == {(5, 3), (5, 6), (500, 3)}
    assert len({body["prompt"] for body in fake.bodies}) == len(fake.bodies)
    assert all(body["ignore_eos"] for body in fake.bodies)


def test_a_mixed_load_that_is_refused_is_an_error(fake: FakeServer, url: str) -> None:
    fake.fails_on = 500
    with pytest.raises(LoadError, match="status 500: out of memory"):
        asyncio.run(run_mixed(url, MIXED, 0, {}))


def test_the_table_of_a_mixed_load() -> None:
    one = MixedTimes(
        Answer(0.01, ()), [Answer(0.02, ()), Answer(0.08, ())], [Answer(1.0, (0.005, 0.009))], Answer(4.0, ())
    )
    two = replace(one, alone=Answer(0.03, ()), long=Answer(6.0, ()))
    rows = [MixedMeasured("a", 1000, [one, two]), MixedMeasured("b", 1000, failure="no such file")]
    assert mixed_table(rows).splitlines()[2:] == [
        "| a | 20.0 | 20.0 | 80.0 | 5.0 | 9.0 | 5.00 | 200 |",
        "| b | no such file | – | – | – | – | – | – |",
    ]


def test_a_request_that_is_refused_is_an_error(fake: FakeServer, url: str) -> None:
    fake.fails = True
    with pytest.raises(LoadError, match="status 500: out of memory"):
        asyncio.run(run_load(url, LOAD, LOAD.prompts(0), {}))


def test_a_server_that_is_away_is_an_error() -> None:
    with pytest.raises(LoadError, match="Connect"):
        asyncio.run(run_load("http://127.0.0.1:9", LOAD, LOAD.prompts(0), {}))


SERVE = """
import sys
from pathlib import Path
from starlette.applications import Starlette
from starlette.routing import Route
import uvicorn
from tests.bench.test_serve import FakeServer
fake = FakeServer()
routes = [Route("/v1/completions", fake.complete, methods=["POST"]), Route("/v1/models", fake.models)]
uvicorn.run(Starlette(routes=routes), host=sys.argv[-3], port=int(sys.argv[-1]), log_level="warning")
"""


def test_servers_are_measured_in_turns_and_one_that_fails_is_told(tmp_path: Path) -> None:
    works = Server("works", (sys.executable, "-c", SERVE))
    broken = Server("broken", (sys.executable, "-c", "print('loading'); raise SystemExit('no such model')"))
    rows = measure([works, broken], Plan(clients=(1, 2), rounds=2, requests=3, tokens=4, words=6), tmp_path)
    assert [(row.server, row.clients) for row in rows] == [("works", 1), ("works", 2), ("broken", 1), ("broken", 2)]
    assert [len(row.answers) for row in rows] == [6, 12, 0, 0]
    assert [len(row.throughputs) for row in rows] == [2, 2, 0, 0]
    assert [row.failure for row in rows] == [None, None, "no such model", "no such model"]


def test_a_mixed_load_is_measured_where_requests_run_together(tmp_path: Path) -> None:
    works = Server("works", (sys.executable, "-c", SERVE))
    servers = [works, Server("one at a time", ("no such program",), batches=False)]
    rows = measure_mixed(servers, Plan(rounds=2, words=6), MIXED, tmp_path)
    assert [len(row.rounds) for row in rows] == [2, 0]
    assert [row.failure for row in rows] == [None, "runs one request at a time"]


def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    silent = Server("silent", (sys.executable, "-c", ""))
    with pytest.raises(ServerError, match="no answer"), silent.running(tmp_path / "log"):
        pass


def test_every_server_has_the_same_threads_and_room_for_all_clients() -> None:
    machine, file = Machine(threads=3, context=512, sequences=8), Path("model")
    commands = {
        "edgegen": " ".join(edgegen(file, machine).command),
        "llama-server": " ".join(llama_server(Path("llama-server"), file, machine).command),
        "llama-cpp-python": " ".join(llama_cpp_python(Path("python"), file, machine, 7).command),
    }
    assert "--threads 3 --max-batch-size 8" in commands["edgegen"]
    assert "-t 3 -tb 3" in commands["llama-server"]
    assert "-np 8 -c 4096" in commands["llama-server"]
    assert "--n_ctx 512 --n_threads 3 --n_threads_batch 3" in commands["llama-cpp-python"]
    assert "--interrupt_requests false" in commands["llama-cpp-python"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["X"], "X is no checkpoint, and no shape (there are G, S, Q, L, L12, Q35, GLM, LING, M)"),
        (["G", "--clients", "0"], "--clients, --rounds, --requests and --tokens are at least 1"),
    ],
)
def test_what_cannot_be_measured_ends_the_command_before_it_begins(
    tmp_path: Path, options: list[str], said: str
) -> None:
    command = [sys.executable, "-m", "bench.serve", "--work", str(tmp_path / "work"), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / "work").exists()
