"""The engine over a ConcatRunner, on a toy decoder that NumPy computes as well; test_runners.py has the runner."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.engine.engine import Engine
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams
from edgegen.model.concat_runner import ConcatRunner
from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler
from tests.runtime.models import FailAt
from tests.toy_decoder import POSITIONS, VOCABULARY, ToyGraphs, toy_logits, toy_variant, toy_weights

WEIGHTS = toy_weights()
GRAPHS = ToyGraphs(WEIGHTS)
IDS = np.random.default_rng(5).integers(0, VOCABULARY, POSITIONS).tolist()


@pytest.fixture
def graphs() -> ToyGraphs:
    return ToyGraphs(WEIGHTS)


def sequence(prompt: list[int], new: int) -> Sequence:
    sampler = Sampler(seed=0, do_sample=False)
    params = SequenceParams(len(prompt), new, LogitsPipeline(), sampler, lambda ids: None)
    return Sequence(list(prompt), params)


def greedy(prompt: list[int], new: int) -> list[int]:
    """As NumPy computes it, everything anew for every id."""
    ids = list(prompt)
    for _ in range(new):
        ids.append(int(toy_logits(WEIGHTS, ids)[-1].argmax()))
    return ids[len(prompt) :]


PROMPT = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20)


@settings(deadline=None, max_examples=25)
@given(prompts=st.lists(PROMPT, min_size=1, max_size=4), chunk=st.integers(2, 9))
def test_rows_of_a_group_get_what_each_would_get_alone(prompts: list[list[int]], chunk: int) -> None:
    engine = Engine(ConcatRunner(GRAPHS, toy_variant(), VOCABULARY, POSITIONS), prefill_chunk=chunk)
    lengths = [1 + (5 * n) % 11 for n in range(len(prompts))]
    group = SequenceGroup([sequence(p, n) for p, n in zip(prompts, lengths, strict=True)])
    engine.add(group)
    while not group.finished:
        engine.step()
    assert [one.generated for one in group] == [greedy(p, n) for p, n in zip(prompts, lengths, strict=True)]


@pytest.mark.parametrize("place", ["before_run", "after_run"])
@pytest.mark.parametrize("at", range(1, 12))
def test_a_failed_step_leaves_the_next_request_alone(graphs: ToyGraphs, at: int, place: str) -> None:
    engine = Engine(ConcatRunner(graphs, toy_variant(), VOCABULARY, POSITIONS), prefill_chunk=4)
    first, second = (SequenceGroup([sequence(IDS[:6], 5), sequence(IDS[6:9], 5)]) for _ in range(2))
    engine.add(first)
    engine.add(second)
    setattr(graphs, place, FailAt(at, RuntimeError("the graph failed")))
    while not (first.finished and second.finished):
        engine.step()
    rows = [*first, *second]
    # What ran for both requests at once is run again for each, and fails no request this time.
    assert {str(one.error) for one in rows} <= {"None", "the graph failed"}
    assert any(one.error for one in rows) or at > 7
    assert not any(one.error for one in second) or not any(one.error for one in first)
    right = [greedy(IDS[:6], 5), greedy(IDS[6:9], 5)]
    assert all(one.error or one.generated == answer for one, answer in zip(rows, 2 * right, strict=True))
