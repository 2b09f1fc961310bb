"""Candidates and the pipeline that narrows them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.errors import EdgegenError, OptionError
from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline, LogitsSettings
from edgegen.sampling.candidates import WEIGHT_OF_BEST
from edgegen.sampling.processors.distribution import Temperature
from edgegen.sampling.processors.truncation import TopK, TopP

CONTEXT = LogitsContext((1, 2, 3))


def candidates(*logits: float) -> Candidates:
    return Candidates(np.array(logits, dtype=np.float32))


class TestCandidates:
    def test_a_whole_vocabulary_needs_no_list_of_ids(self) -> None:
        whole = candidates(1, 2, 3)
        assert whole.ids is None
        assert whole.id_at(2) == 2

    def test_keeps_ids_through_several_choices(self) -> None:
        kept = candidates(0, 1, 2, 3, 4).keep(np.array([1, 3, 4])).keep(np.array([0, 2]))
        assert [kept.id_at(i) for i in range(2)] == [1, 4]
        assert kept.logits.tolist() == [1, 4]
        assert kept.logits.dtype == np.float32

    def test_the_best_of_equals_has_the_lowest_id(self) -> None:
        assert candidates(1, 5, 5, 2).best() == 1
        assert candidates(1, -np.inf).best() == 0

    def test_weights_are_probabilities_in_whole_numbers(self) -> None:
        weights = candidates(2, 1, -np.inf, 2, -100).weights()
        assert weights.dtype == np.float32
        assert weights[[0, 2, 3, 4]].tolist() == [WEIGHT_OF_BEST, 0, WEIGHT_OF_BEST, 0]
        np.testing.assert_allclose(weights[1], WEIGHT_OF_BEST * np.exp(-1), rtol=1e-6)

    @settings(deadline=None)
    @given(size=st.integers(1, 300), seed=st.integers(0, 1000), keep=st.integers(1, 300))
    def test_a_weight_does_not_depend_on_its_place(self, size: int, seed: int, keep: int) -> None:
        generator = np.random.default_rng(seed)
        whole = Candidates(generator.normal(0, 5, size).astype(np.float32))
        kept = np.union1d(generator.integers(0, size, keep), whole.best())
        np.testing.assert_array_equal(whole.keep(kept).weights(), whole.weights()[kept])

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_numbers_that_broke_down_are_an_error(self, bad: float) -> None:
        for use in (Candidates.best, Candidates.weights):
            with pytest.raises(EdgegenError, match="logits are NaN or infinite"):
                use(candidates(1, bad, 2, float("-inf")))

    def test_nothing_left_is_an_error(self) -> None:
        for use in (Candidates.best, Candidates.weights):
            with pytest.raises(EdgegenError, match="no token is left"):
                use(candidates(float("-inf"), float("-inf")))


class TestLogitsPipeline:
    def test_options_ask_for_processors_in_order(self) -> None:
        pipeline = LogitsPipeline.from_settings(LogitsSettings(temperature=0.5, top_k=3, top_p=0.9), do_sample=True)
        assert [type(p) for p in pipeline.processors] == [Temperature, TopK, TopP]

    def test_the_defaults_ask_for_nothing(self) -> None:
        whole = candidates(1, 2)
        pipeline = LogitsPipeline.from_settings(LogitsSettings(), do_sample=True)
        assert pipeline.processors == ()
        assert pipeline(whole, CONTEXT) is whole

    def test_one_processor_works_on_what_the_one_before_left(self) -> None:
        pipeline = LogitsPipeline.from_settings(LogitsSettings(temperature=2.0, top_k=2, top_p=0.6), do_sample=True)
        left = pipeline(candidates(2, 6, 5.9, 1), CONTEXT)
        # At half the logits the best two have 0.512 and 0.488, so that both are needed for 0.6.
        assert left.logits.tolist() == [np.float32(3), np.float32(5.9) / np.float32(2)]

    def test_processors_see_the_sequence(self) -> None:
        seen: list[LogitsContext] = []

        def look(candidates: Candidates, context: LogitsContext) -> Candidates:
            seen.append(context)
            return candidates

        LogitsPipeline([look, LogitsPipeline([look])])(candidates(1), CONTEXT)
        assert seen == [CONTEXT, CONTEXT]

    def test_broken_numbers_do_not_get_lost(self) -> None:
        with pytest.raises(EdgegenError, match="NaN"):
            LogitsPipeline([TopK(1)])(candidates(1, float("nan"), 2), CONTEXT)

    @pytest.mark.parametrize("options", [{"temperature": 0.0}, {"top_k": -1}, {"top_p": 2.0}])
    def test_refuses_values_out_of_range(self, options: dict[str, float]) -> None:
        with pytest.raises(OptionError):
            LogitsPipeline.from_settings(LogitsSettings(**options), do_sample=True)  # pyright: ignore[reportArgumentType]
