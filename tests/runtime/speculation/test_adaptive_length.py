"""AdaptiveLength: what can be lost, and that what pays goes on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.speculation.adaptive_length import ALLOWANCE, CREDIT, DEBT, FIRST, TOKEN_COST, AdaptiveLength


@given(
    longest=st.integers(1, 32),
    draft_cost=st.floats(0, 2),
    steps=st.lists(st.tuples(st.integers(0, 32), st.integers(0, 32)), max_size=200),
    again=st.booleans(),
)
def test_no_more_is_lost_than_the_debt_and_a_share_of_the_text(
    longest: int, draft_cost: float, steps: list[tuple[int, int]], again: bool
) -> None:
    """Each step proposes at most what it may, and has any part of it come true."""
    account = AdaptiveLength(longest, draft_cost, runs_again=again)
    tokens, spent, saved = 100, 0.0, 0
    for wanted, right in steps:
        may = account.affordable(tokens)
        assert 0 <= may <= longest
        proposed = min(wanted, may)
        accepted = min(right, proposed)
        if proposed:
            account.settle(proposed, accepted)
        tokens += accepted + 1
        spent += proposed * (TOKEN_COST + draft_cost)
        spent += TOKEN_COST * (accepted + 1) if again and accepted < proposed else 0
        saved += accepted
        assert -DEBT - 1e-9 <= account.balance <= CREDIT
        assert spent - saved <= DEBT + ALLOWANCE * (tokens - 100) + 1e-6


def test_what_never_comes_true_ends_and_is_tried_again_now_and_then() -> None:
    account, tries = AdaptiveLength(8), list[int]()
    for tokens in range(50, 1050):
        if proposed := account.affordable(tokens):
            account.settle(proposed, 0)
            tries.append(tokens)
    assert tries[:3] == [50, 51, 52]
    assert len(tries) == pytest.approx((DEBT + 1000 * ALLOWANCE) / TOKEN_COST, abs=3)
    assert tries[-1] > 1000


def test_what_comes_true_is_guessed_longer_and_a_miss_halves_it() -> None:
    account = AdaptiveLength(12)
    lengths = list[int]()
    for accepted in (True, True, True, True, False, False, True):
        lengths.append(account.affordable(10))
        account.settle(lengths[-1], lengths[-1] if accepted else lengths[-1] - 1)
    assert lengths == [FIRST, 4, 8, 12, 12, 6, 3]


def test_a_guesser_that_costs_as_much_as_it_saves_stops() -> None:
    account = AdaptiveLength(8, draft_cost=1.0)
    proposals = [account.affordable(10) for _ in range(1)]
    while proposals[-1]:
        account.settle(proposals[-1], proposals[-1])
        proposals.append(account.affordable(10))
    assert sum(proposals) * TOKEN_COST <= DEBT


def test_what_is_paid_beforehand_counts() -> None:
    account = AdaptiveLength(8)
    account.pay(3.0)
    assert account.balance == -3.0
    assert account.affordable(10) == 0
    assert account.affordable(10 + round(2.3 / ALLOWANCE)) == 1
