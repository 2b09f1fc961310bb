"""BeamSearch by itself: the decisions of transformers', and nothing missed where nothing is cut off."""

from collections.abc import Collection
from functools import cache
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.engine.beam_search import Beam, BeamSearch
from tests.runtime.engine.beam_reference import Answers, LogProbs, every_answer, transformers_beam_search

PENALTIES = st.sampled_from([0.0, 1.0, 2.0, -1.0, 0.5, -0.3])
EARLY: st.SearchStrategy[bool | Literal["never"]] = st.sampled_from([False, True, "never"])


def random_model(seed: int, vocabulary: int, spread: float = 2.0, likely: tuple[int, ...] = ()) -> LogProbs:
    """A distribution for every text, which has nothing to do with that of any other; some tokens are often likely."""

    @cache
    def log_probs(ids: tuple[int, ...]) -> NDArray[np.float32]:
        logits = np.random.default_rng([seed, len(ids), *ids]).normal(0, spread, vocabulary)
        logits[[*likely]] += spread
        return (logits - np.log(np.exp(logits).sum())).astype(np.float32)

    return log_probs


def run(search: BeamSearch, model: LogProbs) -> list[Beam]:
    """To the end; the beams that ended."""
    steps = 0
    while not search.done:
        rows = [model(beam.ids) if beam.is_there else np.full_like(model(()), -np.inf) for beam in search.running]
        search.advance(np.array(rows))
        steps += 1
        assert steps <= 100
    return search.best()


def search_for(beams: int, limit: int, eos: Collection[int], **options: object) -> BeamSearch:
    return BeamSearch(beams, limit, lambda ids: ids[-1] in eos, num_eos=len(eos), **options)  # pyright: ignore


def assert_same(found: list[Beam], expected: Answers) -> None:
    assert [beam.ids for beam in found] == [ids for ids, _ in expected]
    np.testing.assert_allclose([beam.score for beam in found], [score for _, score in expected], rtol=1e-5)


@settings(deadline=None, max_examples=400)
@given(
    seed=st.integers(0, 2**32),
    beams=st.integers(2, 5),
    limit=st.integers(1, 20),
    eos=st.lists(st.integers(0, 19), max_size=3, unique=True),
    spread=st.sampled_from([0.5, 2.0, 5.0]),
    often=st.booleans(),
    penalty=PENALTIES,
    early=EARLY,
)
def test_every_decision_is_that_of_transformers(
    seed: int,
    beams: int,
    limit: int,
    eos: list[int],
    spread: float,
    often: bool,
    penalty: float,
    early: bool | Literal["never"],
) -> None:
    model = random_model(seed, 20, spread, tuple(eos) if often else ())
    expected = transformers_beam_search(
        model,
        beams,
        limit,
        lambda ids: ids[-1] in eos,
        num_eos=len(eos),
        length_penalty=penalty,
        early_stopping=early,
    )
    search = search_for(beams, limit, eos, length_penalty=penalty, early_stopping=early)
    assert_same(run(search, model), expected)


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    vocabulary=st.integers(2, 4),
    limit=st.integers(1, 4),
    eos=st.lists(st.integers(0, 3), max_size=2, unique=True),
    penalty=PENALTIES,
    early=EARLY,
)
def test_with_room_for_all_texts_all_are_found_and_ranked(
    seed: int, vocabulary: int, limit: int, eos: list[int], penalty: float, early: bool | Literal["never"]
) -> None:
    model = random_model(seed, vocabulary)
    expected = every_answer(model, vocabulary, limit, eos, penalty)
    search = search_for(vocabulary**limit + 1, limit, eos, length_penalty=penalty, early_stopping=early)
    assert_same(run(search, model), expected)


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 2**32), eos=st.lists(st.integers(0, 2), max_size=2, unique=True), penalty=PENALTIES)
def test_never_stopping_early_is_sure_of_the_best_where_no_beam_is_cut_off(
    seed: int, eos: list[int], penalty: float
) -> None:
    """9 beams hold all that runs in a vocabulary of 3 for 3 tokens; what ends is more, and the worst of it goes."""
    model = random_model(seed, 3)
    expected = every_answer(model, 3, 3, eos, penalty)[:1]
    search = search_for(27, 3, eos, length_penalty=penalty, early_stopping="never")
    assert_same(run(search, model)[:1], expected)


@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 2**32), beams=st.integers(1, 6), vocabulary=st.integers(1, 5), left=st.integers(0, 5))
def test_beams_that_are_not_there_never_come_back(seed: int, beams: int, vocabulary: int, left: int) -> None:
    """Of the vocabulary only ``left`` tokens may come, and each only once."""
    model = random_model(seed, vocabulary)

    def masked(ids: tuple[int, ...]) -> NDArray[np.float32]:
        out = [token for token in range(vocabulary) if token >= left or token in ids]
        log_probs = model(ids).copy()
        log_probs[out] = -np.inf
        return log_probs

    found = run(search_for(beams, 4, (), length_penalty=0.0), masked)
    possible = every_answer(masked, vocabulary, 4, (), 0.0)
    possible = [(ids, score) for ids, score in possible if score > -np.inf]
    assert {beam.ids for beam in found} <= {ids for ids, _ in possible}
    assert len({beam.ids for beam in found}) == len(found)
    assert len(found) == min(beams, len(possible)) or beams < left
    assert all(np.isfinite(beam.score) for beam in found)


@pytest.mark.parametrize("penalty", [-20.0, 20.0])
def test_the_extremes_of_the_length_penalty_give_answers(penalty: float) -> None:
    model = random_model(1, 20)
    found = run(search_for(3, 50, [0], length_penalty=penalty), model)
    assert len(found) == 3
    assert [beam.score for beam in found] == sorted((beam.score for beam in found), reverse=True)


def test_before_the_end_the_best_are_those_that_ended_and_those_that_run() -> None:
    model = random_model(5, 20)
    search = search_for(4, 50, [0, 1, 2, 3, 4, 5], length_penalty=1.0, early_stopping="never")
    assert search.best() == [Beam((), 0.0, ended=True)]
    for _ in range(3):
        search.advance(np.array([model(beam.ids) for beam in search.running]))
    best = search.best()
    ended = [beam for beam in best if beam.ids[-1] <= 5]
    assert ended
    assert {beam.ids for beam in best} >= {beam.ids for beam in search.running}
    assert [beam.score for beam in best] == sorted((beam.score for beam in best), reverse=True)
    for beam in best:
        score = sum(float(model(beam.ids[:at])[token]) for at, token in enumerate(beam.ids)) / len(beam.ids)
        assert beam.score == pytest.approx(score, rel=1e-5)


def test_of_equals_the_lower_id_and_the_earlier_beam_come_first() -> None:
    even = np.full((3, 8), np.log(1 / 8), np.float32)
    search = search_for(3, 3, ())
    for _ in range(3):
        search.advance(even)
    assert [beam.ids for beam in search.best()] == [(0, 0, 0), (0, 0, 1), (0, 0, 2)]
