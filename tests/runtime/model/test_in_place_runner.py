"""InPlaceRunner over real graphs: what the logits may depend on, and what they may not."""

import gc
import weakref
from contextlib import suppress
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import Phase
from edgegen.engine.chunked_prefill import chunk_end
from edgegen.model.in_place_runner import InPlaceRunner, Logits
from edgegen.model.interfaces import Runner
from edgegen.model.kv_cache import KVCache
from edgegen.model.loading import open_runner
from edgegen.model.ort_session import Binding
from edgegen.options.engine import EngineOptions
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.checkpoint.layouts import write_llama
from tests.runtime.models import FakeBinding, FakeGraphs, fake_runner, fake_variant, random_ids

PROMPT = random_ids(90)


def run(runner: Runner[Any], cache: KVCache, prompt: list[int], steps: int, chunk: int = 128, slot: int = 0) -> Logits:
    """Prefill a prompt and decode greedily; logits [steps + 1, vocab] of every choice."""
    start, rows = 0, list[Logits]()
    while start < len(prompt):
        stop = chunk_end(start, len(prompt), chunk)
        rows = [runner.prefill(cache, slot, prompt[start:stop]).copy()]
        start = stop
    for _ in range(steps):
        next_id = np.array([[rows[-1].argmax()]], np.int64)
        rows.append(runner.decode(cache, next_id, slot)[0, 0].copy())
    return np.array(rows)


def poison(cache: KVCache) -> None:
    """NaN, or a large code, in every position beyond the lengths."""
    for buffer in cache.buffers(0, cache.slots):
        for slot, length in enumerate(cache.lengths):
            buffer.array[slot, :, length:] = 127 if buffer.array.dtype == np.int8 else np.nan


def test_positions_beyond_a_length_are_never_read(runner: InPlaceRunner) -> None:
    clean, poisoned = runner.new_cache(), runner.new_cache()
    expected = run(runner, clean, PROMPT, 8)
    poisoned.reserve(1, 200)
    poison(poisoned)
    assert np.array_equal(run(runner, poisoned, PROMPT, 8), expected)


def test_capacity_and_growth_change_no_bit(runner: InPlaceRunner) -> None:
    grown, reserved = runner.new_cache(), runner.new_cache()
    reserved.reserve(1, 512)
    assert np.array_equal(run(runner, grown, PROMPT[:40], 150), run(runner, reserved, PROMPT[:40], 150))
    assert (reserved.copied_bytes, reserved.version) == (0, 1)
    assert grown.version > 2
    assert grown.copied_bytes > 0


@pytest.mark.parametrize("chunk", [2, 7, 44, 89])
def test_the_cut_of_a_prompt_changes_no_bit(runner: InPlaceRunner, chunk: int) -> None:
    whole = run(runner, runner.new_cache(), PROMPT, 3)
    assert np.array_equal(run(runner, runner.new_cache(), PROMPT, 3, chunk), whole)


@pytest.mark.usefixtures("all_cores")
def test_the_number_of_threads_changes_no_bit(bundle: Bundle) -> None:
    one, two = (open_runner(bundle, EngineOptions(threads=threads)) for threads in (1, 2))
    assert np.array_equal(run(one, one.new_cache(), PROMPT, 12), run(two, two.new_cache(), PROMPT, 12))


@pytest.mark.parametrize("kernels", ["auto", "stock"])
def test_rows_of_a_batch_get_the_bits_they_get_alone(bundle: Bundle, kernels: Any) -> None:
    runner = open_runner(bundle, EngineOptions(threads=1, kernels=kernels))
    prompts = [random_ids(count, seed=count) for count in (70, 5, 1, 33)]
    alone = [run(runner, runner.new_cache(), prompt, 6) for prompt in prompts]

    cache = runner.new_cache()
    logits: list[Logits] = []
    for slot, prompt in enumerate(prompts):
        cache.reserve(slot + 1, len(prompt))
        logits.append(runner.prefill(cache, slot, prompt).copy())
    together = [np.array(logits)]
    for _ in range(6):
        together.append(runner.decode(cache, together[-1].argmax(axis=1)[:, None])[:, 0].copy())
    assert np.array_equal(np.array(together).swapaxes(0, 1), np.array(alone))


def test_rows_in_the_middle_can_run_by_themselves(runner: InPlaceRunner) -> None:
    alone = run(runner, runner.new_cache(), PROMPT, 6)
    cache = runner.new_cache()
    cache.reserve(3, 200)
    others = [runner.prefill(cache, slot, PROMPT[:20]).copy() for slot in (0, 2)]
    before = [buffer.array[[0, 2], :, :20].copy() for buffer in cache.buffers(0, 3)]
    assert np.array_equal(run(runner, cache, PROMPT, 6, slot=1), alone)
    assert np.array_equal(others[0], others[1])
    assert cache.lengths.tolist() == [20, 96, 20]
    after = [buffer.array[[0, 2], :, :20] for buffer in cache.buffers(0, 3)]
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))


def test_a_fork_goes_on_like_its_source(runner: InPlaceRunner) -> None:
    cache = runner.new_cache()
    cache.reserve(2, 200)
    runner.prefill(cache, 0, PROMPT)
    cache.fork(0, 1)
    next_ids = np.full((2, 1), 65, np.int64)
    for _ in range(4):
        logits = runner.decode(cache, next_ids)
        assert np.array_equal(logits[0], logits[1])
        next_ids = logits[:, -1:].argmax(axis=2)


def test_several_tokens_of_one_row_give_the_logits_of_each(runner: InPlaceRunner) -> None:
    cache = runner.new_cache()
    together = runner.decode(cache, np.array([PROMPT[:12]], np.int64))[0].copy()
    prefixes = [runner.prefill(runner.new_cache(), 0, PROMPT[:end]).copy() for end in range(2, 13)]
    assert np.allclose(together[1:], prefixes, atol=1e-4)


def test_a_new_cache_in_the_place_of_an_old_one_is_bound() -> None:
    """An ``id`` is used again as soon as its object is gone: it must not stand for a cache."""
    runner = fake_runner(FakeGraphs(lambda ids: sum(ids) % 256))
    for first in range(60):
        cache = runner.new_cache()
        runner.prefill(cache, 0, [first, 3])
        written = cache.buffers(0, 1)[0].array[0, 0, :2, 0].tolist()
        assert written == [first, 3]
        assert runner.decode(cache, np.array([[4]])).argmax() == (first + 7) % 256
        del cache


def test_growth_leaves_nothing_bound_to_the_old_arrays(runner: InPlaceRunner) -> None:
    cache = runner.new_cache()
    run(runner, cache, PROMPT[:50], 5)  # both graphs are bound
    old = [weakref.ref(cast(NDArray[Any], buffer.array.base)) for buffer in cache.buffers(0, 1)]
    assert all(reference() is not None for reference in old)
    cache.reserve(1, 100)
    gc.collect()
    assert not any(reference() is not None for reference in old)
    runner.decode(cache, np.array([[1]], np.int64))


class Interrupt:
    """Raises KeyboardInterrupt once, in a chosen run."""

    def __init__(self, run: int) -> None:
        self.runs_left = run

    def __call__(self) -> None:
        self.runs_left -= 1
        if self.runs_left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", range(1, 8))
def test_an_interrupted_binding_is_done_again(at: int) -> None:
    graphs = FakeGraphs(lambda ids: sum(ids) % 256)
    runner = fake_runner(graphs)
    cache = runner.new_cache()
    assert runner.prefill(cache, 0, [1, 2, 3]).argmax() == 6
    graphs.before_binding = Interrupt(at)
    # Another shape and another cache, and then the old ones again, which must not count as bound.
    other = KVCache(fake_variant().kv, 512)
    with suppress(KeyboardInterrupt):
        other.reserve(2, 10)
        runner.prefill(other, 1, [7, 7])
    graphs.before_binding = lambda: None
    assert runner.prefill(cache, 0, [4, 5, 6]).argmax() == 21
    other.truncate(1, 0)
    assert runner.prefill(other, 1, [7, 8]).argmax() == 15


# Rotary positions.


@pytest.fixture(scope="module", params=["int8", "fp32"])
def rotated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A Llama whose attention operator rotates; its tables grow with the cache."""
    folder = tmp_path_factory.mktemp("rotated")
    source = write_llama(folder / "checkpoint", max_position_embeddings=512, vocab_size=256)
    return export(str(source), folder / "bundle", ExportOptions(scheme=request.param))[0]


def test_a_rotated_model_gives_the_same_logits_after_its_cache_has_grown(rotated: Bundle) -> None:
    runner = open_runner(rotated, EngineOptions(threads=1))
    reserved = runner.new_cache()
    reserved.reserve(1, 512)
    expected = run(runner, reserved, PROMPT[:40], 150)
    fresh = open_runner(rotated, EngineOptions(threads=1))  # whose tables are still short
    grown = fresh.new_cache()
    assert np.array_equal(run(fresh, grown, PROMPT[:40], 150), expected)
    assert grown.version > 2


def test_caches_of_different_capacity_take_turns_on_the_same_tables(rotated: Bundle) -> None:
    runner = open_runner(rotated, EngineOptions(threads=1))
    alone = run(runner, runner.new_cache(), PROMPT[:20], 6)
    short, long = runner.new_cache(), runner.new_cache()
    logits = [runner.prefill(short, 0, PROMPT[:20]).copy()]
    for at in range(6):
        runner.prefill(long, 0, PROMPT + PROMPT[: 40 * (at == 3)])  # grows the tables beyond the short cache
        next_id = np.array([[logits[-1].argmax()]], np.int64)
        logits.append(runner.decode(short, next_id)[0, 0].copy())
    assert short.capacity < long.capacity
    assert np.array_equal(logits, alone)


class KeptBindings(FakeGraphs):
    """Interrupts each run before it begins, and notes what it then reads as its total sequence length."""

    def __init__(self, *, ours: bool) -> None:
        super().__init__(lambda ids: len(ids) % 7)
        self.attends_batches = ours
        self.totals = list[int]()
        self.before_run = self.interrupt

    def binding(self, phase: Phase) -> Binding:
        self.bound = FakeBinding(self, phase)
        return self.bound

    def interrupt(self) -> None:
        self.switch.interrupt()
        self.totals += [int(array) for name, array in self.bound.arrays.items() if name.startswith("total")]


@pytest.mark.parametrize(("ours", "total"), [(True, -1), (False, 3)], ids=["edgegen's attention", "ONNX Runtime's"])
def test_an_interruption_is_told_to_edgegens_attention_alone(ours: bool, total: int) -> None:
    """ONNX Runtime's computes with the number."""
    graphs = KeptBindings(ours=ours)
    runner = fake_runner(graphs)
    with pytest.raises(RuntimeError, match="the run was ended"):
        runner.prefill(runner.new_cache(), 0, [1, 2, 3])
    assert graphs.totals == [total]
