"""More clients than a server takes: each gets an answer or a 503 at once, and nothing is left of any of them."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from edgegen.llm import LLM
from edgegen.server.app import create_app
from edgegen.server.http.options import ServerOptions
from tests.runtime.models import FakeGraphs, Gate, digest_of, fake_llm
from tests.runtime.server.material import COMPLETION
from tests.runtime.server.sockets import on_socket
from tests.waiting import PATIENCE_S, until

CLIENTS, QUEUE, RUNNING = 200, 32, 8


def body(number: int, **more: Any) -> dict[str, Any]:
    return {"prompt": f"Client {number}", "max_tokens": 6, "eos_token_id": [], **more}


@pytest.fixture
def graphs() -> FakeGraphs:
    return FakeGraphs(digest_of)


@pytest.fixture
def llm(tmp_path: Path, graphs: FakeGraphs) -> LLM:
    return fake_llm(tmp_path, graphs)


@pytest.fixture
def url(llm: LLM) -> Iterator[str]:
    app = create_app({"fake": llm}, ServerOptions(max_queue=QUEUE), running=RUNNING)
    with on_socket(app) as (host, port):
        yield f"http://{host}:{port}"


def clients(url: str) -> httpx2.AsyncClient:
    """A connection for each request, and no patience but the tests'."""
    limits = httpx2.Limits(max_connections=None)
    return httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S, limits=limits, trust_env=False)


def text_of(response: httpx2.Response) -> str:
    """Of an answer, whole or streamed."""
    if response.headers["content-type"] == "application/json":
        return response.json()["choices"][0]["text"]
    *data, last = [line.removeprefix("data: ") for line in response.text.split("\n") if line]
    assert last == "[DONE]"
    return "".join(json.loads(line)["choices"][0]["text"] for line in data)


def in_progress(url: str) -> float:
    lines = httpx2.get(f"{url}/metrics", trust_env=False).text.splitlines()
    return float(next(line for line in lines if line.startswith("edgegen_requests_in_progress ")).split()[1])


def test_200_clients_on_a_queue_of_32(url: str, llm: LLM, graphs: FakeGraphs) -> None:
    """The model waits until all requests beyond the limits are refused: the others run or wait, and not one more."""
    gate = Gate(graphs, 1)
    refused = 0

    async def ask(client: httpx2.AsyncClient, number: int) -> httpx2.Response:
        nonlocal refused
        response = await client.post(COMPLETION, json=body(number, stream=number % 3 == 0))
        if response.status_code == 503:
            refused += 1
            if refused == CLIENTS - QUEUE - RUNNING:
                gate.opened.set()
        return response

    async def all_of_them() -> list[httpx2.Response]:
        async with clients(url) as client, asyncio.timeout(PATIENCE_S):
            return await asyncio.gather(*(ask(client, number) for number in range(CLIENTS)))

    responses = asyncio.run(all_of_them())
    assert Counter(response.status_code for response in responses) == {
        200: QUEUE + RUNNING,
        503: CLIENTS - QUEUE - RUNNING,
    }
    for number, response in enumerate(responses):
        if response.status_code == 503:
            assert response.headers["retry-after"] == "1"
            assert response.json()["error"]["code"] == "server_overloaded"
        else:
            assert text_of(response) == llm.generate(f"Client {number}", max_new_tokens=6, eos_token_id=()).text
    assert until(lambda: in_progress(url) == 0)
    again = httpx2.post(url + COMPLETION, json=body(1), trust_env=False)
    assert text_of(again) == llm.generate("Client 1", max_new_tokens=6, eos_token_id=()).text


def test_clients_that_leave_do_not_change_what_the_others_get(url: str, llm: LLM) -> None:
    """Answers whole and streamed, of which every other client leaves somewhere, all in one batch."""
    dice = random.Random(1)
    leaving = {number: dice.randrange(4) for number in range(0, QUEUE + RUNNING, 2)}

    async def leave(client: httpx2.AsyncClient, number: int, chunks: int) -> None:
        """After ``chunks`` chunks of an answer that would have 400 tokens."""
        async with client.stream("POST", COMPLETION, json=body(number, max_tokens=400, stream=True)) as response:
            lines = response.aiter_lines()
            for _ in range(chunks):
                await anext(lines)

    async def stay(client: httpx2.AsyncClient, number: int) -> str:
        response = await client.post(COMPLETION, json=body(number, stream=number % 3 == 0))
        assert response.status_code == 200
        return text_of(response)

    async def all_of_them() -> dict[int, str]:
        staying = [number for number in range(QUEUE + RUNNING) if number not in leaving]
        async with clients(url) as client, asyncio.timeout(PATIENCE_S):
            gone = asyncio.gather(*(leave(client, number, chunks) for number, chunks in leaving.items()))
            texts = await asyncio.gather(*(stay(client, number) for number in staying))
            await gone
        return dict(zip(staying, texts, strict=True))

    for number, text in asyncio.run(all_of_them()).items():
        assert text == llm.generate(f"Client {number}", max_new_tokens=6, eos_token_id=()).text
    assert until(lambda: in_progress(url) == 0)
    assert until(lambda: llm.generate("a", max_new_tokens=2, eos_token_id=()).finish_reason == "length")
