"""The workbench on stand-ins for graphs, with a clock that moves when they run, or when it is read."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.benchmark.timed_graphs import TimedGraphs
from edgegen.benchmark.workbench import Workbench
from edgegen.errors import LogitsError
from edgegen.model.concat_runner import ConcatRunner
from edgegen.model.in_place_runner import InPlaceRunner
from tests.runtime.models import EOS, VOCAB_SIZE, FakeGraphs, fake_variant
from tests.toy_decoder import POSITIONS, VOCABULARY, ToyGraphs, toy_variant, toy_weights


class Clock:
    """Reading it takes ``tick`` seconds."""

    def __init__(self, tick: float = 0.0) -> None:
        self.now = 0.0
        self.tick = tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


class SlowGraphs(FakeGraphs):
    """A run takes a second and one for each token; the end of the text is always the likeliest."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(lambda ids: EOS)
        self.clock = clock
        self.after_run = self._take_time

    def _take_time(self) -> None:
        _, tokens = self.runs[-1]
        self.clock.now += 1 + tokens


def workbench(clock: Clock, *, chunk: int = 8) -> tuple[Workbench, SlowGraphs]:
    fake = SlowGraphs(clock)
    timed = TimedGraphs(fake, clock)
    return Workbench(InPlaceRunner(timed, fake_variant(), VOCAB_SIZE, max_context=512), timed, chunk), fake


def test_prefill_is_timed_from_the_prompt_to_the_first_token() -> None:
    bench, graphs = workbench(Clock())
    assert bench.prefill(20) == (1 + 8) + (1 + 8) + (1 + 4)
    assert graphs.runs == [("prefill", 8), ("prefill", 8), ("prefill", 4)]


def test_decode_steps_are_timed_one_by_one_and_go_on_beyond_the_end_of_a_text() -> None:
    bench, graphs = workbench(Clock())
    steps = bench.decode(1, 20, 5)
    assert steps.whole == steps.graph == (2.0,) * 5
    assert graphs.runs[3:] == [("decode", 1)] * 5


def test_what_a_step_takes_outside_the_graphs_is_the_difference() -> None:
    bench, _ = workbench(Clock(tick=0.25))
    steps = bench.decode(1, 4, 3)
    assert steps.graph == (2.25,) * 3  # and a tick, as the clock is read before and after
    assert steps.whole == (2.75,) * 3


def test_rows_of_a_batch_step_together() -> None:
    bench, graphs = workbench(Clock())
    steps = bench.decode(3, 4, 2)
    assert steps.whole == (2.0, 2.0)
    assert graphs.runs == [("prefill", 4)] * 3 + [("decode", 1)] * 2


def test_a_workbench_begins_with_a_prompt_and_one_step() -> None:
    bench, graphs = workbench(Clock())
    seen = list[int]()
    bench.begin(6, lambda: seen.append(len(graphs.runs)))
    assert seen == [1]
    assert graphs.runs == [("prefill", 6), ("decode", 1)]


def test_prompts_are_not_repeated() -> None:
    bench, graphs = workbench(Clock())
    prompts = set[tuple[int, ...]]()

    def note(ids: list[int]) -> int:
        prompts.add(tuple(ids))
        return 0

    graphs.next_id = note
    for _ in range(3):
        bench.prefill(5)
    assert len(prompts) == 3


def test_logits_that_are_none_fail_it() -> None:
    class Broken(SlowGraphs):
        def logits(self, ids: list[int]) -> NDArray[np.float32]:
            return np.full(VOCAB_SIZE, np.nan if len(ids) > 6 else 0.0, np.float32)

    timed = TimedGraphs(Broken(Clock()), Clock())
    bench = Workbench(InPlaceRunner(timed, fake_variant(), VOCAB_SIZE, max_context=512), timed, 8)
    assert len(bench.decode(1, 4, 2).whole) == 2
    with pytest.raises(LogitsError):
        bench.decode(1, 4, 3)
    with pytest.raises(LogitsError):
        bench.prefill(7)


def test_a_cache_that_grows_anew_is_measured_alike() -> None:
    timed = TimedGraphs(ToyGraphs(toy_weights()), Clock(tick=1.0))
    bench = Workbench(ConcatRunner(timed, toy_variant(), VOCABULARY, POSITIONS), timed, 8)
    assert bench.prefill(5) > 0
    assert len(bench.decode(2, 5, 4).whole) == 4
