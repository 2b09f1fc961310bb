"""Perplexity: windows that score each token once, and what they add up to."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.errors import OptionError, UsageError
from edgegen.generation.cancellation import CancelToken
from edgegen.llm import LLM
from edgegen.scoring.perplexity import LARGEST_WINDOW, NllRecorder, windows
from edgegen.scoring.scores import Perplexity, perplexity_of
from tests.runtime.models import VOCAB_SIZE, FailAt, FakeGraphs, InterruptAt, digest_of, fake_llm, random_ids

LIKELY = math.log(1 + (VOCAB_SIZE - 1) * math.exp(-18))
UNLIKELY = LIKELY + 18
"""Nats of the fake model's next id, and of any other."""


@pytest.fixture
def graphs() -> FakeGraphs:
    return FakeGraphs(digest_of)


@pytest.fixture
def llm(graphs: FakeGraphs, tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", graphs, max_context=64)


def half_foreseen(count: int, seed: int = 0) -> list[int]:
    """Ids of which the fake model foresees some, if it sees them from the first."""
    ids, drawn = [7], random_ids(count, seed)
    for token in drawn[1:]:
        ids.append(digest_of(ids) if token % 2 else token)
    return ids


def fake_nll(ids: list[int], window: int, stride: int) -> float:
    """The mean, by transformers' recipe, token by token, and the fake model's definition."""
    found, end = list[float](), 1
    for begin in range(0, len(ids), stride):
        last, end = end, min(begin + window, len(ids))
        found += [LIKELY if digest_of(ids[begin:at]) == ids[at] else UNLIKELY for at in range(last, end)]
        if end == len(ids):
            break
    assert len(found) == len(ids) - 1
    return sum(found) / len(found)


class TestWindows:
    @given(tokens=st.integers(2, 500), window=st.integers(2, 80), data=st.data())
    def test_score_each_token_but_the_first_once_and_see_enough_before_it(
        self, tokens: int, window: int, data: st.DataObject
    ) -> None:
        stride = data.draw(st.integers(1, window - 1))
        cut = list(windows(tokens, window, stride))
        assert [at for one in cut for at in range(one.scored_from, one.end)] == list(range(1, tokens))
        assert all(one.end - one.begin <= window for one in cut)
        assert all(one.scored_from - one.begin == window - stride for one in cut[1:])
        assert [one.begin for one in cut] == [n * stride for n in range(len(cut))]

    def test_one_is_enough_for_a_short_text(self) -> None:
        assert [tuple(one) for one in windows(8, 8, 4)] == [(0, 1, 8)]
        assert [tuple(one) for one in windows(9, 8, 4)] == [(0, 1, 8), (4, 8, 9)]


class TestPerplexity:
    @settings(deadline=None, max_examples=40)
    @given(count=st.integers(2, 200), window=st.integers(2, 64), chunk=st.integers(2, 20), data=st.data())
    def test_is_that_of_the_fake_model(
        self, tmp_path_factory: pytest.TempPathFactory, count: int, window: int, chunk: int, data: st.DataObject
    ) -> None:
        stride = data.draw(st.integers(1, window - 1))
        folder = tmp_path_factory.mktemp("fake") / "fake"
        llm = fake_llm(folder, FakeGraphs(digest_of), max_context=64, prefill_chunk=chunk)
        ids = half_foreseen(count)
        found = llm.perplexity(ids, window=window, stride=stride)
        assert (found.tokens, found.window, found.stride, found.complete) == (count - 1, window, stride, True)
        assert found.nll_per_token == pytest.approx(fake_nll(ids, window, stride), rel=1e-5, abs=1e-6)
        assert found.perplexity == pytest.approx(math.exp(found.nll_per_token))

    def test_of_a_text_is_that_of_its_ids(self, llm: LLM) -> None:
        text = "Zoë asked: “Why?” " * 9
        assert llm.perplexity(text) == llm.perplexity(list(text.encode()))

    def test_takes_the_context_for_a_window_and_half_of_it_for_a_stride(self, llm: LLM, tmp_path: Path) -> None:
        found = llm.perplexity(random_ids(200))
        assert (found.window, found.stride) == (64, 32)
        assert (llm.perplexity([1, 2], window=3).stride, llm.perplexity([1, 2], window=2).stride) == (1, 1)
        large = fake_llm(tmp_path / "large", FakeGraphs(digest_of), max_context=9000)
        assert large.perplexity([1, 2]).window == LARGEST_WINDOW

    def test_tells_how_far_it_is(self, llm: LLM) -> None:
        told = list[tuple[int, int]]()
        llm.perplexity(
            random_ids(200), window=64, stride=50, on_progress=lambda done, total: told.append((done, total))
        )
        assert told == [(63, 199), (113, 199), (163, 199), (199, 199)]

    def test_runs_the_overlap_as_a_prompt(self, llm: LLM, graphs: FakeGraphs) -> None:
        llm.perplexity(random_ids(20), window=12, stride=4)
        assert graphs.runs == [("prefill", 1), ("decode", 8), ("decode", 2), *[("prefill", 8), ("decode", 3)] * 2]

    def test_of_a_model_that_never_expects_it_is_infinite_at_worst(self) -> None:
        assert perplexity_of(1e6, 1) == math.inf
        assert math.isnan(perplexity_of(0.0, 0))
        recorder = NllRecorder()
        recorder.record(np.array([0.0, -math.inf, 5.0], np.float32), 1)
        assert recorder.nlls == [math.inf]

    @given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=50), st.integers(0, 1))
    def test_of_one_token_is_as_exact_as_its_logits(self, logits: list[float], token: int) -> None:
        recorder = NllRecorder()
        values = np.array(logits, np.float32)
        recorder.record(values, token)
        recorder.record(values, token)  # its memory is used again
        exact = [math.fsum(math.exp(x - max(logits)) for x in logits)]
        assert (
            recorder.nlls == [pytest.approx(max(logits) + math.log(exact[0]) - logits[token], rel=1e-5, abs=2e-6)] * 2
        )


class TestRefusals:
    @pytest.mark.parametrize(
        ("how", "message"),
        [
            ({"window": 65}, "window: must be between 2 and 64, found 65"),
            ({"window": 1}, "window: must be between 2 and 64, found 1"),
            ({"window": 2.5}, "window: int expected"),
            ({"stride": 0}, "stride: must be between 1 and 63, found 0"),
            ({"stride": 64}, "stride: must be between 1 and 63, found 64"),
            ({"window": 9, "stride": 9}, "stride: must be between 1 and 8, found 9"),
            ({"window": 0, "stride": 0}, r"2 problems:\n  - window: .*\n  - stride: must be at least 1"),
        ],
    )
    def test_of_windows(self, llm: LLM, graphs: FakeGraphs, how: dict[str, Any], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            llm.perplexity(random_ids(100), **how)
        assert graphs.runs == []

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "the text is too short: it has 0 tokens, and all but the first are scored"),
            ([5], "the text is too short: it has 1 token, and"),
            ([1, VOCAB_SIZE], f"token id {VOCAB_SIZE} of the text is outside"),
            (None, "the text must be a text or a list of token ids"),
            ("ab\udc80", "the text is no Unicode text: character 2"),
        ],
    )
    def test_of_texts(self, llm: LLM, graphs: FakeGraphs, text: Any, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            llm.perplexity(text)
        assert graphs.runs == []


class TestEnds:
    """However it ends, the model is as good as new."""

    IDS = half_foreseen(200)

    @pytest.fixture(autouse=True)
    def as_good_as_new(self, llm: LLM, graphs: FakeGraphs) -> Any:
        yield
        graphs.before_run = lambda: None
        assert llm.perplexity(self.IDS).nll_per_token == pytest.approx(fake_nll(self.IDS, 64, 32))

    def test_cancelled_between_two_windows(self, llm: LLM) -> None:
        token = CancelToken()
        found = llm.perplexity(self.IDS, on_progress=lambda done, total: token.cancel(), cancel=token)
        assert found == Perplexity(found.nll_per_token, 63, 64, 32, complete=False)
        assert found.nll_per_token == pytest.approx(fake_nll(self.IDS[:64], 64, 32))

    @pytest.mark.parametrize("at", [1, 6, 9, 20, 40])
    def test_cancelled_amid_a_window(self, llm: LLM, graphs: FakeGraphs, at: int) -> None:
        token, left = CancelToken(), [at]

        def cancel() -> None:
            left[0] -= 1
            if not left[0]:
                token.cancel()

        graphs.before_run = cancel
        found = llm.perplexity(self.IDS, cancel=token)
        assert not found.complete
        assert found.tokens < 199
        if found.tokens:
            assert found.nll_per_token == pytest.approx(fake_nll(self.IDS[: found.tokens + 1], 64, 32))
        else:
            assert math.isnan(found.perplexity)

    def test_cancelled_before_it_began(self, llm: LLM, graphs: FakeGraphs) -> None:
        token = CancelToken()
        token.cancel()
        assert llm.perplexity(self.IDS, cancel=token).tokens == 0
        assert graphs.runs == []

    @pytest.mark.parametrize("at", [1, 6, 20])
    def test_by_an_interrupt(self, llm: LLM, graphs: FakeGraphs, at: int) -> None:
        graphs.before_run = InterruptAt(at)
        with pytest.raises(KeyboardInterrupt):
            llm.perplexity(self.IDS)

    @pytest.mark.parametrize("at", [1, 6, 20])
    def test_by_a_graph_that_fails(self, llm: LLM, graphs: FakeGraphs, at: int) -> None:
        graphs.before_run = FailAt(at, RuntimeError("the graph failed"))
        with pytest.raises(RuntimeError, match="the graph failed"):
            llm.perplexity(self.IDS)

    def test_by_a_listener_that_fails(self, llm: LLM) -> None:
        def fail(done: int, total: int) -> None:
            raise RuntimeError("the listener failed")

        with pytest.raises(RuntimeError, match="the listener failed"):
            llm.perplexity(self.IDS, on_progress=fail)
