"""Streams read by coroutines: beside each other, cancelled, left, and closed with their event loop."""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgegen.errors import PromptTooLongError, UsageError
from edgegen.generation.cancellation import CancelToken
from edgegen.generation.stream import TextStream
from edgegen.llm import LLM
from tests.runtime.models import FailAt, FakeGraphs, Gate, digest_of, fake_llm, random_ids
from tests.waiting import PATIENCE_S, until

PROMPT = random_ids(21)


def answer_of(prompt: list[int], count: int) -> list[int]:
    ids = list(prompt)
    for _ in range(count):
        ids.append(digest_of(ids))
    return ids[len(prompt) :]


@pytest.fixture
def graphs() -> FakeGraphs:
    return FakeGraphs(digest_of)


@pytest.fixture
def llm(graphs: FakeGraphs, tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", graphs)


async def ids_of(stream: TextStream) -> list[int]:
    return [token async for chunk in stream for token in chunk.token_ids]


def idle() -> bool:
    return until(lambda: all(thread.name != "edgegen" for thread in threading.enumerate()))


class Slow(list[int]):
    """A prompt that takes as long to prepare as a constraint may."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__(ids)
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[int]:
        self.begun.set()
        assert self.may_end.wait(PATIENCE_S)
        return super().__iter__()


def test_a_prompt_that_takes_long_to_prepare_holds_up_no_other(llm: LLM) -> None:
    slow = Slow(PROMPT)
    threading.Thread(target=lambda: llm.stream_all([slow], max_new_tokens=2)).start()
    assert slow.begun.wait(PATIENCE_S)
    try:
        (stream,) = llm.stream_all([PROMPT], max_new_tokens=2)
        assert stream.wait().token_ids == tuple(answer_of(PROMPT, 2))
    finally:
        slow.may_end.set()


def test_async_for_gives_what_for_gives(llm: LLM) -> None:
    async def main() -> None:
        with llm.stream(PROMPT, max_new_tokens=9) as plain:
            expected = list(plain)
        async with llm.stream(PROMPT, max_new_tokens=9) as stream:
            assert [chunk async for chunk in stream] == expected
        assert stream.result.token_ids == tuple(answer_of(PROMPT, 9))
        assert [chunk async for chunk in stream] == []
        assert (await llm.stream(PROMPT, max_new_tokens=9).wait_async()).text == plain.result.text

    asyncio.run(main())


def test_the_prompts_of_one_request_are_streamed_beside_each_other(llm: LLM) -> None:
    prompts = [random_ids(3 + 4 * n, seed=n) for n in range(20)]
    streams = llm.stream_all(prompts, max_new_tokens=6)
    for prompt, stream in reversed([*zip(prompts, streams, strict=True)]):
        assert stream.wait().token_ids == tuple(answer_of(prompt, 6))
    assert llm.stream_all([]) == []


def test_if_one_prompt_of_a_request_is_refused_none_runs(llm: LLM, graphs: FakeGraphs) -> None:
    with pytest.raises(PromptTooLongError):
        llm.stream_all([PROMPT, [1] * 5000])
    assert idle()
    assert graphs.runs == []


def test_several_at_once_each_get_their_own(llm: LLM) -> None:
    prompts = [random_ids(3 + 4 * n, seed=n) for n in range(8)]

    async def main() -> list[list[int]]:
        return await asyncio.gather(*(ids_of(llm.stream(prompt, max_new_tokens=6 + len(prompt))) for prompt in prompts))

    assert asyncio.run(main()) == [answer_of(prompt, 6 + len(prompt)) for prompt in prompts]


def test_the_event_loop_goes_on_while_the_model_runs(llm: LLM, graphs: FakeGraphs) -> None:
    release = threading.Event()

    def wait() -> None:
        release.wait(PATIENCE_S)

    graphs.before_run = wait

    async def main() -> None:
        reading = asyncio.create_task(ids_of(llm.stream(PROMPT, max_new_tokens=3)))
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not reading.done()
        release.set()
        assert await reading == answer_of(PROMPT, 3)

    asyncio.run(main())


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_cancelling_the_task_ends_the_request_and_no_other(llm: LLM, graphs: FakeGraphs, chunks: int) -> None:
    gate = Gate(graphs, 20)

    async def main() -> None:
        streams = [llm.stream(PROMPT, max_new_tokens=200), llm.stream(PROMPT, max_new_tokens=4)]
        got = list[int]()

        async def read() -> None:
            async for chunk in streams[0]:
                got.extend(chunk.token_ids)

        reading = asyncio.create_task(read())
        while len(got) < chunks:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        gate.opened.set()
        assert streams[0].result.finish_reason == "cancelled"
        assert got == answer_of(PROMPT, 200)[: len(got)]
        assert await ids_of(streams[1]) == answer_of(PROMPT, 4)

    asyncio.run(main())
    assert len(graphs.runs) < 30


def test_a_timeout_ends_the_request(llm: LLM, graphs: FakeGraphs) -> None:
    Gate(graphs, 20)

    async def main() -> None:
        stream = llm.stream(PROMPT, max_new_tokens=400)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await stream.wait_async()
        assert stream.result.finish_reason == "cancelled"

    asyncio.run(main())
    assert idle()
    assert len(graphs.runs) < 50


def test_leaving_the_loop_early_and_the_with_block_ends_the_request(llm: LLM, graphs: FakeGraphs) -> None:
    async def main() -> TextStream:
        async with llm.stream(PROMPT, max_new_tokens=400) as stream:
            async for chunk in stream:
                assert list(chunk.token_ids) == answer_of(PROMPT, 1)
                break
        return stream

    Gate(graphs, 20)
    stream = asyncio.run(main())
    assert stream.result.finish_reason == "cancelled"
    assert idle()
    assert len(graphs.runs) < 50


def test_a_token_ends_what_a_coroutine_reads(llm: LLM, graphs: FakeGraphs) -> None:
    Gate(graphs, 20)

    async def main() -> None:
        token = CancelToken()
        stream = llm.stream(PROMPT, max_new_tokens=400, cancel=token)
        asyncio.get_running_loop().call_later(0.05, token.cancel)
        assert (await stream.wait_async()).finish_reason == "cancelled"

    asyncio.run(main())


def test_an_event_loop_that_is_closed_first_hurts_nobody(llm: LLM, graphs: FakeGraphs) -> None:
    """The stream is kept, its loop is gone, and the engine goes on putting chunks."""

    async def main() -> tuple[TextStream, list[int]]:
        stream = llm.stream(PROMPT, max_new_tokens=12)
        waiting = asyncio.ensure_future(anext(stream))
        return stream, list((await waiting).token_ids)

    gate = Gate(graphs, 6)  # the first id comes of the third
    stream, first = asyncio.run(main())
    gate.opened.set()
    rest = [token for chunk in stream for token in chunk.token_ids]  # as a plain one, from here on
    assert first + rest == answer_of(PROMPT, 12)
    gate = Gate(graphs, 6)
    again, first = asyncio.run(main())
    gate.opened.set()
    assert first + asyncio.run(ids_of(again)) == answer_of(PROMPT, 12)  # or in another loop


def test_an_event_loop_that_is_closed_on_a_waiting_reader_hurts_nobody(llm: LLM, graphs: FakeGraphs) -> None:
    ready = threading.Event()

    def wait() -> None:
        ready.wait(PATIENCE_S)

    graphs.before_run = wait
    loop = asyncio.new_event_loop()
    left, other = llm.stream(PROMPT, max_new_tokens=4), llm.stream(PROMPT, max_new_tokens=4)
    reading = loop.create_task(ids_of(left))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    ready.set()
    assert other.wait().token_ids == tuple(answer_of(PROMPT, 4))
    assert left.result.token_ids == tuple(answer_of(PROMPT, 4))
    assert not reading.done()
    reading._log_destroy_pending = False  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def test_two_coroutines_may_read_one(llm: LLM, graphs: FakeGraphs) -> None:
    graphs.before_run = lambda: time.sleep(0.002)

    async def main() -> None:
        stream = llm.stream(PROMPT, max_new_tokens=20)
        async with asyncio.timeout(PATIENCE_S):
            got = await asyncio.gather(ids_of(stream), ids_of(stream), ids_of(stream))
        assert sorted(token for ids in got for token in ids) == sorted(answer_of(PROMPT, 20))

    asyncio.run(main())


def test_a_failed_request_raises_where_it_is_read(llm: LLM, graphs: FakeGraphs) -> None:
    graphs.before_run = FailAt(6, RuntimeError("the graph failed"))

    async def main() -> None:
        streams = [llm.stream(PROMPT, max_new_tokens=9) for _ in range(2)]
        found = await asyncio.gather(*(ids_of(stream) for stream in streams), return_exceptions=True)
        assert str(found[0]) == "the graph failed"
        assert found[1] == answer_of(PROMPT, 9)
        with pytest.raises(UsageError, match="temprature"):
            llm.stream(PROMPT, temprature=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    asyncio.run(main())


def test_a_forgotten_one_ends_its_request(llm: LLM, graphs: FakeGraphs) -> None:
    Gate(graphs, 20)

    async def main() -> None:
        async for _ in llm.stream(PROMPT, max_new_tokens=400):
            break

    asyncio.run(main())
    gc.collect()
    assert idle()
    assert len(graphs.runs) < 50
