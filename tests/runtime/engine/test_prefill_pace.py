"""PrefillPace: chunks of prompts as long as the time allows, on machines that a test makes up."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.engine.chunked_prefill import PrefillPace

Cost = Callable[[int], float]
"""Seconds of a chunk of ``tokens`` tokens."""


def sizes(pace: PrefillPace, cost: Cost, seconds: float, count: int = 8) -> list[int]:
    """Of ``count`` chunks, each of which is measured."""
    found = list[int]()
    for _ in range(count):
        found.append(pace.size(seconds))
        pace.ran(found[-1], cost(found[-1]))
    return found


def test_nobody_waits_for_whole_chunks() -> None:
    pace = PrefillPace(128)
    assert pace.size(None) == 128
    pace.ran(128, 10.0)
    assert pace.size(None) == 128
    assert PrefillPace(16).size(0.0) == 16  # nothing shorter than that


@given(
    fixed=st.floats(0, 0.2),
    token=st.floats(0.0001, 0.02),
    seconds=st.floats(0, 1),
    first=st.sampled_from([None, 16, 48, 128]),
)
def test_sizes_settle_at_the_longest_that_fits(fixed: float, token: float, seconds: float, first: int | None) -> None:
    def cost(tokens: int) -> float:
        return fixed + token * tokens

    pace = PrefillPace(128)
    if first is not None:
        pace.ran(first, cost(first))
    found = sizes(pace, cost, seconds, 40)[-1]
    fitting = [size for size in range(16, 129, 16) if cost(size) <= seconds]
    assert found % 16 == 0
    assert cost(found) <= seconds or found == 16
    assert found >= max(fitting, default=16) - 16  # where it takes all of the time, rounding decides


def test_a_machine_that_was_slow_for_a_while_is_believed_again() -> None:
    pace = PrefillPace(128)
    before = sizes(pace, lambda tokens: 0.01 + 0.001 * tokens, 0.08)
    slow = sizes(pace, lambda tokens: 0.05 + 0.005 * tokens, 0.08)
    after = sizes(pace, lambda tokens: 0.01 + 0.001 * tokens, 0.08)
    assert before[-1] == after[-1] == 64
    assert slow[-1] == 16


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_what_is_left_over_of_a_prompt_says_nothing(tokens: int) -> None:
    pace = PrefillPace(128)
    pace.ran(128, 0.04)
    pace.ran(64, 0.025)
    before = pace.size(0.03)
    pace.ran(tokens, 5.0)
    assert pace.size(0.03) == before


def test_a_copy_begins_with_what_is_known_and_learns_by_itself() -> None:
    """Chunks of a long text take longer than those of a short one beside it."""
    long = PrefillPace(128)
    for tokens in (16, 128):
        long.ran(tokens, 0.01 * tokens)
    short = long.copy()
    assert short.size(0.2) == long.size(0.2) == 16
    short.ran(16, 0.001)
    assert short.size(0.2) == 128
    assert long.size(0.2) == 16
