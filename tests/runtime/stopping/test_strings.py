"""StopStringMatcher: the first of several stop strings, however the text is cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.errors import OptionError
from edgegen.stop_regex import Span
from edgegen.stopping.strings import StopStringMatcher
from tests.runtime.stop_regex.reference import cut, first_stop_string

FEW_LETTERS = st.text("ab", max_size=12) | st.text("abc\n", max_size=20)
STOPS = st.lists(st.text("abc\n", min_size=1, max_size=5), max_size=4)
LENGTHS = st.lists(st.integers(0, 4), max_size=12)


def find(matcher: StopStringMatcher, *pieces: str) -> tuple[Span | None, list[int]]:
    """The stop, and up to where the text was decided after each piece without one."""
    decided: list[int] = []
    for piece in pieces:
        if found := matcher.push(piece):
            return found, decided
        decided.append(matcher.undecided)
    return matcher.finish(), decided


@settings(deadline=None, max_examples=500)
@given(text=FEW_LETTERS, stops=STOPS, lengths=LENGTHS)
def test_finds_the_stop_that_begins_first_however_the_text_is_cut(
    text: str, stops: list[str], lengths: list[int]
) -> None:
    begins = [text.index(stop) for stop in stops if stop in text]
    found, decided = find(StopStringMatcher(stops), *cut(text, lengths))
    assert (None if found is None else found.begin) == min(begins, default=None)
    assert found is None or text[found.begin : found.end] in stops
    assert decided == sorted(decided)
    assert all(place <= min(begins, default=len(text)) for place in decided)


@settings(deadline=None, max_examples=500)
@given(text=FEW_LETTERS, stops=STOPS, lengths=LENGTHS)
def test_waits_for_the_longest_of_those_that_begin_first_where_it_is_to(
    text: str, stops: list[str], lengths: list[int]
) -> None:
    found, _ = find(StopStringMatcher(stops, wait_for_longest=True), *cut(text, lengths))
    assert found == first_stop_string(text, stops)


@settings(deadline=None)
@given(text=FEW_LETTERS, stops=STOPS)
def test_of_stops_that_begin_together_the_longest_that_has_arrived_wins(text: str, stops: list[str]) -> None:
    if found := StopStringMatcher(stops).push(text):
        assert found == first_stop_string(text, stops)


def test_text_is_held_back_only_if_it_may_become_a_stop() -> None:
    assert find(StopStringMatcher(["User:"]), "Hi", " U", "se", "ful", " Use") == (None, [2, 3, 3, 9, 10])


def test_a_stop_waits_for_one_that_began_earlier() -> None:
    assert find(StopStringMatcher(["bc", "abcd"]), "xabc", "d") == ((1, 5), [1])
    assert find(StopStringMatcher(["bc", "abcd"]), "xabc", "x") == ((2, 4), [1])
    assert find(StopStringMatcher(["bc", "abcd"]), "xabc") == ((2, 4), [1])


def test_a_stop_does_not_wait_for_a_longer_one_unless_it_is_to() -> None:
    assert find(StopStringMatcher(["\n", "\n\n"]), "a\n", "\n") == ((1, 2), [])
    assert find(StopStringMatcher(["\n", "\n\n"], wait_for_longest=True), "a\n", "\n") == ((1, 3), [1])
    assert find(StopStringMatcher(["\n", "\n\n"], wait_for_longest=True), "a\n", "b") == ((1, 2), [1])
    assert find(StopStringMatcher(["\n", "\n\n"], wait_for_longest=True), "a\n") == ((1, 2), [1])


def test_ignores_what_follows_in_the_same_piece() -> None:
    assert StopStringMatcher(["."]).push("One. Two. Three") == (3, 4)


def test_text_held_back_is_shorter_than_the_longest_stop() -> None:
    _, decided = find(StopStringMatcher(["aaaab"]), *"a" * 1000)
    assert decided[-1] == 1000 - 4


def test_a_fork_goes_its_own_way() -> None:
    one = StopStringMatcher(["abc"])
    one.push("xab")
    other = one.fork()
    assert one.push("d") is None
    assert other.push("c") == (1, 4)


def test_refuses_an_empty_stop() -> None:
    with pytest.raises(OptionError, match="empty stop string"):
        StopStringMatcher(["a", ""])
