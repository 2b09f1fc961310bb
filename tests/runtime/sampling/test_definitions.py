"""Processors that transformers does not have, or computes in too few digits, against their definition in plain float64
NumPy."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline, LogitsSettings
from edgegen.sampling.processors.distribution import guide
from edgegen.sampling.processors.mirostat import Mirostat
from edgegen.sampling.processors.truncation import Xtc
from edgegen.sampling.random_numbers import uniform
from edgegen.sampling.sampler import Sampler
from tests.oracle import import_torch, import_transformers
from tests.runtime.sampling.reference import dense, edgegen_logits

Logits = NDArray[np.float32]

VOCABULARY = 30


def draws(seed: int, spread: float, size: int) -> Logits:
    return np.random.default_rng(seed).normal(0, spread, size).astype(np.float32)


LOGITS = st.builds(draws, st.integers(0, 100_000), st.sampled_from([0.1, 1.0, 3.0, 10.0]), st.integers(1, VOCABULARY))
IDS = st.lists(st.integers(0, 3) | st.integers(0, VOCABULARY - 1), max_size=60)


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return weights / weights.sum()


def kept(logits: Logits) -> set[int]:
    return set(np.flatnonzero(logits > -np.inf).tolist())


def cut(logits: Logits, **chosen: Any) -> set[int]:
    return kept(edgegen_logits(LogitsSettings(**chosen), logits, [0], prompt_length=1))


class TestOverAWholeVocabulary:
    @pytest.fixture(params=[(50_257, 0.01), (50_257, 1.0), (50_257, 4.0), (151_936, 0.3), (151_936, 3.0)])
    def logits(self, request: pytest.FixtureRequest) -> Logits:
        size, spread = request.param
        return draws(size, spread, size)

    @pytest.mark.parametrize("p", [0.01, 0.2, 0.9, 0.999])
    def test_typical_p(self, logits: Logits, p: float) -> None:
        probabilities = softmax(logits)
        surprise = -np.log(probabilities)
        away = np.abs(surprise - (probabilities * surprise).sum())
        order = away.argsort()
        last = away[order[min(np.searchsorted(probabilities[order].cumsum(), p), logits.size - 1)]]
        found = cut(logits, typical_p=p)
        # The entropy is the sum of as many rounded products: what lies this near to the edge may fall to either side.
        assert found >= set(np.flatnonzero(away < last - 1e-6).tolist())
        assert found <= set(np.flatnonzero(away < last + 1e-6).tolist())

    @pytest.mark.parametrize("epsilon", [1e-6, 1e-5, 3e-4, 0.1])
    def test_epsilon_and_eta_cutoff(self, logits: Logits, epsilon: float) -> None:
        probabilities = softmax(logits)
        entropy = -(probabilities * np.log(probabilities)).sum()
        for name, least in (
            ("epsilon_cutoff", epsilon),
            ("eta_cutoff", min(epsilon, math.sqrt(epsilon) * math.exp(-entropy))),
        ):
            found = cut(logits, **{name: epsilon})
            best = {int(logits.argmax())}
            assert found >= set(np.flatnonzero(probabilities > least * (1 + 1e-5)).tolist()) | best
            assert found <= set(np.flatnonzero(probabilities > least * (1 - 1e-5)).tolist()) | best

    @pytest.mark.parametrize("p", [1e-6, 0.05, 0.9, 1.0])
    def test_min_p(self, logits: Logits, p: float) -> None:
        ratios = softmax(logits) / softmax(logits).max()
        found = cut(logits, min_p=p)
        assert found >= set(np.flatnonzero(ratios > p * (1 + 1e-6)).tolist())
        assert found <= set(np.flatnonzero(ratios > p * (1 - 1e-6)).tolist())

    @pytest.mark.parametrize("n", [0.5, 1.0, 3.0])
    def test_top_n_sigma(self, logits: Logits, n: float) -> None:
        floor = logits.max() - n * logits.astype(np.float64).std()
        found = cut(logits, top_n_sigma=n)
        assert found >= set(np.flatnonzero(logits > floor + 1e-6).tolist())
        assert found <= set(np.flatnonzero(logits > floor - 1e-6).tolist())


class TestTopNSigma:
    @given(logits=LOGITS, n=st.floats(0.1, 5), temperature=st.floats(0.1, 10))
    def test_does_not_depend_on_the_temperature(self, logits: Logits, n: float, temperature: float) -> None:
        hot = logits / np.float32(temperature)
        floor = (logits.max() - n * logits.astype(np.float64).std()) / temperature
        undecided = set(np.flatnonzero(np.abs(hot - floor) < 1e-4).tolist())
        assert cut(logits, top_n_sigma=n) - undecided == cut(hot, top_n_sigma=n) - undecided

    @pytest.mark.parametrize("mask", [-np.inf, float(np.finfo(np.float32).min)])
    def test_masked_tokens_do_not_count(self, mask: float) -> None:
        logits = np.array([5.0, 4.0, 1.0, mask, 0.0, mask], np.float32)
        few = np.array([5.0, 4.0, 1.0, 0.0], np.float32)
        assert {(0, 1, 2, 4)[i] for i in cut(few, top_n_sigma=1.0)} == cut(logits, top_n_sigma=1.0) == {0, 1}


class TestPenalties:
    @settings(deadline=None)
    @given(
        logits=LOGITS,
        ids=IDS,
        prompt=st.integers(0, 60),
        last_n=st.none() | st.integers(0, 70),
        repetition=st.sampled_from([1.0, 0.7, 1.5]),
        frequency=st.sampled_from([0.0, 0.3, -1.0]),
        presence=st.sampled_from([0.0, 0.7, -2.0]),
    )
    def test_are_their_formulas(
        self,
        logits: Logits,
        ids: list[int],
        prompt: int,
        last_n: int | None,
        repetition: float,
        frequency: float,
        presence: float,
    ) -> None:
        prompt = min(prompt, len(ids))
        everything, generated = ids, ids[prompt:]
        if last_n is not None:
            everything = generated = ids[len(ids) - min(last_n, len(ids)) :]
        expected = logits.astype(np.float64)
        for i in range(logits.size):
            if i in everything:
                expected[i] = expected[i] / repetition if expected[i] > 0 else expected[i] * repetition
            expected[i] -= generated.count(i) * frequency + (i in generated) * presence
        chosen = LogitsSettings(
            repetition_penalty=repetition,
            frequency_penalty=frequency,
            presence_penalty=presence,
            penalty_last_n=last_n,
        )
        found = edgegen_logits(chosen, logits, ids, prompt_length=prompt)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


class TestDry:
    @settings(deadline=None, max_examples=400)
    @given(
        ids=st.lists(st.integers(0, 3), max_size=40) | st.lists(st.integers(0, 1), max_size=40) | IDS,
        base=st.sampled_from([1.0, 1.1, 1.75, 4.0]),
        allowed=st.integers(1, 5),
        last_n=st.none() | st.integers(1, 45),
        breakers=st.lists(st.integers(0, 3), max_size=2),
    )
    def test_is_its_definition(
        self, ids: list[int], base: float, allowed: int, last_n: int | None, breakers: list[int]
    ) -> None:
        window = ids if last_n is None else ids[-last_n:]
        expected = np.zeros(VOCABULARY)
        for token in set(range(VOCABULARY)) - set(breakers):
            longest = 0
            for place in (i for i, other in enumerate(window) if other == token):
                length = 0
                while (
                    length < place
                    and window[place - 1 - length] == window[-1 - length]
                    and window[-1 - length] not in breakers
                ):
                    length += 1
                longest = max(longest, length)
            if longest >= allowed:
                expected[token] = -0.8 * base ** (longest - allowed)
        chosen = LogitsSettings(
            dry_multiplier=0.8,
            dry_base=base,
            dry_allowed_length=allowed,
            dry_penalty_last_n=last_n,
            dry_sequence_breakers=tuple(breakers),
        )
        found = edgegen_logits(chosen, np.zeros(VOCABULARY, np.float32), ids, prompt_length=0)
        np.testing.assert_allclose(found, expected, rtol=1e-5)

    def test_a_long_loop_overflows_into_certainty(self) -> None:
        chosen = LogitsSettings(dry_multiplier=100.0)
        found = edgegen_logits(chosen, np.zeros(3, np.float32), [0, 1] * 500, prompt_length=0)
        assert found[0] < -1e38
        assert found[1:].tolist() == [0.0, 0.0]


class TestXtc:
    @settings(deadline=None)
    @given(logits=LOGITS, threshold=st.floats(0, 0.5))
    def test_keeps_the_least_likely_of_the_top_choices(self, logits: Logits, threshold: float) -> None:
        probabilities = softmax(logits)
        if np.abs(probabilities - threshold).min() < 1e-6:
            return
        top = [int(i) for i in (-probabilities).argsort(kind="stable") if probabilities[i] >= threshold]
        expected = set(range(logits.size)) - set(top[:-1])
        assert kept(dense(Xtc(1.0, threshold, 0)(Candidates(logits), LogitsContext(())), logits.size)) == expected

    def test_happens_as_often_as_it_should(self) -> None:
        logits = np.zeros(4, np.float32)
        process = Xtc(0.3, 0.2, seed=5)
        happened = [kept(process(Candidates(logits), LogitsContext([0] * n)).logits) == {3} for n in range(2000)]
        assert abs(np.mean(happened) - 0.3) < 0.04
        assert happened == [uniform(5, n, 1) < 0.3 for n in range(2000)]

    def test_masked_tokens_are_no_top_choices(self) -> None:
        logits = np.array([1.0, -np.inf, 2.0], np.float32)
        left = Xtc(1.0, 0.0, 0)(Candidates(logits), LogitsContext(()))
        assert dense(left, 3).tolist() == [1.0, -np.inf, -np.inf]


class TestMirostat:
    @settings(deadline=None)
    @given(seed=st.integers(0, 10_000), tau=st.sampled_from([0.5, 2.0, 5.0]), eta=st.sampled_from([0.05, 0.3, 1.0]))
    def test_is_the_papers_second_version(self, seed: int, tau: float, eta: float) -> None:
        generator = np.random.default_rng(seed)
        process, sampler = Mirostat(tau, eta), Sampler(seed=seed, do_sample=True)
        mu, ids = 2 * tau, [0]
        for _ in range(20):
            logits = generator.normal(0, 3, 50).astype(np.float32)
            probabilities = softmax(logits)
            surprise = -np.log2(probabilities)
            if np.abs(surprise - mu).min() < 1e-5:
                return
            expected = np.flatnonzero(surprise <= mu)
            expected = expected if expected.size else np.array([logits.argmax()])
            left = process(Candidates(logits), LogitsContext(ids))
            assert left.ids is not None
            np.testing.assert_array_equal(left.ids, expected)
            ids.append(sampler.sample(left, len(ids)))
            mu -= eta * (math.log2(probabilities[expected].sum() / probabilities[ids[-1]]) - tau)

    def test_comes_near_the_surprise_aimed_at(self) -> None:
        process, sampler = Mirostat(3.0, 0.1), Sampler(seed=1, do_sample=True)
        logits = np.random.default_rng(2).normal(0, 2, 1000).astype(np.float32)
        ids: list[int] = []
        surprises: list[float] = []
        for _ in range(1500):
            left = process(Candidates(logits), LogitsContext(ids))
            ids.append(sampler.sample(left, len(ids)))
            surprises.append(-math.log2(softmax(left.logits)[left.locate(np.array(ids[-1:]))[0][0]]))
        assert abs(np.mean(surprises[100:]) - 3.0) < 0.1

    def test_a_repeated_step_learns_nothing(self) -> None:
        process, logits = Mirostat(2.0, 1.0), np.arange(10, dtype=np.float32)
        process(Candidates(logits), LogitsContext([1]))
        process(Candidates(logits), LogitsContext([1, 9]))
        mu = process.mu
        process(Candidates(logits), LogitsContext([1, 9]))
        assert process.mu == mu != 4.0

    def test_learns_the_token_it_offered_and_not_those_behind(self) -> None:
        logits = np.arange(10, dtype=np.float32)
        mu: list[float] = []
        for following in ([5], [5, 9], [9, 5]):
            process = Mirostat(5.0, 0.5)
            process(Candidates(logits), LogitsContext([1]))
            process(Candidates(logits), LogitsContext([1, *following]))
            mu.append(process.mu)
        assert mu[0] == mu[1] != mu[2]

    def test_a_token_it_did_not_offer_teaches_nothing(self) -> None:
        process, logits = Mirostat(0.1, 1.0), np.arange(10, dtype=np.float32) * 9
        process(Candidates(logits), LogitsContext([1]))
        process(Candidates(logits), LogitsContext([1, 0]))
        assert process.mu == 0.2

    def test_says_that_it_is_of_one_sequence(self) -> None:
        assert LogitsPipeline.from_settings(LogitsSettings(mirostat=2), do_sample=True).stateful
        assert LogitsPipeline([LogitsPipeline([Mirostat(5.0, 0.1)])]).stateful
        assert not LogitsPipeline.from_settings(LogitsSettings(top_k=5, xtc_probability=1), do_sample=True).stateful


class TestGuidance:
    @settings(deadline=None)
    @given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.0, 0.5, 1.0, 1.5, 7.0]))
    def test_is_that_of_transformers(self, seed: int, scale: float) -> None:
        torch, transformers = import_torch(), import_transformers()
        one, other = np.random.default_rng(seed).normal(0, 4, (2, 300)).astype(np.float32)
        outputs = transformers.modeling_outputs.CausalLMOutputWithPast(logits=torch.from_numpy(other)[None, None])
        process = transformers.UnbatchedClassifierFreeGuidanceLogitsProcessor(scale, lambda *_, **__: outputs)  # pyright: ignore
        expected = process(torch.tensor([[1, 2]]), torch.from_numpy(one)[None])[0].numpy()
        np.testing.assert_allclose(guide(one, other, scale), expected, rtol=1e-5, atol=1e-4)

    @pytest.mark.parametrize("scale", [0.0, 0.5, 2.0])
    def test_what_a_row_masks_keeps_the_other_ones_logit(self, scale: float) -> None:
        one = np.array([math.log(0.5), -np.inf, math.log(0.25), math.log(0.25), -np.inf], np.float32)
        other = one[[0, 2, 1, 3, 4]]
        guided = guide(one, other, scale)
        np.testing.assert_allclose(guided, one, atol=1e-6)
