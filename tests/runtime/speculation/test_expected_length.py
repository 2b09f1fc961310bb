"""ExpectedLength: lengths follow the acceptance rate, and losses stay bounded."""

import random

import pytest

from edgegen.speculation.adaptive_length import DEBT
from edgegen.speculation.expected_length import ExpectedLength


def lengths_at(
    rate: float, *, draft_cost: float = 0.07, runs_again: bool = False, sequences: int = 1, steps: int = 400
) -> list[int]:
    """Return the length proposed in each step of an answer whose proposals are accepted at a rate."""
    pace, chance = ExpectedLength(4, draft_cost, runs_again=runs_again), random.Random(3)
    tokens, found = 10, list[int]()
    for _ in range(steps):
        length = pace.affordable(tokens, sequences)
        found.append(length)
        accepted = next((n for n in range(length) if chance.random() >= rate), length)
        if length:
            pace.settle(length, accepted)
        tokens += 1 + accepted
        assert pace.balance >= -DEBT - 1e-9
    return found


@pytest.mark.parametrize(
    ("rate", "least", "most"), [(0.5, 0.8, 1.5), (0.7, 1.6, 2.6), (0.9, 3.2, 4.0), (1.0, 3.9, 4.0)]
)
def test_lengths_follow_the_rate(rate: float, least: float, most: float) -> None:
    found = lengths_at(rate)
    assert least <= sum(found[50:]) / len(found[50:]) <= most


def test_in_a_batch_less_is_proposed_and_nothing_that_does_not_pay() -> None:
    def mean(rate: float, sequences: int) -> float:
        found = lengths_at(rate, sequences=sequences)[50:]
        return sum(found) / len(found)

    assert mean(0.9, 1) > mean(0.9, 2) > mean(0.9, 4) > mean(0.9, 16)
    assert mean(0.9, 2) > 1.5
    assert mean(0.9, 4) > 0.8
    assert mean(0.7, 2) > 0.8
    assert mean(0.3, 4) == mean(0.7, 16) == 0.0


def test_a_head_that_is_never_right_is_seldom_asked() -> None:
    found = lengths_at(0.0)
    assert sum(found) < 0.08 * len(found)
    assert any(found[200:])


def test_what_costs_more_proposes_less() -> None:
    def mean(found: list[int]) -> float:
        return sum(found[50:]) / len(found[50:])

    assert mean(lengths_at(0.8, draft_cost=0.4)) < mean(lengths_at(0.8))
    assert mean(lengths_at(0.8, runs_again=True)) <= mean(lengths_at(0.8))
