"""ConcatRunner, and the engine over it, on a toy decoder that NumPy computes as well."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.engine.engine import Engine
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams
from edgegen.model.concat_runner import ConcatRunner
from edgegen.model.in_place_runner import InPlaceRunner, Logits
from edgegen.model.interfaces import make_runner
from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler
from tests.runtime.models import FailAt, FakeGraphs, digest_of, fake_variant
from tests.toy_decoder import POSITIONS, VOCABULARY, ToyGraphs, toy_logits, toy_variant, toy_weights

WEIGHTS = toy_weights()
GRAPHS = ToyGraphs(WEIGHTS)
IDS = np.random.default_rng(5).integers(0, VOCABULARY, POSITIONS).tolist()


@pytest.fixture
def graphs() -> ToyGraphs:
    return ToyGraphs(WEIGHTS)


@pytest.fixture
def runner() -> ConcatRunner:
    return ConcatRunner(GRAPHS, toy_variant(), VOCABULARY, POSITIONS)


def close(found: Logits, ids: list[int], at: slice | int = slice(None)) -> bool:
    return np.allclose(found, toy_logits(WEIGHTS, ids)[at], rtol=0, atol=1e-4)


@pytest.mark.parametrize("chunk", [1, 2, 7, POSITIONS])
def test_a_prompt_in_chunks_gives_the_logits_of_numpy(runner: ConcatRunner, chunk: int) -> None:
    cache = runner.new_cache()
    for start in range(0, POSITIONS, chunk):
        logits = runner.prefill(cache, 0, IDS[start : start + chunk])
        end = min(start + chunk, POSITIONS)
        assert close(logits, IDS[:end], -1)
        assert cache.lengths.tolist() == [end]


@pytest.mark.parametrize("step", [1, 3, POSITIONS])
def test_decoding_gives_the_logits_of_numpy_at_every_position(runner: ConcatRunner, step: int) -> None:
    cache = runner.new_cache()
    for start in range(0, POSITIONS, step):
        logits = runner.decode(cache, np.array([IDS[start : start + step]]))
        end = start + logits.shape[1]
        assert logits.shape == (1, min(step, POSITIONS - start), VOCABULARY)
        assert close(logits[0], IDS[:end], slice(start, end))


def test_rows_of_different_lengths_decode_together(runner: ConcatRunner) -> None:
    cache = runner.new_cache()
    prompts = [IDS[:20], IDS[3:4], IDS[7:19]]
    for slot, prompt in enumerate(prompts):
        runner.prefill(cache, slot, prompt)
    for next_id in (5, 9):
        logits = runner.decode(cache, np.full((3, 1), next_id))
        prompts = [[*prompt, next_id] for prompt in prompts]
        assert all(close(row[0], prompt, -1) for row, prompt in zip(logits, prompts, strict=True))
    assert close(runner.decode(cache, np.array([[1], [1]]), first_slot=1)[1, 0], [*prompts[2], 1], -1)
    assert cache.lengths.tolist() == [22, 4, 15]


def test_a_fork_goes_its_own_way(runner: ConcatRunner) -> None:
    cache = runner.new_cache()
    cache.reserve(2, 0)
    runner.prefill(cache, 0, IDS[:9])
    cache.fork(0, 1)
    runner.decode(cache, np.array([[1], [2]]))
    logits = runner.decode(cache, np.array([[3], [3]]))
    assert close(logits[0, 0], [*IDS[:9], 1, 3], -1)
    assert close(logits[1, 0], [*IDS[:9], 2, 3], -1)


def test_a_row_cut_short_goes_on_from_there(runner: ConcatRunner) -> None:
    cache = runner.new_cache()
    runner.prefill(cache, 0, IDS)
    cache.truncate(0, 11)
    assert close(runner.decode(cache, np.array([[4, 6]]))[0], [*IDS[:11], 4, 6], slice(11, 13))


def test_logits_are_one_buffer_and_steps_copy_nothing(runner: ConcatRunner) -> None:
    cache = runner.new_cache()
    first = runner.decode(cache, np.array([[1]]))
    past = cache.past(0)
    assert runner.decode(cache, np.array([[2]])) is first
    assert cache.copied_bytes == 0
    assert cache.past(0) is not past


def test_an_interrupted_run_is_not_counted(graphs: ToyGraphs) -> None:
    runner = ConcatRunner(graphs, toy_variant(), VOCABULARY, POSITIONS)
    cache = runner.new_cache()
    runner.prefill(cache, 0, IDS[:3])
    graphs.after_run = FailAt(1, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        runner.prefill(cache, 0, IDS[3:6])
    assert cache.lengths.tolist() == [3]
    assert close(runner.prefill(cache, 0, IDS[3:6]), IDS[:6], -1)


# The engine.


def sequence(prompt: list[int], new: int, *, use_cache: bool = True) -> Sequence:
    sampler = Sampler(seed=0, do_sample=False)
    params = SequenceParams(len(prompt), new, LogitsPipeline(), sampler, lambda ids: None, use_cache)
    return Sequence(list(prompt), params)


def greedy(prompt: list[int], new: int) -> list[int]:
    """As NumPy computes it, everything anew for every id."""
    ids = list(prompt)
    for _ in range(new):
        ids.append(int(toy_logits(WEIGHTS, ids)[-1].argmax()))
    return ids[len(prompt) :]


PROMPT = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20)


@settings(deadline=None, max_examples=25)
@given(prompts=st.lists(PROMPT, min_size=1, max_size=4), chunk=st.integers(2, 9), use_cache=st.booleans())
def test_rows_of_a_group_get_what_each_would_get_alone(prompts: list[list[int]], chunk: int, use_cache: bool) -> None:
    engine = Engine(ConcatRunner(GRAPHS, toy_variant(), VOCABULARY, POSITIONS), prefill_chunk=chunk)
    lengths = [1 + (5 * n) % 11 for n in range(len(prompts))]
    group = SequenceGroup([sequence(p, n, use_cache=use_cache) for p, n in zip(prompts, lengths, strict=True)])
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
    # What ran for both requests at once is run again for each, and fails nobody this time.
    assert {str(one.error) for one in rows} <= {"None", "the graph failed"}
    assert any(one.error for one in rows) or at > 7
    assert not any(one.error for one in second) or not any(one.error for one in first)
    right = [greedy(IDS[:6], 5), greedy(IDS[6:9], 5)]
    assert all(one.error or one.generated == answer for one, answer in zip(rows, 2 * right, strict=True))


# Which runner.


def test_the_kind_of_cache_chooses_the_runner() -> None:
    concat = make_runner(GRAPHS, toy_variant(), VOCABULARY, POSITIONS)
    in_place = make_runner(FakeGraphs(digest_of), fake_variant(), VOCABULARY, POSITIONS)
    assert (type(concat), concat.cache_kind) == (ConcatRunner, "concat")
    assert (type(in_place), in_place.cache_kind) == (InPlaceRunner, "in_place")
