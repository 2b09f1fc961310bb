"""tune(): what is measured, in which order, and what is chosen, over rounds of known times."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgegen.benchmark import Batch, BenchmarkOptions, Decode, Prefill, Round
from edgegen.benchmark.tune import thread_choices, tune
from edgegen.bundle.bundle import Bundle
from edgegen.errors import OptionError, VerificationError
from edgegen.options.tuned import TunedOptions
from edgegen.system import Cores
from tests.runtime.benchmark.rounds import ROUND
from tests.runtime.models import write_fake_bundle

FOUR = Cores(4, 4, 4)


class Machine:
    """Runs rounds in no time: ``prefill`` seconds a token and ``step`` seconds, by the options."""

    def __init__(self, prefill: Callable[[BenchmarkOptions], float], step: Callable[[BenchmarkOptions], float]) -> None:
        self.prefill, self.step = prefill, step
        self.seen = list[BenchmarkOptions]()

    def __call__(self, path: Path, options: BenchmarkOptions, on_part: Callable[[], object]) -> Round:
        self.seen.append(options)
        (tokens,) = options.prefill
        step = self.step(options)
        return replace(
            ROUND,
            prefill=(Prefill(tokens, tokens * self.prefill(options)),),
            decode=(Decode(tokens, 1, (step, step, 9.0), (step,) * 3),),
            batch=(Batch(1, tokens, (step,)),),
        )


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return write_fake_bundle(tmp_path / "one", max_context=400)


def test_the_fastest_is_chosen_on_each_axis(bundle: Bundle) -> None:
    machine = Machine(
        lambda options: 0.001 if options.prefill_chunk == 64 else 0.002,
        lambda options: 0.010 if options.threads == 3 else 0.020,
    )
    progress = list[tuple[int, int]]()
    found = tune(
        bundle, repeats=2, run_round=machine, found=FOUR, on_progress=lambda done, all_: progress.append((done, all_))
    )
    assert found.default.options == TunedOptions(4, 256, "float32")
    assert found.chosen.options == TunedOptions(3, 64, "float32")
    assert found.prompt_tokens == 200
    assert found.chosen.seconds == pytest.approx(200 * 0.001 + 64 * 0.010)
    assert found.default.seconds == pytest.approx(200 * 0.002 + 64 * 0.020)
    assert found.chosen.prefill_tokens_per_second == pytest.approx(1000)
    assert found.chosen.decode_tokens_per_second == pytest.approx(100)
    threads = [options.threads for options in machine.seen]
    assert threads[:6] == [4, 2, 3, 4, 2, 3]
    assert set(threads[6:]) == {3}
    assert [options.prefill_chunk for options in machine.seen[6:14]] == [256, 32, 64, 128] * 2
    assert progress == [(done, 16) for done in range(1, 17)]


def test_what_is_hardly_faster_is_no_reason_to_leave_the_default(bundle: Bundle) -> None:
    machine = Machine(lambda options: 0.001, lambda options: 0.0098 if options.threads == 2 else 0.010)
    found = tune(bundle, repeats=1, run_round=machine, found=FOUR)
    assert found.chosen is found.default


def test_a_slow_round_is_forgotten(bundle: Bundle) -> None:
    rounds = iter([9.0] + [0.01] * 99)
    found = tune(bundle, repeats=2, run_round=Machine(lambda options: 0.001, lambda options: next(rounds)), found=FOUR)
    assert found.chosen is found.default
    assert found.default.decode_tokens_per_second == pytest.approx(100)


def test_types_of_kv_cache_are_measured_where_there_are_several(int8_bundle: Bundle) -> None:
    machine = Machine(lambda options: 0.001, lambda options: 0.01 if options.kv == "float32" else 0.02)
    found = tune(int8_bundle, repeats=1, run_round=machine, found=Cores(1, 1, 1))
    assert found.default.options.kv == "int8"
    assert found.chosen.options.kv == "float32"


@pytest.mark.parametrize(
    ("cores", "choices"),
    [
        (Cores(2, 2, 2), [1, 2]),
        (Cores(1, 1, 1), [1]),
        (Cores(16, 12, 4), [2, 3, 4, 12]),
        (Cores(16, 12, 4, quota=2.5), [1, 2, 3]),
        (Cores(16, 12, 4, quota=6.0), [2, 3, 4, 6]),
    ],
)
def test_thread_choices(cores: Cores, choices: list[int]) -> None:
    assert thread_choices(cores) == choices


def test_errors_come_before_anything_is_measured(bundle: Bundle) -> None:
    machine = Machine(lambda options: 1, lambda options: 1)
    with pytest.raises(OptionError, match="repeats: at least 1 expected, found 0"):
        tune(bundle, repeats=0, run_round=machine)
    bundle.file("weights.data").write_bytes(b"damaged")
    with pytest.raises(VerificationError):
        tune(bundle, run_round=machine)
    assert machine.seen == []
