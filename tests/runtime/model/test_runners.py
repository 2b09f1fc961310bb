"""One suite for every kind of runner: the logits of any way to run a sequence are those of its ids."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from edgegen.model.concat_runner import ConcatRunner
from edgegen.model.in_place_runner import InPlaceRunner, Logits
from edgegen.model.interfaces import Runner, make_runner
from tests.runtime.models import FailAt, FakeGraphs, RandomGraphs, digest_of, fake_variant
from tests.toy_decoder import POSITIONS, VOCABULARY, ToyGraphs, toy_logits, toy_variant, toy_weights

WEIGHTS = toy_weights()
IDS = np.random.default_rng(5).integers(0, VOCABULARY, POSITIONS).tolist()


@dataclass(frozen=True)
class Subject:
    """A runner, its graphs, and the logits [vocab] after given ids, known without it."""

    runner: Runner[Any]
    graphs: FakeGraphs | ToyGraphs
    expected: Callable[[list[int]], Logits]

    def agrees(self, found: Logits, ids: list[int]) -> bool:
        return np.allclose(found, self.expected(ids), rtol=0, atol=1e-4)


def in_place() -> Subject:
    graphs = RandomGraphs(vocab_size=VOCABULARY)
    return Subject(InPlaceRunner(graphs, fake_variant(), VOCABULARY, POSITIONS), graphs, graphs.logits)


def concat() -> Subject:
    graphs = ToyGraphs(WEIGHTS)
    runner = ConcatRunner(graphs, toy_variant(), VOCABULARY, POSITIONS)
    return Subject(runner, graphs, lambda ids: toy_logits(WEIGHTS, ids)[-1])


@pytest.fixture(params=[in_place, concat], ids=lambda make: make.__name__)
def subject(request: pytest.FixtureRequest) -> Subject:
    return request.param()


@pytest.mark.parametrize("chunk", [1, 2, 7, POSITIONS])
def test_a_prompt_may_come_in_chunks(subject: Subject, chunk: int) -> None:
    cache = subject.runner.new_cache()
    for start in range(0, POSITIONS, chunk):
        logits = subject.runner.prefill(cache, 0, IDS[start : start + chunk])
        end = min(start + chunk, POSITIONS)
        assert subject.agrees(logits, IDS[:end])
        assert cache.lengths[0] == end


@pytest.mark.parametrize("step", [1, 3, POSITIONS])
def test_decoding_gives_the_logits_of_every_position(subject: Subject, step: int) -> None:
    cache = subject.runner.new_cache()
    for start in range(0, POSITIONS, step):
        logits = subject.runner.decode(cache, np.array([IDS[start : start + step]]))
        assert logits.shape == (1, min(step, POSITIONS - start), VOCABULARY)
        assert all(subject.agrees(one, IDS[: start + n + 1]) for n, one in enumerate(logits[0]))


def test_sequences_of_different_lengths_decode_together(subject: Subject) -> None:
    runner, cache = subject.runner, subject.runner.new_cache()
    prompts = [IDS[:20], IDS[3:4], IDS[7:19]]
    for slot, prompt in enumerate(prompts):
        cache.reserve(slot + 1, len(prompt))
        runner.prefill(cache, slot, prompt)
    for next_id in (5, 9):
        logits = runner.decode(cache, np.full((3, 1), next_id))
        prompts = [[*prompt, next_id] for prompt in prompts]
        assert all(subject.agrees(row[0], prompt) for row, prompt in zip(logits, prompts, strict=True))
    assert subject.agrees(runner.decode(cache, np.array([[1], [1]]), first_slot=1)[1, 0], [*prompts[2], 1])
    assert cache.lengths[:3].tolist() == [22, 4, 15]


def test_a_fork_goes_its_own_way(subject: Subject) -> None:
    runner, cache = subject.runner, subject.runner.new_cache()
    cache.reserve(2, 20)
    runner.prefill(cache, 0, IDS[:9])
    cache.fork(0, 1)
    runner.decode(cache, np.array([[1], [2]]))
    logits = runner.decode(cache, np.array([[3], [3]]))
    assert subject.agrees(logits[0, 0], [*IDS[:9], 1, 3])
    assert subject.agrees(logits[1, 0], [*IDS[:9], 2, 3])


def test_a_slot_goes_on_from_where_it_was_cut_short_or_restored(subject: Subject) -> None:
    runner, cache = subject.runner, subject.runner.new_cache()
    runner.prefill(cache, 0, IDS)
    snapshot = cache.save(0)
    cache.truncate(0, 11)
    assert subject.agrees(runner.decode(cache, np.array([[4, 6]]))[0, 1], [*IDS[:11], 4, 6])
    cache.restore(0, snapshot, 17)
    assert subject.agrees(runner.decode(cache, np.array([[4, 6]]))[0, 1], [*IDS[:17], 4, 6])


def test_logits_are_one_buffer_and_steps_copy_nothing(subject: Subject) -> None:
    cache = subject.runner.new_cache()
    cache.reserve(1, 20)
    first = subject.runner.decode(cache, np.array([[1]]))
    assert subject.runner.decode(cache, np.array([[2]])) is first
    assert cache.copied_bytes == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("the graph failed")], ids=repr)
@pytest.mark.parametrize("place", ["before_run", "after_run"])
def test_a_run_that_fails_is_not_counted(subject: Subject, place: str, error: BaseException) -> None:
    runner, cache = subject.runner, subject.runner.new_cache()
    runner.prefill(cache, 0, IDS[:3])
    setattr(subject.graphs, place, FailAt(1, error))
    with pytest.raises(type(error)):
        runner.prefill(cache, 0, IDS[3:6])
    assert cache.lengths[0] == 3
    assert subject.agrees(runner.prefill(cache, 0, IDS[3:6]), IDS[:6])


def test_the_kind_of_cache_chooses_the_runner() -> None:
    concat = make_runner(ToyGraphs(WEIGHTS), toy_variant(), VOCABULARY, POSITIONS)
    in_place = make_runner(FakeGraphs(digest_of), fake_variant(), VOCABULARY, POSITIONS)
    assert (type(concat), concat.cache_kind) == (ConcatRunner, "concat")
    assert (type(in_place), in_place.cache_kind) == (InPlaceRunner, "in_place")
