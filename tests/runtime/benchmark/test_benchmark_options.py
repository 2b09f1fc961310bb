"""Options of a benchmark, and which measurements a model has room for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.benchmark import BenchmarkOptions
from edgegen.errors import OptionError

LENGTHS = st.lists(st.integers(1, 6000), min_size=1, max_size=6).map(tuple)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        BenchmarkOptions(prefill=(0, 32), contexts=(-5,), batches=(), repeats=0, threads=0, prefill_chunk=1)
    assert str(caught.value).splitlines() == [
        "6 problems:",
        "  - prefill: must be at least 1, found 0",
        "  - context: must be at least 1, found -5",
        "  - batch: at least one number expected, found none",
        "  - repeats: must be at least 1, found 0",
        "  - threads: must be between 1 and 1024, found 0",
        "  - prefill_chunk: must be at least 2, found 1",
    ]


def test_what_a_model_has_no_room_for_is_left_out_in_words() -> None:
    plan = BenchmarkOptions(prefill=(600, 32, 255, 256, 32), contexts=(224, 225, 32), batches=(8, 1)).plan(256)
    assert (plan.prefill, plan.contexts, plan.batches, plan.steps) == ((32, 255), (32, 224), (1, 8), 32)
    assert plan.left_out == ("a prompt of 256 and a token", "a prompt of 600 and a token", "32 tokens after 225")
    assert plan.parts == 1 + 2 + 2 + 2 + 1


def test_a_model_with_little_room_is_measured_at_the_most_it_has() -> None:
    plan = BenchmarkOptions().plan(11)
    assert (plan.prefill, plan.contexts, plan.steps) == ((10,), (6,), 5)
    assert len(plan.left_out) == 6


def test_a_model_with_no_room_for_two_tokens_is_refused() -> None:
    with pytest.raises(OptionError, match="room for a single token"):
        BenchmarkOptions().plan(1)


@given(LENGTHS, LENGTHS, st.integers(2, 5000))
def test_a_plan_always_fits_and_measures_something(
    prefill: tuple[int, ...], contexts: tuple[int, ...], max_context: int
) -> None:
    plan = BenchmarkOptions(prefill=prefill, contexts=contexts).plan(max_context)
    assert plan.prefill == tuple(sorted(set(plan.prefill)))
    assert plan.contexts == tuple(sorted(set(plan.contexts)))
    assert 1 <= plan.prefill[0] <= plan.prefill[-1] < max_context
    assert 1 <= plan.contexts[0] <= plan.contexts[-1] <= max_context - plan.steps
    assert plan.steps >= 1
    for asked, fitting in ((prefill, plan.prefill), (contexts, plan.contexts)):
        assert set(fitting) <= set(asked) or len(fitting) == 1
