"""Figures of rounds, computed by hand; rounds in turns."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgegen.benchmark import BenchmarkOptions, Round, Spread, run_benchmark
from edgegen.bundle.bundle import Bundle
from edgegen.errors import BundleNotFoundError, UsageError, VerificationError
from tests.runtime.benchmark.rounds import BENCHMARK, ROUND
from tests.runtime.models import write_fake_bundle


def spread(median: float, low: float, high: float) -> object:
    return pytest.approx([median, low, high])


def parts(found: Spread | None) -> list[float]:
    assert found is not None
    return [found.median, found.low, found.high]


def test_speeds_are_medians_of_rounds_which_are_medians_of_steps() -> None:
    assert parts(BENCHMARK.decode[32].tokens_per_second) == spread(250, 125, 250)
    assert parts(BENCHMARK.decode[256].tokens_per_second) == spread(200, 100, 200)
    assert parts(BENCHMARK.prefill[128]) == spread(4000, 2000, 4000)
    assert parts(BENCHMARK.batch[4].tokens_per_second) == spread(500, 500, 500)
    assert BENCHMARK.batch[4].context == 32


def test_overhead_compares_every_step_with_itself() -> None:
    assert parts(BENCHMARK.decode[32].overhead_seconds) == spread(0.0001, 0.0001, 0.0005)
    assert parts(BENCHMARK.decode[256].overhead_seconds) == spread(0.0004, 0.0002, 0.0004)


def test_the_share_of_bandwidth_counts_weights_and_context_and_what_the_same_round_found() -> None:
    assert BENCHMARK.decode[32].bytes_per_token == 132_000_000
    assert parts(BENCHMARK.decode[32].bandwidth_share) == spread(132e6 * 250 / 50e9, 0.66, 0.66)
    assert BENCHMARK.decode[256].bytes_per_token == 356_000_000


def test_what_the_system_does_not_tell_is_none() -> None:
    assert parts(BENCHMARK.memory_bytes) == spread(150e6, 150e6, 150e6)
    untold = replace(BENCHMARK, rounds=(ROUND, replace(ROUND, memory_bytes=None, peak_bytes=None)))
    assert untold.memory_bytes is None
    assert untold.peak_bytes is None
    assert parts(untold.first_token_seconds) == spread(0.8, 0.8, 0.8)


@pytest.fixture
def bundles(tmp_path: Path) -> list[Bundle]:
    return [write_fake_bundle(tmp_path / name, max_context=400) for name in ("one", "two")]


def test_models_take_turns(bundles: list[Bundle]) -> None:
    seen, progress = list[Path](), list[tuple[int, int]]()

    def measured(path: Path, options: BenchmarkOptions, on_part: Callable[[], object]) -> Round:
        seen.append(path)
        on_part()
        return replace(ROUND, load_seconds=len(seen))

    options = BenchmarkOptions(prefill=(8,), contexts=(8, 500), batches=(1,), repeats=3, threads=7)
    one, two = run_benchmark(
        [bundle.path for bundle in bundles],
        options,
        on_progress=lambda done, total: progress.append((done, total)),
        run_round=measured,
    )
    assert seen == [bundles[0].path, bundles[1].path] * 3
    assert [each.load_seconds for each in one.rounds] == [1, 3, 5]
    assert [each.load_seconds for each in two.rounds] == [2, 4, 6]
    assert progress == [(done, 3 * 2 * 5) for done in range(1, 7)]
    assert (one.model, one.threads, one.kv) == (str(bundles[0].path), 7, "float32")
    assert one.weights_bytes == bundles[0].file("weights.data").stat().st_size
    assert one.kv_bytes_per_token == 8
    assert one.left_out == ("32 tokens after 500",)


def never(path: Path, options: BenchmarkOptions, on_part: Callable[[], object]) -> Round:
    raise AssertionError("nothing is to be measured")


def test_a_bundle_that_cannot_be_measured_is_found_before_any_is(bundles: list[Bundle]) -> None:
    with pytest.raises(BundleNotFoundError):
        run_benchmark([bundles[0].path, "nowhere"], run_round=never)
    with pytest.raises(UsageError, match="no variant with a KV cache in int8"):
        run_benchmark([bundles[0].path], BenchmarkOptions(kv="int8"), run_round=never)
    bundles[1].file("weights.data").write_bytes(b"damaged")
    with pytest.raises(VerificationError):
        run_benchmark([bundle.path for bundle in bundles], run_round=never)
