"""The load of a measurement: clients that stream completions from a server, each token with its time."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any

import httpx2

WORDS = """a about after again all and animal answer any asked away back ball bark bed big bird blue book box boy bread
bright brother call came can car cat chair child city clean cloud cold come day deep dog door down draw dream drink
earth eat egg end eye face fall far farm father find fire fish flower fly food forest friend game garden girl give glad
go good grass green hand happy hat head hear help hill hold home hope horse hot house ice jump keep king kitchen lake
land laugh leaf learn light line little long look lost love make man many milk moon morning mother mountain mouse music
name near new night nose old open over paper park people play rain read red river road room run sad sand school sea see
ship shoe sing sister sit sky sleep slow small smile snow song star stone story street sun swim table talk tall tell
think time town toy tree walk warm water wind window winter wish woman wood word work yellow young""".split()


class LoadError(Exception):
    """A server did not answer as it should; the message says how."""


@dataclass(frozen=True)
class Answer:
    """The times of a streamed answer, in seconds.

    Attributes:
        first: from sending the request to the first text.
        gaps: between one piece of text and the next.
    """

    first: float
    gaps: tuple[float, ...]


@dataclass(frozen=True)
class Load:
    """
    Attributes:
        clients: that ask at the same time.
        requests: of each client, one after the other.
        tokens: of each answer.
        words: of each prompt.
    """

    clients: int
    requests: int
    tokens: int
    words: int

    def prompts(self, seed: int) -> list[list[str]]:
        """By client and request; no two share a prefix that a cache could help with."""
        dice = random.Random(f"{seed} {self.clients}")
        firsts = dice.sample([f"{a} {b}" for a in WORDS for b in WORDS], self.clients * self.requests)
        texts = [" ".join([first, *dice.choices(WORDS, k=self.words - 2)]) for first in firsts]
        return [texts[at :: self.clients] for at in range(self.clients)]


async def run_load(
    url: str, load: Load, prompts: Sequence[Sequence[str]], extra: Mapping[str, Any]
) -> tuple[list[Answer], float]:
    """All answers, and the seconds that they took together; ``extra`` is what this server is asked besides.

    Raises:
        LoadError: a request failed, or an answer has another number of tokens.
    """
    async with connected(url) as client:

        async def one_after_the_other(texts: Sequence[str]) -> list[Answer]:
            return [await ask(client, text, load.tokens, extra) for text in texts]

        begin = perf_counter()
        tasks = [asyncio.create_task(one_after_the_other(texts)) for texts in prompts]
        try:
            answers = await asyncio.gather(*tasks)
        finally:  # where one has failed, the others' connections end before the client does
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [answer for of_one in answers for answer in of_one], perf_counter() - begin


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of the server at ``url``.

    Raises:
        LoadError: the server did not answer.
    """
    # A connection for each request: llama-server closes them after a stream without saying so.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    try:
        async with httpx2.AsyncClient(base_url=url, timeout=None, limits=limits, trust_env=False) as client:
            yield client
    except httpx2.HTTPError as error:
        raise LoadError(f"{type(error).__name__}: {error}") from None


def ignore() -> None:
    """An ``on_text`` that does nothing."""


async def ask(
    client: httpx2.AsyncClient,
    prompt: str,
    tokens: int,
    extra: Mapping[str, Any],
    on_text: Callable[[], None] = ignore,
) -> Answer:
    """The times of an answer of ``tokens`` tokens; ``on_text`` is called at each piece of text.

    Raises:
        LoadError: the request failed, or the answer has another number of tokens.
    """
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, **extra}
    begin = perf_counter()
    async with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            said = (await response.aread()).decode(errors="replace")
            raise LoadError(f"status {response.status_code}: {said.strip()[:200]}")
        return await timed(response.aiter_lines(), begin, on_text=on_text)


async def timed(
    lines: AsyncIterable[str],
    begin: float,
    clock: Callable[[], float] = perf_counter,
    on_text: Callable[[], None] = ignore,
) -> Answer:
    """The times of the pieces of text in ``lines`` of server-sent events.

    Raises:
        LoadError: the answer did not end because it was long enough.
    """
    times, reason = list[float](), None
    async for line in lines:
        now, data = clock(), line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            continue
        event = json.loads(data)
        if "choices" not in event:
            raise LoadError(f"the stream ended with an error: {data[:200]}")
        for choice in event["choices"]:
            if choice["text"]:
                times.append(now)
                on_text()
            reason = choice.get("finish_reason") or reason
    if reason != "length":
        raise LoadError(f"an answer ended after {len(times)} pieces of text with finish_reason {reason!r}")
    if not times:
        raise LoadError("an answer has no text")
    gaps = (after - before for before, after in pairwise(times))
    return Answer(times[0] - begin, tuple(gaps))
