"""NGramIndex and NGramProposer against a search through the whole text."""

from hypothesis import given
from hypothesis import strategies as st

from edgegen.speculation.adaptive_length import FIRST
from edgegen.speculation.ngram_proposer import LEAST_NGRAM_SIZE, NGramIndex, NGramProposer

texts = st.lists(st.integers(0, 3), max_size=60)


def searched(ids: list[int], sizes: list[int]) -> int | None:
    """The first place where the last tokens stood before, of the first size that has any."""
    for size in sizes:
        for end in range(size, len(ids)):
            if ids[end - size : end] == ids[-size:]:
                return end
    return None


@given(st.lists(st.tuples(st.integers(0, 60), texts), max_size=6), st.lists(st.integers(1, 6), min_size=1, unique=True))
def test_the_index_finds_what_a_search_finds_whatever_was_taken_back(
    changes: list[tuple[int, list[int]]], sizes: list[int]
) -> None:
    index, ids = NGramIndex(sizes), list[int]()
    for kept, new in changes:
        index.truncate(kept)
        ids = ids[:kept] + new
        for token in new:
            index.append(token)
        assert index.ids == ids
        assert index.place_before() == searched(ids, sizes)


@given(st.lists(st.tuples(st.integers(0, 60), texts), min_size=1, max_size=5), st.integers(2, 6), st.integers(1, 32))
def test_a_guess_is_what_followed_then_whatever_was_taken_back(
    changes: list[tuple[int, list[int]]], most: int, longest: int
) -> None:
    proposer, ids = NGramProposer(longest, most), list[int]()
    for kept, new in changes:
        for shown in (ids[:kept], ids[:kept] + new):
            proposal = proposer.propose(shown)
            place = searched(shown, list(range(most, LEAST_NGRAM_SIZE - 1, -1)))
            assert len(proposal) == (0 if place is None else min(FIRST, longest))
            whole = shown + proposal
            assert all(whole[len(shown) + k] == whole[(place or 0) + k] for k in range(len(proposal)))
        ids = ids[:kept] + new


def test_last_ids_that_are_others_are_noticed_and_earlier_ones_with_them() -> None:
    proposer = NGramProposer(1, 3)
    assert proposer.propose([1, 2, 3, 4, 1, 2]) == [3]
    assert proposer.propose([7, 8, 9, 4, 7, 8, 9, 4, 7, 8]) == [9]
    assert proposer.propose([1, 2, 5]) == []


def test_a_text_that_goes_round_is_guessed_to_go_on_so() -> None:
    proposer = NGramProposer(8, 5)
    ids = [9, 1, 2, 3, 1, 2, 3, 1, 2]
    lengths = list[int]()
    for _ in range(4):
        proposal = proposer.propose(ids)
        assert proposal == [(3, 1, 2)[k % 3] for k in range(len(proposal))]
        lengths.append(len(proposal))
        proposer.verified(len(proposal), len(proposal))
    assert lengths == [2, 4, 8, 8]


def test_the_first_place_of_the_longest_run_counts() -> None:
    assert NGramProposer(1, 3).propose([5, 1, 2, 6, 1, 2, 7, 3, 1, 2]) == [6]
    assert NGramProposer(1, 3).propose([4, 1, 2, 6, 5, 1, 2, 7, 3, 5, 1, 2]) == [7]
    assert NGramProposer(1, 3).propose([1, 2, 1]) == []
