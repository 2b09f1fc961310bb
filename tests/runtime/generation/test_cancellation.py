"""Cancelling: at once, amid a run as well, one request and no other; and what ends with the program."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.errors import UsageError
from edgegen.generation.cancellation import CancelToken
from edgegen.generation.results import GenerationResult
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.checkpoint.layouts import write_gpt2
from tests.runtime.models import VOCAB_SIZE, FakeGraphs, Gate, byte_tokenizer, digest_of, fake_llm, random_ids
from tests.waiting import PATIENCE_S, until

PROMPT = random_ids(21)
LONG = random_ids(400, seed=1)


def answer_of(prompt: list[int], count: int) -> tuple[int, ...]:
    ids = list(prompt)
    for _ in range(count):
        ids.append(digest_of(ids))
    return tuple(ids[len(prompt) :])


@pytest.fixture
def graphs() -> FakeGraphs:
    return FakeGraphs(digest_of)


@pytest.fixture
def llm(graphs: FakeGraphs, tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", graphs)


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "edgegen"]


class TestTokens:
    @pytest.mark.parametrize("at", [1, 3, 49, 50, 51, 60], ids="run {}".format)
    def test_break_off_the_run_they_find_in_a_prompt_or_behind_it(self, llm: LLM, graphs: FakeGraphs, at: int) -> None:
        gate, token = Gate(graphs, at), CancelToken()
        timer = threading.Thread(target=lambda: gate.reached.wait(PATIENCE_S) and token.cancel())
        timer.start()
        result = llm.generate(LONG, max_new_tokens=100, cancel=token)
        timer.join()
        assert (result.finish_reason, result.stopped_by) == ("cancelled", None)
        assert result.token_ids == answer_of(LONG, 100)[: max(0, at - 50)]
        assert until(lambda: not engine_threads())
        assert len(graphs.runs) == at - 1  # that one gave nothing, and none came after it
        assert llm.generate(LONG, max_new_tokens=5).token_ids == answer_of(LONG, 5)

    @pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"num_return_sequences": 3, "seed": 1}], ids=str)
    def test_used_before_end_a_request_at_once(self, llm: LLM, graphs: FakeGraphs, options: dict[str, Any]) -> None:
        token = CancelToken()
        token.cancel()
        token.cancel()
        result = llm.generate(PROMPT, cancel=token, **options)
        assert {(one.finish_reason, one.token_ids, one.text) for one in result.choices} == {("cancelled", (), "")}
        with llm.stream(PROMPT, cancel=token, **options) as stream:
            assert list(stream) == []
        assert stream.result.finish_reason == "cancelled"
        assert graphs.runs == []
        assert token.cancelled

    def test_end_all_that_were_begun_with_them_and_nothing_else(self, llm: LLM, graphs: FakeGraphs) -> None:
        gate, token = Gate(graphs, 5), CancelToken()
        ended = [llm.stream(prompt, cancel=token) for prompt in (LONG, PROMPT, "abc")]
        other = llm.stream(PROMPT, max_new_tokens=4)
        gate.reached.wait(PATIENCE_S)
        token.cancel()
        assert [stream.wait().finish_reason for stream in ended] == ["cancelled"] * 3
        assert other.wait().token_ids == answer_of(PROMPT, 4)

    def test_end_each_of_a_list_and_keep_what_is_whole(self, llm: LLM, graphs: FakeGraphs) -> None:
        token = CancelToken()
        # The prompts of the others take 25 chunks each, of which one is run beside each token of the first.
        graphs.after_run = lambda: token.cancel() if len(graphs.runs) == 16 else None
        results = llm.generate(["abc", "d" * 200, "e" * 200], max_new_tokens=5, cancel=token)
        assert [result.finish_reason for result in results] == ["length", "cancelled", "cancelled"]
        assert results[0].token_ids == answer_of([*b"abc"], 5)
        assert results[1].token_ids == results[2].token_ids == ()

    def test_of_another_kind_are_refused(self, llm: LLM) -> None:
        for other in (True, threading.Event()):
            with pytest.raises(UsageError, match=f"cancel must be a CancelToken, not {type(other).__name__}"):
                llm.generate(PROMPT, cancel=other)  # pyright: ignore[reportArgumentType, reportCallIssue]
        assert llm.generate(PROMPT, max_new_tokens=4).token_ids == answer_of(PROMPT, 4)

    def test_that_come_late_change_nothing(self, llm: LLM) -> None:
        token = CancelToken()
        result = llm.generate(PROMPT, max_new_tokens=4, cancel=token)
        stream = llm.stream(PROMPT, max_new_tokens=4, cancel=token)
        list(stream)
        token.cancel()
        assert result.finish_reason == stream.result.finish_reason == "length"
        assert stream.result.token_ids == result.token_ids == answer_of(PROMPT, 4)

    def test_may_be_used_by_many_threads_at_once(self, llm: LLM, graphs: FakeGraphs) -> None:
        gate, token = Gate(graphs, 7), CancelToken()
        streams = [llm.stream(LONG, cancel=token) for _ in range(5)]
        gate.reached.wait(PATIENCE_S)
        threads = [threading.Thread(target=token.cancel) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert {stream.wait().finish_reason for stream in streams} == {"cancelled"}
        assert llm.generate(PROMPT, max_new_tokens=3).token_ids == answer_of(PROMPT, 3)


def fail(ids: Any, logits: Any) -> Any:
    raise RuntimeError("of the caller")


class TestStreams:
    def test_closing_one_that_waits_leaves_the_run_of_another_alone(self, llm: LLM, graphs: FakeGraphs) -> None:
        gate = Gate(graphs, 3)
        first, second = llm.stream(PROMPT, max_new_tokens=4), llm.stream(PROMPT)
        gate.reached.wait(PATIENCE_S)
        second.close()
        assert not graphs.switch.run_options.terminate
        gate.opened.set()
        assert first.wait().token_ids == answer_of(PROMPT, 4)
        assert second.result.finish_reason == "cancelled"

    def test_closing_one_amid_its_run_lets_the_next_begin(self, llm: LLM, graphs: FakeGraphs) -> None:
        gate = Gate(graphs, 3)
        first = llm.stream(LONG)
        gate.reached.wait(PATIENCE_S)
        second = llm.stream(PROMPT, max_new_tokens=4)
        first.close()
        assert second.wait().token_ids == answer_of(PROMPT, 4)

    def test_forgetting_one_breaks_off_its_run(self, llm: LLM, graphs: FakeGraphs) -> None:
        gate = Gate(graphs, 3)
        stream = llm.stream(LONG)
        gate.reached.wait(PATIENCE_S)
        del stream
        gc.collect()
        assert until(lambda: not engine_threads())
        assert len(graphs.runs) == 2

    def test_closing_from_another_thread_wakes_the_reader(self, llm: LLM, graphs: FakeGraphs) -> None:
        gate = Gate(graphs, 3)
        stream = llm.stream(LONG)
        closer = threading.Thread(target=lambda: gate.reached.wait(PATIENCE_S) and stream.close())
        closer.start()
        assert list(stream) == []
        closer.join()

    def test_two_threads_may_read_one(self, llm: LLM) -> None:
        for _ in range(20):
            stream, got = llm.stream(PROMPT, max_new_tokens=30), [list[int](), list[int]()]

            def read(ids: list[int]) -> None:
                ids.extend(token for chunk in stream for token in chunk.token_ids)  # noqa: B023

            readers = [threading.Thread(target=read, args=(ids,)) for ids in got]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join(PATIENCE_S)
            assert not any(reader.is_alive() for reader in readers)
            assert sorted(got[0] + got[1]) == sorted(answer_of(PROMPT, 30))
            assert stream.result.token_ids == answer_of(PROMPT, 30)

    def test_the_result_has_all_answers_whole_as_soon_as_it_is_there(self, llm: LLM) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for _ in range(200):
                result = llm.generate(PROMPT, num_beams=3, num_return_sequences=3, max_new_tokens=2)
                assert [len(choice.token_ids) for choice in result.choices] == [2, 2, 2]
        finally:
            sys.setswitchinterval(interval)


class TestThreads:
    def test_there_is_none_while_nothing_runs(self, llm: LLM) -> None:
        llm.generate(PROMPT, max_new_tokens=2)
        assert until(lambda: not engine_threads())
        llm.generate(PROMPT, max_new_tokens=2)
        assert until(lambda: not engine_threads())

    def test_at_the_end_of_the_program_none_begins(self, llm: LLM) -> None:
        stream = llm.stream(PROMPT)
        thread = llm._client.thread  # pyright: ignore[reportPrivateUsage]
        thread.close("the program is ending")
        assert stream.wait().finish_reason == "cancelled"
        with pytest.raises(UsageError, match="the program is ending"):
            llm.generate(PROMPT)
        assert not engine_threads()

    @pytest.mark.parametrize("use", ["generate", "stream", "score"])
    def test_a_callback_that_uses_its_own_model_is_told_and_does_not_wait_for_itself(self, llm: LLM, use: str) -> None:
        def ask(ids: Any) -> bool:
            arguments: Any = (PROMPT, [5]) if use == "score" else (PROMPT,)
            return bool(getattr(llm, use)(*arguments))

        with pytest.raises(UsageError, match="while a model generates cannot use it"):
            llm.generate(PROMPT, stopping_criteria=ask)
        assert llm.generate(PROMPT, max_new_tokens=4).token_ids == answer_of(PROMPT, 4)

    @pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration])
    def test_a_callback_that_raises_the_end_of_an_iteration_does_not_end_the_stream_in_silence(
        self, llm: LLM, error: type[Exception]
    ) -> None:
        def ask(ids: Any) -> bool:
            raise error

        async def read() -> None:
            async for _ in llm.stream(PROMPT, stopping_criteria=ask):
                pass

        message = f"a function of the caller raised {error.__name__}"
        with pytest.raises(RuntimeError, match=message) as found:
            for _ in llm.stream(PROMPT, stopping_criteria=ask):
                pass
        assert isinstance(found.value.__cause__, error)
        with pytest.raises(RuntimeError, match=message):
            asyncio.run(read())

    def test_one_at_a_time_is_at_work_however_many_ask(self, llm: LLM, graphs: FakeGraphs) -> None:
        at_work, most = 0, 0

        def begin() -> None:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            time.sleep(0.001)

        def end() -> None:
            nonlocal at_work
            at_work -= 1

        graphs.before_run, graphs.after_run = begin, end
        results: list[GenerationResult] = []
        threads = [
            threading.Thread(target=lambda: results.append(llm.generate(PROMPT, max_new_tokens=3))) for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert {result.token_ids for result in results} == {answer_of(PROMPT, 3)}
        assert len(results) == 12
        assert most == 1

    def test_a_model_that_nobody_uses_any_more_is_gone(self, graphs: FakeGraphs, tmp_path: Path) -> None:
        llm, token = fake_llm(tmp_path / "dropped", graphs), CancelToken()
        llm.generate(PROMPT, max_new_tokens=2, cancel=token)
        llm.generate("ab", num_beams=2, max_new_tokens=2)
        list(llm.stream(PROMPT, max_new_tokens=2, cancel=token))
        llm.stream(PROMPT, cancel=token).close()
        with pytest.raises(RuntimeError, match="of the caller"):
            llm.generate(PROMPT, cancel=token, logits_processor=[fail])
        gone = weakref.ref(llm._runner)  # pyright: ignore[reportPrivateUsage]
        assert until(lambda: not engine_threads())
        del llm
        gc.collect()
        assert gone() is None
        assert not token.cancelled  # which is still there, and keeps nothing

    def test_a_model_dropped_amid_a_run_is_gone_with_its_last_stream(self, graphs: FakeGraphs, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "dropped", graphs)
        gone = weakref.ref(llm._runner)  # pyright: ignore[reportPrivateUsage]
        gate, stream = Gate(graphs, 3), llm.stream(LONG)
        gate.reached.wait(PATIENCE_S)
        del llm
        gc.collect()
        assert gone() is not None
        del stream
        gc.collect()
        assert until(lambda: not engine_threads())
        gc.collect()
        assert gone() is None


@pytest.fixture(scope="module")
def long_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A model with room for prompts that take a while."""
    folder = tmp_path_factory.mktemp("long")
    tokenizer = byte_tokenizer(folder / "tokenizer.json")
    checkpoint = write_gpt2(
        folder / "checkpoint", layout="original", n_positions=4096, vocab_size=VOCAB_SIZE, tokenizer=tokenizer
    )
    return export(str(checkpoint), folder / "bundle", ExportOptions(scheme="int8"))[0]


@pytest.mark.parametrize("chunk", [64, 4096])
def test_a_real_model_is_free_long_before_its_prompt_is_through_and_exact(long_bundle: Bundle, chunk: int) -> None:
    llm = LLM.load(long_bundle.path, options=EngineOptions(threads=1, prefill_chunk=chunk, prefix_cache=0))
    prompt = random_ids(4000)
    expected = llm.generate(prompt, max_new_tokens=8, eos_token_id=()).token_ids
    begin = time.process_time()  # which does not count what else the machine does
    llm.generate(prompt, max_new_tokens=1)
    whole = time.process_time() - begin
    costs = list[float]()
    for part in (0.02, 0.1, 0.3):
        token, begin = CancelToken(), time.process_time()
        stream = llm.stream(prompt, cancel=token)
        assert until(lambda begin=begin, part=part: time.process_time() - begin > whole * part)
        token.cancel()
        assert len(stream.wait().token_ids) <= len(expected)
        llm.generate([1], max_new_tokens=1)
        costs.append(time.process_time() - begin - whole * part)
    assert min(costs) < whole * 0.6
    assert llm.generate(prompt, max_new_tokens=8, eos_token_id=()).token_ids == expected


LOOP = """
import threading
def ask():
    while True:
        try:
            llm.generate('abc' * 40, max_new_tokens=20)
        except ValueError:
            return
threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
[thread.start() for thread in threads]
"""

PROGRAM = """
import sys
from edgegen import LLM
llm = LLM.load(sys.argv[1])
{}
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("stream = llm.stream('a', max_new_tokens=500, eos_token_id=()); next(stream)", 0),
        ("streams = [llm.stream('abc' * 100, num_beams=4, max_new_tokens=200) for _ in range(3)]", 0),
        ("stream = llm.stream('a', max_new_tokens=500, eos_token_id=()); next(stream); sys.exit(3)", 3),
        ("stream = llm.stream('a' * 500); raise SystemExit", 0),
        (LOOP, 0),
        ("import atexit; stream = llm.stream('a', max_new_tokens=500); atexit.register(stream.close)", 0),
    ],
)
def test_a_program_may_end_amid_a_run(int8_bundle: Bundle, ending: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(ending), str(int8_bundle.path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, "")
