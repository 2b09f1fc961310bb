"""MTPProposer: when it proposes, what its head reads, and what becomes of proposals that are rejected."""

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler
from edgegen.speculation.expected_length import ExpectedLength
from edgegen.speculation.mtp_head import MTPHead
from edgegen.speculation.mtp_proposer import LONGEST, MTPProposer, UnreadStates
from edgegen.speculation.token_choice import TokenChoice

Hidden = NDArray[np.float32]
VOCAB, SIZE = 50, 3


class FakeCache:
    """How many entries it has, and of what each was made."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, float]] = []

    def truncate(self, slot: int, length: int) -> None:
        assert length <= len(self.entries)
        del self.entries[length:]


class FakeHead:
    """Prefers the token after the last one; its hidden states are negative."""

    cost, chunk = 0.05, 4

    def __init__(self) -> None:
        self.cache = FakeCache()
        self.longest_run = 0

    def new_cache(self) -> FakeCache:
        return self.cache

    def run(self, cache: FakeCache, ids: list[int], hidden: Hidden) -> tuple[Hidden, Hidden]:
        assert len(ids) == len(hidden)
        self.longest_run = max(self.longest_run, len(ids))
        cache.entries += zip(ids, hidden[:, 0].tolist(), strict=True)
        logits = np.zeros(VOCAB, np.float32)
        logits[(ids[-1] + 1) % VOCAB] = 1
        return logits, np.full((1, SIZE), -1, np.float32)


def states(first: int, count: int) -> Hidden:
    """The model's hidden states: every number is the position's."""
    return np.repeat(np.arange(first, first + count, dtype=np.float32)[:, None], SIZE, 1)


@pytest.fixture
def head() -> FakeHead:
    return FakeHead()


def proposer_of(head: FakeHead, longest: int = 2) -> MTPProposer:
    choice = TokenChoice(LogitsPipeline(), Sampler(seed=0, do_sample=False), prompt_length=5)
    return MTPProposer(cast(MTPHead, head), choice, ExpectedLength(longest, head.cost))


def test_it_proposes_once_the_last_states_are_known(head: FakeHead) -> None:
    one = proposer_of(head)
    ids = [9, 8, 7, 6, 5, 1]
    assert one.propose(ids) == []
    one.on_hidden(0, states(0, 4))
    assert one.propose(ids) == []  # that of position 4 is missing
    one.on_hidden(4, states(4, 1))
    assert one.propose(ids) == [2, 3]
    # Each entry has a token and the states of the position before it; the last is of the head's own states.
    assert head.cache.entries == [(8, 0), (7, 1), (6, 2), (5, 3), (1, 4), (2, -1)]
    assert head.longest_run == head.chunk


def test_entries_of_its_own_states_are_made_again(head: FakeHead) -> None:
    one = proposer_of(head)
    one.on_hidden(0, states(0, 5))
    assert one.propose([9, 8, 7, 6, 5, 1]) == [2, 3]
    one.on_hidden(5, states(5, 3))  # of 1, 2 and 3
    one.verified(2, 1)
    one.propose([9, 8, 7, 6, 5, 1, 2, 30])  # 3 was rejected: 30 came instead
    assert head.cache.entries[:7] == [(8, 0), (7, 1), (6, 2), (5, 3), (1, 4), (2, 5), (30, 6)]


def test_a_prefix_that_another_sequence_computed_is_left_out(head: FakeHead) -> None:
    one = proposer_of(head)
    one.on_hidden(3, states(3, 2))
    assert one.propose([9, 8, 7, 6, 5, 1])[:1] == [2]
    assert head.cache.entries[:2] == [(5, 3), (1, 4)]


def test_after_a_gap_it_begins_anew(head: FakeHead) -> None:
    one = proposer_of(head)
    one.on_hidden(0, states(0, 5))
    one.propose([9, 8, 7, 6, 5, 1])
    one.on_hidden(7, states(7, 1))
    assert one.propose([9, 8, 7, 6, 5, 1, 2, 3, 4])[:1] == [5]
    assert head.cache.entries[:1] == [(4, 7)]


def test_rejections_make_proposals_rare(head: FakeHead) -> None:
    one, ids, proposed = proposer_of(head), [9, 8, 7, 6, 5], 0
    one.on_hidden(0, states(0, 4))
    for position in range(5, 205):
        ids.append(0)
        one.on_hidden(position - 1, states(position - 1, 1))
        if found := one.propose(ids):
            proposed += 1
            one.verified(len(found), 0)
    assert proposed < 20


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(-6, 4), st.integers(1, 700)), min_size=1, max_size=12), st.data())
def test_unread_states_are_those_put_last(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """Against a list: ``step`` back from the end, or beyond it, ``count`` states are put; some are taken."""
    unread, expected, first = UnreadStates(), list[float](), 0
    for number, (step, count) in enumerate(steps):
        at = max(0, first + len(expected) + step)
        if not first <= at <= first + len(expected):
            first, expected = at, []
        made = states(1000 * number, count)
        expected = [*expected[: at - first], *made[:, 0].tolist()]
        unread.put(at, made)
        if len(expected) > 2 * LONGEST:
            first, expected = first + len(expected) - LONGEST, expected[-LONGEST:]
        assert (unread.first, unread.end) == (first, first + len(expected))
        taken = data.draw(st.integers(0, len(expected)))
        assert unread.take(first + taken)[:, 0].tolist() == expected[:taken]
        first, expected = first + taken, expected[taken:]


def test_what_is_taken_stays_as_it_was() -> None:
    unread = UnreadStates()
    unread.put(0, states(0, 4))
    taken = unread.take(2)
    unread.put(4, states(40, 9))
    assert taken[:, 0].tolist() == [0, 1]
