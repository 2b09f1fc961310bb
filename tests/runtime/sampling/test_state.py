"""State of processors from step to step follows the ids, whatever becomes of these."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline, LogitsSettings
from edgegen.sampling.history import History
from edgegen.sampling.id_array import IdArray
from edgegen.sampling.token_counts import TokenCounts

TOKENS = st.integers(0, 4) | st.integers(1000, 1005)
EDITS = st.lists(st.tuples(st.integers(0, 12), st.lists(TOKENS, max_size=8)), min_size=1, max_size=12)
"""How many of the ids are dropped, and which follow: growth, rejected proposals, other beams."""


def after(edits: list[tuple[int, list[int]]]) -> list[list[int]]:
    ids: list[int] = []
    steps: list[list[int]] = []
    for drop, more in edits:
        ids = ids[: max(0, len(ids) - drop)] + more
        steps.append(ids)
    return steps


@given(edits=EDITS)
def test_history_knows_what_has_stayed(edits: list[tuple[int, list[int]]]) -> None:
    history, before = History(), list[int]()
    for ids in after(edits):
        same = 0
        while same < min(len(before), len(ids)) and before[same] == ids[same]:
            same += 1
        assert history.follow(ids) == same
        before = ids


def test_history_does_not_hold_on_to_the_list() -> None:
    history, ids = History(), [1, 2, 3]
    history.follow(ids)
    ids[1] = 7
    assert history.follow(ids) == 1
    assert history.follow((1, 7, 3, 4)) == 3


@given(edits=EDITS)
def test_id_arrays_are_the_ids(edits: list[tuple[int, list[int]]]) -> None:
    array = IdArray()
    for ids in [*after(edits), list(range(2000)), [5]]:
        view = array.view(ids)
        assert view.tolist() == ids
        assert not view.flags.writeable


@given(edits=EDITS, last_n=st.integers(0, 15))
def test_counts_are_the_counts(edits: list[tuple[int, list[int]]], last_n: int) -> None:
    whole, window = TokenCounts(), TokenCounts()
    for ids in after(edits):
        begin = max(0, len(ids) - last_n)
        for counts, of in ((whole, 0), (window, begin)):
            counts.update(ids, of)
            found = {i: n for i, n in zip(counts.ids.tolist(), counts.counts.tolist(), strict=True) if n}
            assert found == Counter(ids[of:])
            assert len(set(counts.ids.tolist())) == counts.ids.size


@settings(deadline=None)
@given(edits=EDITS, last_n=st.none() | st.integers(1, 10))
def test_a_pipeline_used_before_does_as_a_new_one(edits: list[tuple[int, list[int]]], last_n: int | None) -> None:
    chosen = LogitsSettings(
        repetition_penalty=1.3,
        frequency_penalty=0.5,
        presence_penalty=0.1,
        penalty_last_n=last_n,
        dry_multiplier=0.8,
        dry_allowed_length=1,
        no_repeat_ngram_size=3,
        sequence_bias={(0, 1): 2.0},
        logits_processor=(lambda ids, logits: logits + ids.sum() % 3,),
    )
    logits = np.random.default_rng(0).normal(0, 1, 1006).astype(np.float32)
    used = LogitsPipeline.from_settings(chosen, do_sample=False)
    for ids in after(edits):
        context = LogitsContext(ids, min(3, len(ids)))
        new = LogitsPipeline.from_settings(chosen, do_sample=False)
        np.testing.assert_array_equal(used(Candidates(logits), context).logits, new(Candidates(logits), context).logits)
