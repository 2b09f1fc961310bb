"""The processors against transformers, llama.cpp's golden values and their definitions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.errors import OptionError
from edgegen.sampling import Candidates, LogitsContext, LogitsProcessor
from edgegen.sampling.processors.distribution import Temperature
from edgegen.sampling.processors.penalties import RepetitionPenalty
from edgegen.sampling.processors.truncation import TopK, TopP

CONTEXT = LogitsContext(())
Logits = NDArray[np.float32]
Warp = Callable[[str, float, Logits], Logits]


def array(values: list[float]) -> Logits:
    return np.array(values, dtype=np.float32)


def random_logits(seed: int, size: int, spread: float) -> Logits:
    return np.random.default_rng(seed).normal(0, spread, size).astype(np.float32)


def with_ties(some: list[float]) -> Logits:
    return array([*some, 1.0])


def rounded(seed: int) -> Logits:
    return np.rint(random_logits(seed, 3000, 2.0))


LOGITS = st.one_of(
    st.lists(st.floats(-40, 40, width=32), min_size=1, max_size=40).map(array),
    st.lists(st.sampled_from([-np.inf, 0.0, 0.5, 1.0, 2.0]), max_size=60).map(with_ties),
    st.builds(random_logits, st.integers(0, 1000), st.integers(1, 5000), st.sampled_from([0.01, 1, 3])),
    st.integers(0, 1000).map(rounded),
)


@pytest.fixture(scope="module")
def transformers() -> Warp:
    """``warp(name, parameter, logits)``: what transformers makes of ``[V]`` logits."""
    torch: Any = pytest.importorskip("torch", reason="the oracle needs torch")
    process: Any = pytest.importorskip("transformers.generation.logits_process", reason="the oracle is transformers")

    def warp(name: str, parameter: float, logits: Logits) -> Logits:
        warper = getattr(process, f"{name}LogitsWarper")(parameter)
        return warper(None, torch.from_numpy(logits.copy())[None])[0].numpy()

    return warp


def dense(candidates: Candidates, size: int) -> Logits:
    """``[size]`` logits, minus infinity for what is gone."""
    logits = np.full(size, -np.inf, dtype=np.float32)
    logits[np.arange(size) if candidates.ids is None else candidates.ids] = candidates.logits
    return logits


def left_of(logits: Logits) -> int:
    """How many tokens were not masked."""
    return int(np.count_nonzero(logits > -np.inf))


class TestTemperature:
    @settings(deadline=None)
    @given(logits=LOGITS, temperature=st.floats(1e-4, 1e4))
    def test_is_transformers(self, transformers: Warp, logits: Logits, temperature: float) -> None:
        ours = Temperature(temperature)(Candidates(logits), CONTEXT)
        np.testing.assert_array_equal(ours.logits, transformers("Temperature", temperature, logits))

    def test_keeps_the_ids(self) -> None:
        ids = np.array([3, 7])
        assert Temperature(0.5)(Candidates(array([1, 2]), ids), CONTEXT).ids is ids

    def test_a_finite_mask_may_overflow(self) -> None:
        masked = array([1.0, float(np.finfo(np.float32).min)])
        np.testing.assert_array_equal(Temperature(0.5)(Candidates(masked), CONTEXT).logits, array([2.0, -np.inf]))

    @pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf"), 1e-40])
    def test_refuses_what_is_no_temperature(self, temperature: float) -> None:
        with pytest.raises(OptionError, match="temperature must be a positive number"):
            Temperature(temperature)


class TestTopK:
    @settings(deadline=None, max_examples=300)
    @given(logits=LOGITS, k=st.integers(1, 80))
    def test_is_transformers(self, transformers: Warp, logits: Logits, k: int) -> None:
        ours = TopK(k)(Candidates(logits), CONTEXT)
        np.testing.assert_array_equal(dense(ours, logits.size), transformers("TopK", k, logits))

    @pytest.mark.parametrize("k", [1, 50, 1500, 1600, 50_000, 50_257, 60_000])
    def test_is_transformers_over_a_whole_vocabulary(self, transformers: Warp, k: int) -> None:
        logits = random_logits(k, 50_257, 3)
        ours = TopK(k)(Candidates(logits), CONTEXT)
        np.testing.assert_array_equal(dense(ours, logits.size), transformers("TopK", k, logits))

    def test_keeps_all_that_equal_the_last(self) -> None:
        kept = TopK(2)(Candidates(array([1, 3, 1, 0, 1])), CONTEXT)
        assert kept.ids is not None
        assert kept.ids.tolist() == [0, 1, 2, 4]

    def test_refuses_less_than_one(self) -> None:
        with pytest.raises(OptionError, match="top_k must be at least 1, not 0"):
            TopK(0)


class TestTopP:
    @settings(deadline=None, max_examples=300)
    @given(logits=LOGITS, p=st.sampled_from([0.0, 1e-9, 0.1, 0.5, 0.9, 0.95, 0.999, 1.0]) | st.floats(0, 1))
    def test_is_transformers(self, transformers: Warp, logits: Logits, p: float) -> None:
        ascending = logits.argsort(kind="stable")
        exact = np.exp(logits[ascending].astype(np.float64) - logits.max())
        cumulated = exact.cumsum() / exact.sum()
        # Sums this near to the bound go one way or the other by rounding; all others are decided.
        most_left = logits.size - min(int(cumulated.searchsorted(1 - p - 1e-5)), logits.size - 1)
        least_left = max(1, int((cumulated > 1 - p + 1e-5).sum()))

        ours = dense(TopP(p)(Candidates(logits), CONTEXT), logits.size)
        theirs = transformers("TopP", p, logits)
        for kept in (ours, theirs):
            left = np.flatnonzero(kept > -np.inf)
            assert least_left <= left.size <= most_left
            np.testing.assert_array_equal(np.sort(kept[left]), logits[ascending[-left.size :]])
        # Their sort leaves it open which of equals go, ours does not.
        np.testing.assert_array_equal(np.flatnonzero(ours > -np.inf), np.sort(ascending[-left_of(ours) :]))

    @pytest.mark.parametrize("spread", [0.0, 0.01, 0.5, 3.0])
    def test_is_transformers_over_a_whole_vocabulary(self, transformers: Warp, spread: float) -> None:
        logits = random_logits(5, 50_257, spread)
        ours = dense(TopP(0.9)(Candidates(logits), CONTEXT), logits.size)
        # Their sums over a whole vocabulary are off by some parts in a million.
        assert abs(left_of(ours) - left_of(transformers("TopP", 0.9, logits))) <= 5

    def test_one_token_stays_at_least(self) -> None:
        kept = TopP(0.0)(Candidates(array([1, 2, 2, 0])), CONTEXT)
        assert kept.ids is not None
        assert kept.ids.tolist() == [2]

    @settings(deadline=None)
    @given(logits=LOGITS, p=st.floats(0, 1), k=st.integers(1, 50))
    def test_is_the_same_on_masked_and_on_removed_tokens(self, logits: Logits, p: float, k: int) -> None:
        removed = TopK(k)(Candidates(logits), CONTEXT)
        masked = Candidates(dense(removed, logits.size))
        np.testing.assert_array_equal(
            dense(TopP(p)(removed, CONTEXT), logits.size), dense(TopP(p)(masked, CONTEXT), logits.size)
        )

    @pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
    def test_refuses_what_is_no_probability(self, p: float) -> None:
        with pytest.raises(OptionError, match="top_p is a probability"):
            TopP(p)


@settings(deadline=None)
@given(logits=LOGITS)
def test_processors_leave_what_they_are_given(logits: Logits) -> None:
    before = logits.copy()
    processors: list[LogitsProcessor] = [Temperature(0.7), TopK(3), TopP(0.5)]
    for process in processors:
        process(Candidates(logits), CONTEXT)
    np.testing.assert_array_equal(logits, before)


@settings(deadline=None)
@given(logits=LOGITS, seen=st.lists(st.integers(0, 59), max_size=30), penalty=st.sampled_from([0.5, 1.1, 1.3, 2.0]))
def test_repetition_penalty_is_that_of_transformers(logits: Logits, seen: list[int], penalty: float) -> None:
    torch: Any = pytest.importorskip("torch", reason="the oracle needs torch")
    process: Any = pytest.importorskip("transformers.generation.logits_process", reason="the oracle is transformers")
    ids = [i for i in seen if i < logits.size]
    ours = RepetitionPenalty(penalty)(Candidates(logits), LogitsContext(ids)).logits
    if not ids:
        assert np.array_equal(ours, logits)
        return
    theirs = process.RepetitionPenaltyLogitsProcessor(penalty)(
        torch.tensor([ids]), torch.from_numpy(logits.copy())[None]
    )
    assert np.allclose(ours, theirs[0].numpy(), rtol=1e-6)


def test_repetition_penalty_finds_its_tokens_among_a_few_candidates() -> None:
    few = Candidates(array([1.0, 2.0, -3.0]), np.array([4, 7, 9], np.int64))
    left = RepetitionPenalty(2.0)(few, LogitsContext([9, 1, 7, 7, 30]))
    assert left.logits.tolist() == [1.0, 1.0, -6.0]
    assert few.logits.tolist() == [1.0, 2.0, -3.0]


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("inf"), float("nan")])
def test_a_repetition_penalty_that_is_not_positive_is_refused(penalty: float) -> None:
    with pytest.raises(OptionError, match="repetition_penalty"):
        RepetitionPenalty(penalty)
