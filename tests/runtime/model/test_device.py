"""Graphs and KV caches on a device: in the host's memory, where everything but the provider is as on a GPU."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.layer_state import FixedState
from edgegen.errors import DeviceError
from edgegen.generation.session import Session
from edgegen.graph.float16_attention import obstacles, with_float16_attention
from edgegen.llm import LLM
from edgegen.model.device import CUDA, Device, DeviceArray, DeviceCopies
from edgegen.model.device_kv_cache import STEP, DeviceKVCache
from edgegen.model.device_runner import DeviceRunner
from edgegen.model.loading import open_on_device, open_runner, open_tokenizer, wants_gpu
from edgegen.model.ort_session import runtime_providers
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions
from edgegen_export.graph.builder import GraphBuilder
from edgegen_export.graph.gated_delta_net import DeltaRule
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import decoded, prefilled
from tests.export.checkpoint.layouts import write_llama

HOST = Device("cpu", "CPUExecutionProvider")
CLOSE = 0.05
"""Largest difference of a logit; attention in float16 rounds at 11 bits."""

no_gpu = pytest.mark.skipif(CUDA.provider in runtime_providers(), reason="this ONNX Runtime was built for CUDA")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("device")
    write_llama(folder / "checkpoint")
    return export(str(folder / "checkpoint"), folder / "bundle", ExportOptions(scheme="fp32"))[0]


@pytest.fixture(scope="module")
def runner(bundle: Bundle) -> DeviceRunner:
    return open_on_device(bundle, EngineOptions(threads=1), HOST)


@pytest.fixture(scope="module")
def copies() -> DeviceCopies:
    return DeviceCopies(HOST)


def random_ids(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 90, count).tolist()


def halves(*shape: int) -> NDArray[np.float16]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


class TestCopies:
    def test_what_was_written_is_read(self, copies: DeviceCopies) -> None:
        array, one, other = DeviceArray(HOST, (3, 2, 5, 4)), halves(1, 2, 5, 4), halves(2, 2, 5, 4)
        copies.write(one, array.slots(0, 1))
        copies.write(other, array.slots(1, 2))
        assert np.array_equal(copies.read(array.slots(0, 3)), np.concatenate([one, other]))
        assert array.nbytes == 3 * 2 * 5 * 4 * 2

    def test_a_slot_is_copied_to_another(self, copies: DeviceCopies) -> None:
        array, two = DeviceArray(HOST, (2, 2, 5, 4)), halves(2, 2, 5, 4)
        copies.write(two, array.slots(0, 2))
        copies.copy(array.slots(0, 1), array.slots(1, 1))
        assert np.array_equal(copies.read(array.slots(0, 2)), two[[0, 0]])

    def test_positions_are_added_behind(self, copies: DeviceCopies) -> None:
        short, more, long = (DeviceArray(HOST, (2, 2, length, 4)) for length in (3, 5, 8))
        held = halves(2, 2, 3, 4)
        copies.write(held, short.slots(0, 2))
        copies.lengthened(short.slots(0, 2), more.slots(0, 2), long.slots(0, 2))
        assert np.array_equal(copies.read(long.slots(0, 2))[:, :, :3], held)


def greedy(runner: DeviceRunner, cache: DeviceKVCache, prompt: Sequence[int], steps: int, slot: int = 0) -> list[int]:
    ids = [int(runner.prefill(cache, slot, prompt).argmax())]
    for _ in range(steps):
        ids.append(int(runner.decode(cache, np.array([[ids[-1]]]), slot)[0, 0].argmax()))
    return ids


class TestCache:
    def test_growth_in_both_directions_keeps_what_is_held(self, runner: DeviceRunner) -> None:
        prompt, grown, reserved = random_ids(40), runner.new_cache(), runner.new_cache()
        reserved.reserve(3, 2 * STEP)
        for cache in (grown, reserved):
            for slot in range(3):
                runner.prefill(cache, slot, prompt[slot:])
        for n in range(STEP):
            next_ids = np.full((3, 1), n % 7)
            assert np.array_equal(runner.decode(grown, next_ids), runner.decode(reserved, next_ids))
        assert grown.capacity > STEP
        assert grown.copied_bytes > reserved.copied_bytes == 0
        assert grown.nbytes == grown.bytes_for(grown.slots, grown.capacity)

    def test_a_budget_limits_growth_ahead(self, runner: DeviceRunner) -> None:
        cache = runner.new_cache(budget=1)
        cache.reserve(1, 10)
        assert cache.capacity == 10

    @settings(deadline=None, max_examples=25)
    @given(st.lists(st.tuples(st.sampled_from("fork swap save compact".split()), st.permutations(range(3)))))
    def test_slots_hold_what_their_sequences_were(
        self, runner: DeviceRunner, operations: list[tuple[str, list[int]]]
    ) -> None:
        cache, held = runner.new_cache(), [random_ids(n, seed=n) for n in (3, 9, 20)]
        cache.reserve(3, 40)
        for slot, ids in enumerate(held):
            runner.prefill(cache, slot, ids)
        for name, (a, b, _) in operations:
            match name:
                case "fork":
                    cache.fork(a, b)
                    held[b] = held[a]
                case "swap":
                    cache.swap(a, b)
                    held[a], held[b] = held[b], held[a]
                case "save":
                    length = max(0, len(held[a]) - 2)
                    cache.restore(b, cache.save(a), length)
                    held[b] = held[a][:length]
                case _:
                    assert cache.compact(a, 3) == 2
                    held[a], held[2] = held[2], []
        assert cache.lengths.tolist() == [len(ids) for ids in held]
        for slot, ids in enumerate(held):
            alone = runner.new_cache()
            if ids:
                runner.prefill(alone, 0, ids)
            expected = runner.decode(alone, np.array([[5]]))[0, 0].copy()
            np.testing.assert_allclose(runner.decode(cache, np.array([[5]]), slot)[0, 0], expected, rtol=0, atol=CLOSE)

    def test_what_is_cut_off_is_forgotten(self, runner: DeviceRunner) -> None:
        cache, prompt = runner.new_cache(), random_ids(20)
        runner.prefill(cache, 0, prompt)
        assert (cache.truncatable_length(0, 7), cache.restorable_length(cache.save(0), 7)) == (7, 7)
        cache.checkpoint(0)
        cache.truncate(0, 7)
        whole = runner.new_cache()
        expected = runner.prefill(whole, 0, prompt[:9]).copy()
        np.testing.assert_allclose(runner.prefill(cache, 0, prompt[7:9]), expected, rtol=0, atol=CLOSE)


class TestRunner:
    def test_logits_are_those_of_the_cpu(self, bundle: Bundle, runner: DeviceRunner) -> None:
        expected, ids = open_runner(bundle, EngineOptions(threads=1, kv="float32", device="cpu")), random_ids(50)
        there, here = runner.new_cache(), expected.new_cache()
        there.reserve(1, 80)
        here.reserve(1, 80)
        for chunk in (50, 7):
            there.truncate(0, 0)
            here.truncate(0, 0)
            found = prefilled(runner, there, ids, chunk)
            np.testing.assert_allclose(found, prefilled(expected, here, ids, chunk), rtol=0, atol=CLOSE)
        for one in random_ids(12, seed=3):
            np.testing.assert_allclose(
                decoded(runner, there, [one]), decoded(expected, here, [one]), rtol=0, atol=CLOSE
            )

    def test_a_run_that_is_interrupted_counts_nothing(self, runner: DeviceRunner) -> None:
        cache = runner.new_cache()
        runner.prefill(cache, 0, random_ids(9))
        runner.switch.interrupt()
        try:
            with pytest.raises(DeviceError, match="cannot run the graph"):
                runner.decode(cache, np.array([[1]]))
        finally:
            runner.switch.resume()
        assert cache.lengths.tolist() == [9]
        assert runner.decode(cache, np.array([[1]])).shape == (1, 1, runner.vocab_size)

    def test_hidden_states_come_back(self, tmp_path: Path) -> None:
        write_llama(tmp_path / "checkpoint")
        made, _ = export(str(tmp_path / "checkpoint"), tmp_path / "b", ExportOptions(scheme="fp32", with_hidden=True))
        ids, seen = random_ids(12), list[NDArray[np.float32]]()
        for runner in (
            open_on_device(made, EngineOptions(threads=1), HOST),
            open_runner(made, EngineOptions(threads=1, device="cpu")),
        ):
            runner.prefill(runner.new_cache(), 0, ids, lambda hidden: seen.append(hidden.copy()))  # type: ignore[arg-type]
        np.testing.assert_allclose(seen[0], seen[1], rtol=0, atol=CLOSE)

    def test_closed(self, bundle: Bundle) -> None:
        runner = open_on_device(bundle, EngineOptions(threads=1), HOST)
        greedy(runner, runner.new_cache(), [1, 2, 3], 2)
        runner.close()
        with pytest.raises(AttributeError):
            runner.new_cache()


@pytest.fixture(scope="module")
def pair() -> tuple[LLM, LLM]:
    here = LLM.load(options=EngineOptions(kv="float32", threads=1, device="cpu", kernels="stock"))
    options = EngineOptions(threads=1, max_batch_size=4)
    runner = open_on_device(here.bundle, options, HOST)
    return LLM(here.bundle, open_tokenizer(here.bundle), runner, options), here


class TestLLM:
    """The whole way of a request: batches, beams, sessions and the prefix cache, over the embedded model."""

    def test_it_says_where_it_runs(self, pair: tuple[LLM, LLM]) -> None:
        assert [llm.device for llm in pair] == ["cuda", "cpu"]

    @pytest.mark.parametrize(
        "options",
        [
            GenerationOptions(max_new_tokens=24, do_sample=False),
            GenerationOptions(max_new_tokens=24, do_sample=False, num_beams=3),
            GenerationOptions(max_new_tokens=24, do_sample=True, seed=6),
        ],
    )
    def test_answers_are_the_same_until_two_choices_are_near(
        self, pair: tuple[LLM, LLM], options: GenerationOptions
    ) -> None:
        for prompt in ("Once upon a time", "Lily and Tom", "Once upon a time there was a dog. " * 30):
            found, expected = (llm.generate(prompt, options) for llm in pair)
            assert found.token_ids[:4] == expected.token_ids[:4]

    def test_requests_run_together(self, pair: tuple[LLM, LLM]) -> None:
        prompts = ["Once", "The dog was", "One day, a girl", "Tom saw", "It was"]
        found, expected = (llm.generate(prompts, max_new_tokens=6, do_sample=False) for llm in pair)
        assert [one.token_ids for one in found] == [one.token_ids for one in expected]

    def test_a_session_goes_on(self, pair: tuple[LLM, LLM], tmp_path: Path) -> None:
        answers = list[tuple[int, ...]]()
        for n, llm in enumerate(pair):
            session = Session()
            llm.generate("Once upon a time", max_new_tokens=8, do_sample=False, session=session)
            session.save(tmp_path / str(n))
            again = Session.load(tmp_path / str(n))
            answers.append(llm.generate(" and", max_new_tokens=8, do_sample=False, session=again).token_ids)
        assert answers[0] == answers[1]

    def test_a_session_of_the_cpu_is_another_models(self, pair: tuple[LLM, LLM]) -> None:
        session = Session()
        pair[1].generate("Once", max_new_tokens=2, session=session)
        with pytest.raises(Exception, match="another kind of KV cache"):
            pair[0].generate(" upon", session=session)


class TestRefusals:
    def test_a_provider_that_is_not_there(self, bundle: Bundle) -> None:
        with pytest.raises(DeviceError, match=r"has no NoSuchProvider: run `pip uninstall -y onnxruntime`, then `pip"):
            open_on_device(bundle, EngineOptions(), Device("cuda", "NoSuchProvider"))

    @no_gpu
    def test_cuda_without_its_provider(self, bundle: Bundle) -> None:
        with pytest.raises(DeviceError, match="has no CUDAExecutionProvider"):
            open_runner(bundle, EngineOptions(device="cuda"))

    @no_gpu
    @pytest.mark.filterwarnings("error")
    def test_the_cpu_is_taken_without_a_word(self, bundle: Bundle) -> None:
        assert not wants_gpu(EngineOptions())
        open_runner(bundle, EngineOptions(threads=1)).close()

    def test_what_a_function_computes_is_seen(self) -> None:
        g = GraphBuilder("delta")
        x = g.input("x", "float32", [1, 1, 4])
        names = ("q", "k", "v", "decay", "beta")
        q, k, v, decay, beta = (g.input(name, "float32", [1, 1, 1 if name == "beta" else 4]) for name in names)
        rule = DeltaRule(1, FixedState(0, "past", "present", (1, 4, 4)), 1e-6, "silu")
        g.output("y", rule.read(g, [q, k, v], decay, beta, x, x), "float32", [1, 1, 4])
        assert obstacles(g.model().SerializeToString()) == ["it has linear attention"]

    def test_what_is_no_graph(self, bundle: Bundle) -> None:
        graph = bundle.file(bundle.variant.prefill).read_bytes()
        assert obstacles(graph) == []
        with pytest.raises(ValueError, match="ends too early"):
            with_float16_attention(graph[:-1])
