"""RunningSum against numpy's cumulative sum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.sampling.running_sum import RunningSum


@settings(deadline=None)
@given(
    size=st.integers(1, 3000),
    seed=st.integers(0, 1000),
    zeros=st.sampled_from([0.0, 0.5, 0.99]),
    fraction=st.floats(0, 1),
)
def test_finds_what_a_whole_running_sum_finds(size: int, seed: int, zeros: float, fraction: float) -> None:
    generator = np.random.default_rng(seed)
    weights = generator.integers(0, 2**24, size).astype(np.float32) * (generator.random(size) >= zeros)
    sums = RunningSum(weights)
    whole = weights.cumsum(dtype=np.float64)
    assert sums.total == whole[-1]
    for bound in (fraction * sums.total, float(whole[size // 2]), -1.0, sums.total):
        assert sums.first_beyond(bound) == whole.searchsorted(bound, side="right")


@pytest.mark.parametrize("size", [511, 512, 513, 1024])
def test_the_ends_of_runs(size: int) -> None:
    sums = RunningSum(np.ones(size, dtype=np.float32))
    assert [sums.first_beyond(bound) for bound in range(size + 1)] == [*range(size), size]
