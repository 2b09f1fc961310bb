"""LLM over a fake model: options, text, ends, errors, several requests at once."""

import gc
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgegen.errors import LogitsError, OptionError, PromptTooLongError, UsageError
from edgegen.llm import LLM, GenerationResult, TextStream
from edgegen.options.generation import GenerationOptions
from tests.runtime.models import (
    D_AND_HALF_A_CHARACTER,
    END,
    EOS,
    THE,
    VOCAB_SIZE,
    FailAt,
    FakeGraphs,
    Gate,
    InterruptAt,
    NextId,
    after_prompt,
    digest_of,
    fake_llm,
    random_ids,
)
from tests.waiting import PATIENCE_S

Make = Callable[..., LLM]


@pytest.fixture
def graphs() -> FakeGraphs:
    return FakeGraphs(digest_of)


@pytest.fixture
def llm(graphs: FakeGraphs, tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", graphs)


@pytest.fixture
def answering(tmp_path: Path) -> Make:
    """Makes models that give chosen ids after a prompt of one id."""
    count = 0

    def make(*answer: int, **options: Any) -> LLM:
        nonlocal count
        count += 1
        return fake_llm(tmp_path / f"answering-{count}", FakeGraphs(after_prompt(*answer)), **options)

    return make


def answer_of(next_id: NextId, prompt: list[int], count: int) -> tuple[int, ...]:
    ids = list(prompt)
    for _ in range(count):
        ids.append(next_id(ids))
    return tuple(ids[len(prompt) :])


PROMPT = random_ids(21)
ANSWER = answer_of(digest_of, PROMPT, 400)


class TestOptions:
    def test_come_from_the_bundle_and_are_overridden_by_the_caller(self, answering: Make) -> None:
        config = {"max_new_tokens": 5, "eos_token_id": 66}
        llm = answering(65, 65, 66, 65, config=config)
        assert llm.generate([1]).token_ids == (65, 65, 66)
        assert llm.generate([1], eos_token_id=()).token_ids == (65, 65, 66, 65, 0)
        assert llm.generate([1], eos_token_id=None).token_ids == (65, 65, 66)
        assert llm.generate([1], max_new_tokens=2).finish_reason == "length"

    def test_of_the_callers_own_replace_the_bundles_but_not_its_end_of_sequence(self, answering: Make) -> None:
        llm = answering(65, 65, 66, 65, config={"max_new_tokens": 2, "eos_token_id": 66})
        assert llm.generate([1], GenerationOptions()).token_ids == (65, 65, 66)
        assert llm.generate([1], GenerationOptions(max_new_tokens=4, eos_token_id=())).token_ids == (65, 65, 66, 65)
        assert llm.generate([1], GenerationOptions(), max_new_tokens=1).token_ids == (65,)

    def test_unknown_ones_are_refused_with_the_nearest_name_before_any_work(self, llm: LLM, graphs: FakeGraphs) -> None:
        wrong: dict[str, Any] = {"max_new_token": 3}
        with pytest.raises(OptionError, match="did you mean 'max_new_tokens'"):
            llm.generate("a", **wrong)
        with pytest.raises(OptionError, match="did you mean 'max_new_tokens'"):
            llm.stream("a", **wrong)
        assert graphs.runs == []

    def test_of_another_kind_are_refused(self, llm: LLM, graphs: FakeGraphs) -> None:
        with pytest.raises(UsageError, match="options must be GenerationOptions, not dict: give others by name"):
            llm.generate(PROMPT, {"max_new_tokens": 3})  # pyright: ignore[reportArgumentType, reportCallIssue]
        assert not graphs.runs

    def test_greedy_results_have_no_seed_and_sampled_ones_say_theirs(self, llm: LLM) -> None:
        assert llm.generate("a", max_new_tokens=1).seed is None
        assert llm.generate("a", max_new_tokens=1, temperature=0, seed=5).seed is None
        assert llm.generate("a", max_new_tokens=1, seed=5).seed == 5
        drawn = {llm.generate("a", max_new_tokens=1, do_sample=True).seed for _ in range(5)}
        assert len(drawn) == 5


class TestPrompts:
    def test_text_and_its_ids_are_the_same_prompt(self, llm: LLM) -> None:
        text = "Zoë asked: “Why?”"
        assert (
            llm.generate(text, max_new_tokens=9).token_ids
            == llm.generate(list(text.encode()), max_new_tokens=9).token_ids
        )

    def test_an_empty_one_begins_with_the_models_own_token(self, llm: LLM) -> None:
        assert llm.encode("") == llm.encode([]) == [EOS]
        assert llm.generate("", max_new_tokens=3).token_ids == answer_of(digest_of, [EOS], 3)

    @pytest.mark.parametrize("bos", [None, VOCAB_SIZE, 50256, [3], "x"])
    def test_an_empty_one_is_refused_where_the_model_has_no_such_token(self, answering: Make, bos: Any) -> None:
        with pytest.raises(UsageError, match="the prompt is empty"):
            answering(config={"bos_token_id": bos}).generate("")

    @pytest.mark.parametrize("ids", [[VOCAB_SIZE], [0, -1], [5, 10**30]])
    def test_ids_outside_the_vocabulary_are_refused(self, llm: LLM, graphs: FakeGraphs, ids: list[int]) -> None:
        with pytest.raises(UsageError, match=f"token id {ids[-1]} .* vocabulary of {VOCAB_SIZE}"):
            llm.generate(ids)
        assert graphs.runs == []

    @pytest.mark.parametrize("prompt", [b"ab", None, 5, 1.5, [1.5], [None], [[1, 2]], ("a", "b")])
    def test_what_is_neither_text_nor_ids_is_refused(self, llm: LLM, prompt: Any) -> None:
        with pytest.raises(UsageError, match="a text or a list of token ids"):
            llm.generate(prompt)

    def test_half_a_character_is_refused(self, llm: LLM) -> None:
        with pytest.raises(UsageError, match="no Unicode text: character 2 "):
            llm.generate("ab\udc80")

    def test_a_list_of_texts_gets_a_list_of_answers(self, llm: LLM) -> None:
        texts = ["one", "two", "", "three"]
        results = llm.generate(texts, max_new_tokens=6)
        assert [result.token_ids for result in results] == [
            llm.generate(text, max_new_tokens=6).token_ids for text in texts
        ]

    def test_without_a_tokenizer_ids_go_in_and_ids_come_out(self, graphs: FakeGraphs, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "ids only", graphs, tokenizer=False)
        result = llm.generate(PROMPT, max_new_tokens=7)
        assert (result.token_ids, result.text) == (ANSWER[:7], "")
        with pytest.raises(UsageError, match="no tokenizer"):
            llm.generate("text")
        with pytest.raises(UsageError, match="stop_strings needs a tokenizer"):
            llm.generate(PROMPT, stop_strings="x")


class TestContext:
    def test_a_prompt_that_does_not_fit_is_refused_before_any_work(self, graphs: FakeGraphs, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "short", graphs, max_context=32)
        with pytest.raises(PromptTooLongError, match="has 33 tokens, but this model's context is 32"):
            llm.generate([1] * 33)
        with pytest.raises(PromptTooLongError):
            llm.generate(["fits", "x" * 33])
        assert graphs.runs == []
        assert llm.generate([1] * 32, max_new_tokens=9).finish_reason == "length"

    @pytest.mark.parametrize("prompt", [1, 5, 31, 32])
    def test_the_answer_is_clipped_to_what_the_context_leaves(
        self, graphs: FakeGraphs, tmp_path: Path, prompt: int
    ) -> None:
        """The last token needs no room: its keys and values are never computed."""
        llm = fake_llm(tmp_path / "short", graphs, max_context=32)
        result = llm.generate(random_ids(prompt), max_new_tokens=1000)
        assert len(result.token_ids) == 32 - prompt + 1
        assert (result.finish_reason, result.matched) == ("length", None)
        assert result.token_ids == answer_of(digest_of, random_ids(prompt), 32 - prompt + 1)


class TestEnds:
    @pytest.mark.parametrize("eos", [66, [66], [1, 66, 2]])
    def test_an_end_of_sequence_id_ends_the_text_and_is_not_part_of_it(self, answering: Make, eos: Any) -> None:
        result = answering(65, 66, 67).generate([1], eos_token_id=eos)
        assert (result.text, result.token_ids) == ("A", (65, 66))
        assert (result.finish_reason, result.matched) == ("stop", 66)

    def test_the_first_of_several_ends_it(self, answering: Make) -> None:
        assert answering(65, 67, 66).generate([1], eos_token_id=[66, 67]).matched == 67

    @pytest.mark.parametrize(
        ("stops", "text", "matched", "ids"),
        [
            ("CD", "AB", "CD", 4),
            (["XY", "BCDE"], "A", "BCDE", 5),
            (["DEF", "CD"], "AB", "CD", 4),
            ("ABCDEFG", "", "ABCDEFG", 7),
        ],
    )
    def test_a_stop_string_across_tokens_ends_the_text_before_it(
        self, answering: Make, stops: Any, text: str, matched: str, ids: int
    ) -> None:
        llm = answering(*b"ABCDEFGH")
        result = llm.generate([1], stop_strings=stops)
        assert (result.text, result.finish_reason, result.matched) == (text, "stop", matched)
        assert len(result.token_ids) == ids

    def test_an_unfinished_stop_string_is_text_after_all(self, answering: Make) -> None:
        result = answering(*b"ABCD").generate([1], stop_strings="CDE", max_new_tokens=4)
        assert (result.text, result.finish_reason) == ("ABCD", "length")

    def test_a_stop_string_that_waited_for_an_earlier_one_ends_the_text_at_the_limit(self, answering: Make) -> None:
        result = answering(*b"ABCD").generate([1], stop_strings=["ABCDE", "CD"], max_new_tokens=4)
        assert (result.text, result.finish_reason, result.matched) == ("AB", "stop", "CD")

    def test_half_a_character_behind_a_stop_string_is_not_shown(self, answering: Make) -> None:
        llm = answering(65, 69, 78, D_AND_HALF_A_CHARACTER)
        result = llm.generate([1], stop_strings="END")
        assert (result.text, result.finish_reason, result.matched) == ("A", "stop", "END")

    def test_special_tokens_are_not_shown(self, answering: Make) -> None:
        assert answering(65, EOS, THE, END, 65).generate([1], max_new_tokens=5).text == "A theENDA"


def assert_true(value: bool) -> None:
    assert value


def read(stream: TextStream) -> list[str]:
    return [chunk.text for chunk in stream]


class TestStreams:
    def test_a_character_is_given_out_whole(self, answering: Make) -> None:
        llm = answering(*"né 👩‍👧!".encode())
        stream = llm.stream([1], max_new_tokens=len("né 👩‍👧!".encode()))
        assert [text for text in read(stream) if text] == ["n", "é", " ", "👩", "\u200d", "👧", "!"]

    def test_half_a_character_at_the_end_is_a_replacement(self, answering: Make) -> None:
        llm = answering(65, *"👧".encode()[:2])
        assert read(llm.stream([1], max_new_tokens=3)) == ["A", "", "\ufffd"]

    def test_a_prompt_that_ends_inside_a_character_is_continued(self, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "half", FakeGraphs(after_prompt(0xA9, 0x41, prompt=2)))
        assert llm.generate([0x41, 0xC3], max_new_tokens=2).text == "A"

    @settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        text=st.text("aé👩\u200dstop ", max_size=20),
        stops=st.lists(st.sampled_from(["stop", "op ", "é👩", "ss", "👩\u200d"]), max_size=3),
        limit=st.integers(1, 60),
    )
    def test_pieces_put_together_are_the_text_and_show_nothing_of_a_stop_string(
        self, tmp_path_factory: pytest.TempPathFactory, text: str, stops: list[str], limit: int
    ) -> None:
        data = text.encode()
        graphs = FakeGraphs(after_prompt(*data, EOS))
        llm = fake_llm(tmp_path_factory.mktemp("fake") / "fake", graphs)
        limit = min(limit, len(data) + 1)
        with llm.stream([1], max_new_tokens=limit, stop_strings=stops, eos_token_id=EOS) as stream:
            chunks = list(stream)
        result = stream.result
        assert "".join(chunk.text for chunk in chunks) == result.text
        assert tuple(token for chunk in chunks for token in chunk.token_ids) == result.token_ids
        assert not any("\ufffd" in chunk.text for chunk in chunks[:-1])
        assert not any(stop in result.text for stop in stops)
        assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + [result.finish_reason]
        assert text.startswith(result.text.rstrip("\ufffd"))
        again = llm.generate([1], max_new_tokens=limit, stop_strings=stops, eos_token_id=EOS)
        assert (again.text, again.token_ids) == (result.text, result.token_ids)

    def test_the_result_is_there_only_at_the_end(self, llm: LLM, graphs: FakeGraphs) -> None:
        gate = Gate(graphs, 4)  # the first id comes of the third
        stream = llm.stream(PROMPT, max_new_tokens=3)
        with pytest.raises(UsageError, match="has not ended"):
            _ = stream.result
        next(stream)
        with pytest.raises(UsageError, match="has not ended"):
            _ = stream.result
        gate.opened.set()
        list(stream)
        assert stream.result.token_ids == ANSWER[:3]

    def test_a_closed_stream_has_what_was_made_until_then(self, llm: LLM, graphs: FakeGraphs) -> None:
        Gate(graphs, 5)  # the second id comes of the fourth
        stream = llm.stream(PROMPT, max_new_tokens=9)
        next(stream)
        next(stream)
        stream.close()
        stream.close()
        assert list(stream) == []
        assert (stream.result.finish_reason, stream.result.token_ids) == ("cancelled", ANSWER[:2])

    def test_a_result_has_the_whole_text_even_before_it_is_read(self, tmp_path: Path) -> None:
        """Waiting for the second request completes the first, whose reader has not come yet."""
        llm = fake_llm(tmp_path / "two", FakeGraphs(after_prompt(*b"ABC")))
        first, second = (llm.stream([1], max_new_tokens=3) for _ in range(2))
        assert read(second) == ["A", "B", "C"]
        assert first.result.text == "ABC"
        next(first)
        assert first.result.text == "ABC"
        assert read(first) == ["B", "C"]


class TestTimings:
    def test_tell_tokens_and_seconds(self, llm: LLM, graphs: FakeGraphs) -> None:
        graphs.before_run = lambda: time.sleep(0.004)
        begin = time.perf_counter()
        timings = llm.generate(PROMPT, max_new_tokens=6).timings
        passed = time.perf_counter() - begin
        assert (timings.prompt_tokens, timings.decode_tokens) == (21, 5)
        assert 3 * 0.004 <= timings.prompt_seconds < passed
        assert 5 * 0.004 <= timings.decode_seconds < passed
        assert timings.prompt_seconds + timings.decode_seconds <= passed
        assert timings.prompt_tokens_per_second == pytest.approx(21 / timings.prompt_seconds)
        assert timings.decode_tokens_per_second == pytest.approx(5 / timings.decode_seconds)

    def test_waiting_for_others_is_not_counted(self, llm: LLM, graphs: FakeGraphs) -> None:
        graphs.before_run = lambda: time.sleep(0.002)
        results = llm.generate(["first one", "second one"], max_new_tokens=20)
        assert results[1].timings.prompt_seconds < results[0].timings.decode_seconds

    def test_of_a_single_token_have_no_rate(self, llm: LLM) -> None:
        timings = llm.generate(PROMPT, max_new_tokens=1).timings
        assert (timings.decode_tokens, timings.decode_seconds, timings.decode_tokens_per_second) == (0, 0.0, 0.0)

    def test_of_a_request_cancelled_before_its_turn_are_zero(self, llm: LLM, graphs: FakeGraphs) -> None:
        gate = Gate(graphs, 1)
        first, stream = llm.stream([1], max_new_tokens=2), llm.stream(PROMPT)
        stream.close()
        gate.opened.set()
        list(first)
        timings = stream.result.timings
        assert (timings.prompt_seconds, timings.decode_tokens, timings.decode_seconds) == (0.0, 0, 0.0)


def fresh(folder: Path, prompt: list[int] = PROMPT, count: int = 30) -> GenerationResult:
    return fake_llm(folder / "fresh", FakeGraphs(digest_of)).generate(prompt, max_new_tokens=count)


class TestSeveralRequests:
    def test_interleaved_in_one_thread_get_what_they_would_get_alone(self, llm: LLM) -> None:
        prompts = [random_ids(3 + 9 * n, seed=n) for n in range(4)]
        streams = [llm.stream(prompt, max_new_tokens=12) for prompt in prompts]
        got: list[list[int]] = [[] for _ in prompts]
        for _ in range(13):
            for ids, stream in zip(reversed(got), reversed(streams), strict=True):
                for chunk in [next(stream, None)]:
                    ids += chunk.token_ids if chunk else ()
        assert [tuple(ids) for ids in got] == [answer_of(digest_of, prompt, 12) for prompt in prompts]
        assert all(stream.result.finish_reason == "length" for stream in streams)

    def test_are_served_in_the_order_of_arrival(self, graphs: FakeGraphs, llm: LLM) -> None:
        first, second = (llm.stream(random_ids(n), max_new_tokens=3) for n in (5, 6))
        next(second)
        assert [run for run in graphs.runs if run[0] == "prefill"] == [("prefill", 5), ("prefill", 6)]
        assert [chunk.token_ids[0] for chunk in first] == list(answer_of(digest_of, random_ids(5), 3))

    def test_from_several_threads_get_what_they_would_get_alone(self, llm: LLM, graphs: FakeGraphs) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        prompts = [random_ids(1 + 5 * n, seed=n) for n in range(6)]
        results: dict[tuple[int, int], tuple[str, GenerationResult]] = {}

        def work(n: int) -> None:
            for turn in range(8):
                with llm.stream(prompts[n], max_new_tokens=5 + turn) as stream:
                    text = "".join(chunk.text for chunk in stream)
                    results[n, turn] = text, stream.result

        threads = [threading.Thread(target=work, args=(n,)) for n in range(len(prompts))]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
        finally:
            sys.setswitchinterval(interval)
        assert len(results) == 6 * 8
        for (n, turn), (text, result) in results.items():
            assert result.token_ids == answer_of(digest_of, prompts[n], 5 + turn)
            assert text == result.text
            assert result.finish_reason == "length"

    def test_closing_a_stream_at_any_moment_hurts_nobody(self, llm: LLM) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        failures: list[BaseException] = []
        stop = threading.Event()

        def generate() -> None:
            try:
                while not stop.is_set():
                    assert llm.generate(PROMPT, max_new_tokens=4).token_ids == ANSWER[:4]
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=generate)
        thread.start()
        try:
            for _ in range(300):
                stream = llm.stream(PROMPT, max_new_tokens=2)
                next(stream)
                stream.close()
        finally:
            stop.set()
            thread.join(PATIENCE_S)
            sys.setswitchinterval(interval)
        assert failures == []


class TestCancelling:
    def test_leaves_the_model_as_good_as_new(self, llm: LLM, tmp_path: Path) -> None:
        for steps in range(6):
            stream = llm.stream(random_ids(30, seed=steps), max_new_tokens=50)
            for _ in range(steps):
                next(stream)
            stream.close()
        assert llm.generate(PROMPT, max_new_tokens=30).token_ids == fresh(tmp_path).token_ids

    def test_by_leaving_the_with_block(self, llm: LLM, graphs: FakeGraphs) -> None:
        with llm.stream(PROMPT) as stream:
            next(stream)
        runs = len(graphs.runs)
        llm.generate([1], max_new_tokens=1)
        assert len(graphs.runs) <= runs + 2  # one may have been under way

    def test_by_forgetting_the_stream(self, llm: LLM, graphs: FakeGraphs) -> None:
        stream = llm.stream(PROMPT)
        next(stream)
        unread = llm.stream(PROMPT)
        del stream, unread
        gc.collect()
        runs = len(graphs.runs)
        assert llm.generate(PROMPT, max_new_tokens=1).token_ids == ANSWER[:1]
        assert len(graphs.runs) <= runs + 3 + 1  # the chunks of one prompt, and what was under way

    @pytest.mark.parametrize("place", ["before_run", "after_run"])
    @pytest.mark.parametrize("at", [1, 2, 4, 6])
    def test_by_an_interrupt(self, llm: LLM, graphs: FakeGraphs, tmp_path: Path, place: str, at: int) -> None:
        setattr(graphs, place, InterruptAt(at))
        with pytest.raises(KeyboardInterrupt):
            llm.generate(random_ids(30), max_new_tokens=50)
        runs = len(graphs.runs)
        assert llm.generate(PROMPT, max_new_tokens=30).token_ids == fresh(tmp_path).token_ids
        assert len(graphs.runs) <= runs + 1 + 3 + 29

    def test_an_interrupt_ends_a_whole_list(self, llm: LLM, graphs: FakeGraphs) -> None:
        """A request that no caller waits for any more must not delay the next one."""
        graphs.after_run = InterruptAt(2, graphs)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(["a", *("bbb" for _ in range(50))], max_new_tokens=50)
        llm.generate("dd", max_new_tokens=1)
        assert graphs.runs.count(("prefill", 3)) < 25

    def test_an_interrupt_of_one_stream_does_not_hurt_the_others(self, llm: LLM, graphs: FakeGraphs) -> None:
        ready = threading.Event()
        graphs.before_run, graphs.after_run = lambda: assert_true(ready.wait(PATIENCE_S)), InterruptAt(6)
        first, second = (llm.stream(PROMPT, max_new_tokens=10) for _ in range(2))

        def read_second() -> None:
            ready.set()
            next(second)

        with pytest.raises(KeyboardInterrupt):
            read_second()
        list(first)
        assert first.result.token_ids == ANSWER[:10]
        assert list(second) == []

    def test_a_stream_keeps_its_model_until_it_has_ended(self, graphs: FakeGraphs, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "dropped", graphs)
        stream = llm.stream(PROMPT, max_new_tokens=3)
        del llm
        assert tuple(token for chunk in stream for token in chunk.token_ids) == ANSWER[:3]


class TestFailures:
    @pytest.mark.parametrize("error", [RuntimeError("the graph failed"), BaseException("a library's panic")], ids=repr)
    def test_reach_only_their_own_caller(self, llm: LLM, graphs: FakeGraphs, error: BaseException) -> None:
        graphs.before_run = FailAt(2, error)  # amid the first prompt
        first, second = (llm.stream(PROMPT, max_new_tokens=10) for _ in range(2))
        with pytest.raises(type(error), match=str(error)):
            list(first)
        list(second)
        assert second.result.token_ids == ANSWER[:10]

    def test_leave_what_was_made_before_to_be_read(self, llm: LLM, graphs: FakeGraphs) -> None:
        graphs.before_run = FailAt(6, RuntimeError("the graph failed"))
        stream = llm.stream(PROMPT, max_new_tokens=10)
        got: list[int] = []
        with pytest.raises(RuntimeError, match="the graph failed"):
            got.extend(token for chunk in stream for token in chunk.token_ids)
        assert tuple(got) == ANSWER[:3]

    def test_in_a_list_end_the_list(self, llm: LLM, graphs: FakeGraphs) -> None:
        def fail() -> None:
            Gate(graphs, 1)  # until the caller gives up the rest
            raise RuntimeError("the graph failed")

        graphs.before_run = fail
        with pytest.raises(RuntimeError, match="the graph failed"):
            llm.generate(["a", *("bbb" for _ in range(50))], max_new_tokens=50)
        graphs.before_run = lambda: None
        llm.generate("dd", max_new_tokens=1)
        assert graphs.runs.count(("prefill", 3)) < 50


class TestProcessors:
    def test_one_of_the_callers_sees_ids_and_changes_logits(self, llm: LLM) -> None:
        seen: list[list[int]] = []

        def only_sevens(ids: Any, logits: Any) -> Any:
            seen.append(ids.tolist())
            logits[:] = -1.0
            logits[7] = 0.0
            return logits

        answer = llm.generate(PROMPT, max_new_tokens=3, logits_processor=[only_sevens])
        assert answer.token_ids == (7, 7, 7)
        assert seen == [PROMPT, [*PROMPT, 7], [*PROMPT, 7, 7]]

    def test_when_nothing_is_left_the_error_names_the_token_and_the_model_goes_on(self, llm: LLM) -> None:
        def nothing_at_the_third(ids: Any, logits: Any) -> Any:
            return logits * 0.0 - float("inf") if len(ids) == len(PROMPT) + 2 else logits

        with pytest.raises(LogitsError, match="at token 3 of the answer, no token is left to choose from"):
            llm.generate(PROMPT, max_new_tokens=5, logits_processor=[nothing_at_the_third])
        assert llm.generate(PROMPT, max_new_tokens=4).token_ids == ANSWER[:4]

    def test_ids_outside_the_vocabulary_are_refused_before_any_step(self, llm: LLM, graphs: FakeGraphs) -> None:
        with pytest.raises(OptionError, match=f"token id {VOCAB_SIZE} is outside"):
            llm.generate(PROMPT, suppress_tokens=[VOCAB_SIZE])
        assert llm.generate(PROMPT, max_new_tokens=2, suppress_tokens=[ANSWER[0]]).token_ids[0] != ANSWER[0]
