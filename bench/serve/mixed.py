"""A mixed load: one long prompt is read while streams run and short chats come, one after the other."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import httpx2

from bench.serve.load import WORDS, Answer, ask, connected
from bench.serve.report import percentile, table_of

HEADS = (
    *("server", "short chat alone, ms", "beside p50, ms", "longest", "streams, between tokens p50, ms", "longest"),
    *("long prompt, s", "words/s"),
)


@dataclass(frozen=True)
class Mixed:
    """
    Attributes:
        words: of the long prompt.
        streams: that run before it comes, and until it is read.
        chat_words: of each short chat.
        tokens: of the answers to the chats and the long prompt.
        stream_tokens: of each answer of a stream, which then asks again.
    """

    words: int
    streams: int = 2
    chat_words: int = 16
    tokens: int = 8
    stream_tokens: int = 128

    @property
    def sequences(self) -> int:
        """How many run at the same time."""
        return self.streams + 2

    def prompt(self, words: int, *seed: object) -> str:
        """A text that shares no prefix with those of other seeds."""
        dice = random.Random(repr(seed))
        return " ".join(dice.choices(WORDS, k=words))


@dataclass(frozen=True)
class MixedTimes:
    """The times of one mixed load, in seconds.

    Attributes:
        alone: a short chat before all else.
        chats: those beside the long prompt.
        streams: the answers of the streams.
        long: the answer to the long prompt.
    """

    alone: Answer
    chats: Sequence[Answer]
    streams: Sequence[Answer]
    long: Answer


async def run_mixed(url: str, load: Mixed, seed: int, extra: Mapping[str, Any]) -> MixedTimes:
    """One long prompt beside streams and short chats; ``extra`` is what this server is asked besides.

    Raises:
        LoadError: a request failed, or an answer has another number of tokens.
    """
    async with connected(url) as client:
        alone = await ask(client, load.prompt(load.chat_words, seed, "alone"), load.tokens, extra)
        is_read, answers = asyncio.Event(), list[Answer]()
        begun = [asyncio.Event() for _ in range(load.streams)]
        try:
            async with asyncio.TaskGroup() as tasks:
                for number, event in enumerate(begun):
                    tasks.create_task(_stream(client, load, (seed, number), extra, event, is_read, answers))
                for event in begun:
                    await event.wait()
                prompt = load.prompt(load.words, seed, "long")
                long = tasks.create_task(ask(client, prompt, load.tokens, extra, on_text=is_read.set))
                chats = await _chats(client, load, seed, extra, is_read)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return MixedTimes(alone, chats, answers, long.result())


async def _stream(
    client: httpx2.AsyncClient,
    load: Mixed,
    seed: tuple[int, int],
    extra: Mapping[str, Any],
    begun: asyncio.Event,
    is_read: asyncio.Event,
    answers: list[Answer],
) -> None:
    """One answer after the other until the long prompt is read."""
    while not is_read.is_set():
        prompt = load.prompt(load.chat_words, seed, len(answers))
        answers.append(await ask(client, prompt, load.stream_tokens, extra, on_text=begun.set))


async def _chats(
    client: httpx2.AsyncClient, load: Mixed, seed: int, extra: Mapping[str, Any], is_read: asyncio.Event
) -> list[Answer]:
    """The chats that were sent while the long prompt was read; one at least."""
    found = list[Answer]()
    while not (found and is_read.is_set()):
        found.append(await ask(client, load.prompt(load.chat_words, seed, "chat", len(found)), load.tokens, extra))
    return found


@dataclass
class MixedMeasured:
    """A server under the mixed load, round by round."""

    server: str
    words: int
    rounds: list[MixedTimes] = field(default_factory=list[MixedTimes])
    failure: str | None = None

    def cells(self) -> list[str]:
        """Percentiles are over the answers of all rounds; what is one of a round is the median."""
        if self.failure is not None or not self.rounds:
            return [self.server, self.failure or "–", *["–"] * (len(HEADS) - 2)]
        chats = [answer.first for times in self.rounds for answer in times.chats]
        gaps = [gap for times in self.rounds for answer in times.streams for gap in answer.gaps]
        long = median(times.long.first for times in self.rounds)
        figures = [
            median(times.alone.first for times in self.rounds),
            *(percentile(values, at) for values in (chats, gaps) for at in (50, 100)),
        ]
        return [self.server, *(f"{1e3 * figure:.1f}" for figure in figures), f"{long:.2f}", f"{self.words / long:.0f}"]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def mixed_table(rows: Sequence[MixedMeasured]) -> str:
    """In Markdown."""
    return table_of(HEADS, 1, [row.cells() for row in rows])
