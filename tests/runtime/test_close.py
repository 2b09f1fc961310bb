"""Closing an LLM: what runs is cancelled, its thread ends, its memory is free, and its use is refused."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.errors import UsageError
from edgegen.generation.results import GenerationResult
from edgegen.llm import LLM
from edgegen.model.kv_cache import KVCache
from edgegen.model.ort_session import OneSession
from edgegen.options.engine import EngineOptions
from edgegen.system import proportional_memory
from tests.runtime.models import FakeGraphs, digest_of, fake_llm, random_ids

PROMPT = random_ids(21)


class Gate:
    """Something to be called before each run: the ``at``-th waits until it is interrupted."""

    def __init__(self, graphs: FakeGraphs, at: int) -> None:
        self.graphs, self.left, self.reached = graphs, at, threading.Event()
        graphs.before_run = self

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            pause = threading.Event()
            while not self.graphs.switch.run_options.terminate:
                pause.wait(0.001)


@pytest.fixture
def graphs() -> FakeGraphs:
    return FakeGraphs(digest_of)


@pytest.fixture
def llm(graphs: FakeGraphs, tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", graphs)


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "edgegen"]


USES: dict[str, Callable[[LLM], object]] = {
    "generate": lambda llm: llm.generate("a"),
    "batch": lambda llm: llm.generate(["a", "b"]),
    "stream": lambda llm: llm.stream("a"),
    "chat": lambda llm: llm.chat([{"role": "user", "content": "a"}]),
    "stream_chat": lambda llm: llm.stream_chat([{"role": "user", "content": "a"}]),
    "score": lambda llm: llm.score("a", "b"),
    "perplexity": lambda llm: llm.perplexity("a b c"),
    "encode": lambda llm: llm.encode("a"),
    "decode": lambda llm: llm.decode([65]),
    "tokenizer": lambda llm: llm.tokenizer,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_closed_llm_refuses_to_be_used(llm: LLM, use: Callable[[LLM], object]) -> None:
    llm.close()
    with pytest.raises(UsageError, match=r"^this LLM is closed: load it again\.$"):
        use(llm)


def test_closing_twice_is_closing_once(llm: LLM) -> None:
    assert not llm.closed
    llm.close()
    llm.close()
    assert llm.closed


def test_leaving_with_closes_also_after_an_error(llm: LLM) -> None:
    with llm as entered:
        assert entered is llm
        llm.generate("a", max_new_tokens=1)
    assert llm.closed


def test_an_error_in_the_block_goes_on(llm: LLM) -> None:
    with pytest.raises(KeyError), llm:
        raise KeyError
    assert llm.closed


def test_close_leaves_no_thread(llm: LLM) -> None:
    llm.generate("a", max_new_tokens=2)
    llm.close()
    assert not engine_threads()


def test_a_stream_under_way_ends_as_cancelled_with_what_it_has(llm: LLM, graphs: FakeGraphs) -> None:
    gate = Gate(graphs, 6)
    stream = llm.stream(PROMPT, max_new_tokens=100)
    assert gate.reached.wait(10)
    llm.close()
    assert not engine_threads()
    assert stream.wait().finish_reason == "cancelled"
    assert 0 < len(stream.result.token_ids) < 100
    stream.close()


def test_a_thread_that_waits_gets_what_was_made(llm: LLM, graphs: FakeGraphs) -> None:
    gate, results = Gate(graphs, 6), list[GenerationResult]()
    waiting = threading.Thread(target=lambda: results.append(llm.generate(PROMPT, max_new_tokens=100)))
    waiting.start()
    assert gate.reached.wait(10)
    llm.close()
    waiting.join(10)
    assert [result.finish_reason for result in results] == ["cancelled"]


def test_requests_that_wait_for_room_end_too(llm: LLM, graphs: FakeGraphs) -> None:
    gate = Gate(graphs, 6)
    streams = [llm.stream(PROMPT, max_new_tokens=100) for _ in range(12)]
    assert gate.reached.wait(10)
    llm.close()
    assert {stream.wait().finish_reason for stream in streams} == {"cancelled"}


def test_a_coroutine_that_waits_gets_the_end(llm: LLM, graphs: FakeGraphs) -> None:
    async def read() -> GenerationResult:
        gate = Gate(graphs, 6)
        stream = llm.stream(PROMPT, max_new_tokens=100)
        reading = asyncio.ensure_future(stream.wait_async())
        while not gate.reached.is_set():
            await asyncio.sleep(0.001)
        llm.close()
        return await asyncio.wait_for(reading, 10)

    assert asyncio.run(read()).finish_reason == "cancelled"


def test_a_callback_cannot_close_its_own_model(llm: LLM) -> None:
    def close(ids: Any) -> bool:
        llm.close()
        return False

    with pytest.raises(UsageError, match="while a model generates cannot close it"):
        llm.generate(PROMPT, stopping_criteria=close)
    assert not llm.closed
    llm.generate(PROMPT, max_new_tokens=1)


def test_threads_that_close_at_once_all_wait_for_the_end(llm: LLM, graphs: FakeGraphs) -> None:
    gate = Gate(graphs, 6)
    stream = llm.stream(PROMPT, max_new_tokens=100)
    assert gate.reached.wait(10)
    left = list[list[threading.Thread]]()

    def close() -> None:
        llm.close()
        left.append(engine_threads())

    closers = [threading.Thread(target=close) for _ in range(4)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(10)
    assert left == [[]] * 4
    assert stream.wait().finish_reason == "cancelled"


def heavy() -> list[OneSession | KVCache]:
    """Everything alive that holds weights or a KV cache."""
    gc.collect()
    things: list[object] = gc.get_objects()
    # By type alone: ``isinstance`` would ask proxies of other libraries what they stand for.
    return [cast(OneSession | KVCache, thing) for thing in things if type(thing) in (OneSession, KVCache)]


@pytest.mark.parametrize("draft", [False, True], ids=["alone", "with a draft model"])
def test_weights_and_cache_are_free_though_the_llm_and_its_stream_are_kept(int8_bundle: Bundle, draft: bool) -> None:
    others = set(map(id, heavy()))
    options = EngineOptions(threads=1, draft=int8_bundle.path if draft else None)
    with LLM.load(int8_bundle.path, options=options) as llm:
        stream = llm.stream([1, 2, 3], max_new_tokens=8)
        stream.wait()
        own = [weakref.ref(thing) for thing in heavy() if id(thing) not in others]
        assert len(own) == (4 if draft else 2)
    left = [thing for ref in own if (thing := ref()) is not None]
    assert [thing for thing in left if not isinstance(thing, KVCache) or thing.nbytes] == []
    assert stream.result.finish_reason == "length"


@pytest.mark.skipif(proportional_memory() is None, reason="the system does not tell how much memory is used")
def test_memory_does_not_grow_with_each_load(stories: Bundle) -> None:
    used = list[int]()
    for _ in range(6):
        with LLM.load(stories.path, options=EngineOptions(threads=1)) as llm:
            llm.generate("Once upon a time", max_new_tokens=4)
        used.append(proportional_memory() or 0)
    assert used[-1] - used[0] < 8 << 20, used
