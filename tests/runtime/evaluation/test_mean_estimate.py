"""Estimates: means and standard errors against NumPy, and against what chance does."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.evaluation.mean_estimate import FEWEST, Estimate

NUMBERS = st.floats(-1e6, 1e6)


@given(st.lists(NUMBERS, min_size=2, max_size=50))
def test_mean_and_standard_error_match_numpy(values: list[float]) -> None:
    found = Estimate.of(values)
    assert found.mean == pytest.approx(np.mean(values), abs=1e-6)
    assert found.error == pytest.approx(np.std(values, ddof=1) / len(values) ** 0.5, abs=1e-6)
    assert found.count == len(values)


@given(st.lists(NUMBERS, min_size=2, max_size=50), st.floats(0.1, 100))
def test_equal_weights_are_none(values: list[float], weight: float) -> None:
    weighted, plain = Estimate.of(values, [weight] * len(values)), Estimate.of(values)
    assert (weighted.mean, weighted.error) == pytest.approx((plain.mean, plain.error), abs=1e-5)


def test_a_weighted_mean_is_that_of_what_the_items_are_made_of() -> None:
    parts = [[1.0, 2.0, 6.0], [4.0], [0.0, 3.0]]
    means = [sum(part) / len(part) for part in parts]
    assert Estimate.of(means, [3, 1, 2]).mean == pytest.approx(np.mean(np.concatenate(parts)))


def test_the_error_is_what_another_sample_would_move_the_mean_by() -> None:
    """Many samples of groups of unequal sizes, whose means are drawn; the spread of the ratio is known by trying."""
    random = np.random.default_rng(0)
    means, errors = list[float](), list[float]()
    for _ in range(400):
        sizes = random.integers(1, 33, 60).astype(float)
        found = Estimate.of((random.normal(2, 1, 60)).tolist(), sizes.tolist())
        means.append(found.mean)
        errors.append(found.error)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.1)


@pytest.mark.parametrize(("values", "mean"), [([], math.nan), ([3.0], 3.0), ([math.inf, 1.0], math.inf)])
def test_an_error_that_nobody_knows_is_no_number(values: list[float], mean: float) -> None:
    found = Estimate.of(values)
    assert (found.mean, found.error, found.count) == pytest.approx((mean, math.nan, len(values)), nan_ok=True)
    assert not found.beyond_noise


def test_noise_is_two_errors_and_everything_of_few_items() -> None:
    assert Estimate(0.21, 0.1, FEWEST).beyond_noise
    assert Estimate(-0.21, 0.1, FEWEST).beyond_noise
    assert not Estimate(0.2, 0.1, FEWEST).beyond_noise
    assert not Estimate(0.21, 0.1, FEWEST - 1).beyond_noise
    assert not Estimate(0.0, 0.0, 1000).beyond_noise


def test_chance_alone_is_called_more_than_noise_once_in_twenty_times() -> None:
    random = np.random.default_rng(1)
    called = [Estimate.of(random.normal(0, 1, 100).tolist()).beyond_noise for _ in range(1000)]
    assert 0.03 < np.mean(called) < 0.07
