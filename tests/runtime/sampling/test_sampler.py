"""The random numbers and the draw."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.errors import EdgegenError
from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline, LogitsSettings
from edgegen.sampling.random_numbers import philox4x64, uniform
from edgegen.sampling.sampler import Sampler

WORD = st.integers(0, 2**64 - 1)
ONES = 2**64 - 1


def candidates(*logits: float) -> Candidates:
    return Candidates(np.array(logits, dtype=np.float32))


def chi_square(drawn: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """How many standard deviations the draws' chi-square lies above its mean."""
    expected = probabilities * drawn.size
    counts = np.bincount(drawn, minlength=probabilities.size)
    assert not counts[expected == 0].any()
    possible = expected > 0
    statistic = float((((counts - expected)[possible]) ** 2 / expected[possible]).sum())
    freedom = int(possible.sum()) - 1
    return (statistic - freedom) / (2 * freedom) ** 0.5


class TestRandomNumbers:
    # Random123 1.14, tests/kat_vectors, philox4x64 with 10 rounds.
    @pytest.mark.parametrize(
        ("counter", "key", "words"),
        [
            (
                (0, 0, 0, 0),
                (0, 0),
                (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B),
            ),
            (
                (ONES, ONES, ONES, ONES),
                (ONES, ONES),
                (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
            ),
            (
                (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
                (0x452821E638D01377, 0xBE5466CF34E90C6C),
                (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
            ),
        ],
    )
    def test_known_answers(
        self, counter: tuple[int, int, int, int], key: tuple[int, int], words: tuple[int, int, int, int]
    ) -> None:
        assert philox4x64(counter, key) == words

    @settings(deadline=None)
    @given(counter=st.tuples(WORD, WORD, WORD, WORD), key=st.tuples(WORD, WORD))
    def test_is_numpys_philox(self, counter: tuple[int, int, int, int], key: tuple[int, int]) -> None:
        as_one = sum(word << 64 * place for place, word in enumerate(counter))
        # numpy counts up before it draws
        before = (as_one - 1) % 2**256
        generator = np.random.Philox(
            counter=np.array([before >> 64 * place & ONES for place in range(4)], dtype=np.uint64),
            key=np.array(key, dtype=np.uint64),
        )
        assert philox4x64(counter, key) == tuple(int(word) for word in generator.random_raw(4))

    @settings(deadline=None)
    @given(seed=st.integers(), position=st.integers(0, 2**40), stream=st.integers(0, 10))
    def test_lie_in_the_unit_interval(self, seed: int, position: int, stream: int) -> None:
        assert 0.0 <= uniform(seed, position, stream) < 1.0
        assert uniform(seed, position, stream) == uniform(seed, position, stream)

    def test_differ_by_seed_position_and_stream(self) -> None:
        seeds = (0, 1, -1, 2**64 - 1, 2**64, -(2**64))
        drawn = {uniform(seed, at, stream) for seed in seeds for at in range(100) for stream in range(3)}
        assert len(drawn) == len(seeds) * 100 * 3

    def test_are_uniform(self) -> None:
        drawn = np.array([uniform(7, position) for position in range(20_000)])
        assert abs(chi_square((drawn * 64).astype(np.int64), np.full(64, 1 / 64))) < 4

    def test_do_not_change(self) -> None:
        """A seed gives the same text in every version: these values are a promise."""
        assert [uniform(0, 0), uniform(42, 7), uniform(-1, 0, 1)] == [
            0.08723912359911234,
            0.8495411558862143,
            0.005915559114363478,
        ]


class TestGreedy:
    def test_takes_the_best(self) -> None:
        assert Sampler(seed=0, do_sample=False).sample(candidates(1, 3, 2), 0) == 1

    def test_takes_the_lowest_id_of_equals(self) -> None:
        left = Candidates(np.array([1, 2, 2], dtype=np.float32), np.array([4, 6, 9]))
        assert Sampler(seed=0, do_sample=False).sample(left, 0) == 6


class TestSampling:
    @pytest.mark.parametrize("options", [{}, {"temperature": 1.7}, {"top_k": 7}, {"top_p": 0.8}])
    def test_tokens_come_as_often_as_they_are_likely(self, options: dict[str, float]) -> None:
        logits = np.random.default_rng(3).normal(0, 1.5, 40).astype(np.float32)
        logits[5] = -np.inf
        pipeline = LogitsPipeline.from_settings(LogitsSettings(**options), do_sample=True)  # pyright: ignore[reportArgumentType]
        left = pipeline(Candidates(logits), LogitsContext(()))
        ids = np.arange(40) if left.ids is None else left.ids
        probabilities = np.zeros(40)
        probabilities[ids] = np.exp(left.logits.astype(np.float64))
        sampler = Sampler(seed=11, do_sample=True)
        drawn = np.array([sampler.sample(left, position) for position in range(20_000)])
        assert abs(chi_square(drawn, probabilities / probabilities.sum())) < 4

    def test_a_draw_depends_on_seed_and_position_only(self) -> None:
        left = candidates(*range(10))
        sampler = Sampler(seed=5, do_sample=True)
        forwards = [sampler.sample(left, position) for position in range(50)]
        backwards = [Sampler(seed=5, do_sample=True).sample(left, at) for at in reversed(range(50))]
        assert forwards == backwards[::-1]
        assert forwards != [Sampler(seed=6, do_sample=True).sample(left, at) for at in range(50)]

    @settings(deadline=None)
    @given(
        size=st.integers(1, 5000),
        seed=st.integers(0, 10_000),
        keep=st.integers(1, 100),
        spread=st.sampled_from([0.0, 1.0, 5.0]),
    )
    def test_masked_and_removed_tokens_draw_alike(self, size: int, seed: int, keep: int, spread: float) -> None:
        generator = np.random.default_rng(seed)
        logits = generator.normal(0, spread, size).astype(np.float32)
        kept = np.unique(generator.integers(0, size, keep))
        masked = np.full(size, -np.inf, dtype=np.float32)
        masked[kept] = logits[kept]
        sampler = Sampler(seed=seed, do_sample=True)
        for position in range(20):
            removed = sampler.sample(Candidates(logits).keep(kept), position)
            assert removed == sampler.sample(Candidates(masked), position)
            assert removed in kept

    @settings(deadline=None)
    @given(seed=st.integers())
    def test_a_single_candidate_is_drawn(self, seed: int) -> None:
        assert Sampler(seed=seed, do_sample=True).sample(candidates(-np.inf, -3, -np.inf), 0) == 1

    def test_the_logits_stay_as_they_are(self) -> None:
        left = candidates(1, 2, 3)
        left.logits.flags.writeable = False
        Sampler(seed=0, do_sample=True).sample(left, 0)


@pytest.mark.parametrize("do_sample", [True, False])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_broke_down_are_an_error(bad: float, do_sample: bool) -> None:
    with pytest.raises(EdgegenError, match="logits are NaN or infinite"):
        Sampler(seed=0, do_sample=do_sample).sample(candidates(1, bad), 0)
