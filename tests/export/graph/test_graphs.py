"""The graphs of a bundle: one copy of the weights, and bit-exact results however they are run."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.model.in_place_runner import InPlaceRunner
from edgegen.model.interfaces import Runner
from edgegen.model.kv_cache import KVCache
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import decoded, export_to, prefilled, random_ids, runner_of
from tests.export.checkpoint.layouts import write_gpt2

GRAPHS = tuple(f"{graph}{kv}.onnx" for kv in ("", ".kv-int8") for graph in ("prefill", "decode"))


@pytest.fixture(scope="module", params=["int8", "fp32"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("graphs")
    scheme: Scheme = request.param
    write_gpt2(folder / "checkpoint", layout="tied_with_head", n_layer=3, n_embd=128, vocab_size=300, n_positions=96)
    return export_to(folder / "checkpoint", folder / scheme, scheme)


@pytest.fixture(scope="module")
def runner(bundle: Bundle) -> Runner[Any]:
    return runner_of(bundle)


def keys_and_values(cache: KVCache, slot: int) -> list[NDArray[Any]]:
    """Return the keys and values of ``slot``, layer by layer."""
    return [buffer.array[0, :, : cache.lengths[slot]] for buffer in cache.buffers(slot, 1)]


def poison(cache: KVCache) -> None:
    """Fill with NaN, or a large code, whatever lies beyond each slot's length."""
    for slot in range(cache.slots):
        for buffer in cache.buffers(slot, 1):
            buffer.array[0, :, cache.lengths[slot] :] = 127 if buffer.array.dtype == np.int8 else np.nan


# Bit-equality.


def assert_same(bundle: Bundle, a: NDArray[Any], b: NDArray[Any]) -> None:
    """Bit for bit in int8; a float32 product of one row may add up in another order than one of many."""
    if bundle.manifest.quantization.scheme == "int8":
        np.testing.assert_array_equal(a, b)
    else:
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def test_one_and_two_sessions_give_the_same_bits(bundle: Bundle, runner: InPlaceRunner) -> None:
    two = runner_of(bundle, "two")
    caches = runner.new_cache(), two.new_cache()
    ids = random_ids(bundle, 90)
    for start, stop in [(0, 17), (17, 18), (18, 50)]:  # prefill, then decode: single and several tokens
        a, b = (r.prefill(c, 0, ids[start:stop]).copy() for r, c in zip((runner, two), caches, strict=True))
        np.testing.assert_array_equal(a, b)
    for start, stop in [(50, 51), (51, 52), (52, 60), (60, 61), (61, 90)]:
        a, b = (decoded(r, c, ids[start:stop]) for r, c in zip((runner, two), caches, strict=True))
        np.testing.assert_array_equal(a, b)
    for a, b in zip(*(keys_and_values(cache, 0) for cache in caches), strict=True):
        np.testing.assert_array_equal(a, b)


def test_prefill_and_decode_append_the_same_bits_to_the_cache(bundle: Bundle, runner: InPlaceRunner) -> None:
    ids = random_ids(bundle, 60)
    by_prefill, by_decode = runner.new_cache(), runner.new_cache()
    for start, stop in [(0, 31), (31, 32), (32, 60)]:
        runner.prefill(by_prefill, 0, ids[start:stop])
        decoded(runner, by_decode, ids[start:stop])
    for a, b in zip(keys_and_values(by_prefill, 0), keys_and_values(by_decode, 0), strict=True):
        np.testing.assert_array_equal(a, b)


def test_prefill_gives_the_bits_of_decode_at_the_last_position(bundle: Bundle, runner: InPlaceRunner) -> None:
    ids = random_ids(bundle, 60)
    for stop in (1, 2, 33, 60):
        a = prefilled(runner, runner.new_cache(), ids[:stop], stop)[-1]
        b = decoded(runner, runner.new_cache(), ids[:stop])[-1]
        assert_same(bundle, a, b)


def test_chunks_of_several_tokens_give_the_same_bits_however_they_are_cut(
    bundle: Bundle, runner: InPlaceRunner
) -> None:
    ids = random_ids(bundle, 60)
    whole = prefilled(runner, runner.new_cache(), ids, 60)[-1]
    for chunk in (2, 6, 15, 20, 58):
        assert_same(bundle, prefilled(runner, runner.new_cache(), ids, chunk)[-1], whole)


def fill_slots(runner: InPlaceRunner, cache: KVCache, prompts: list[list[int]]) -> None:
    cache.reserve(len(prompts), max(len(prompt) for prompt in prompts) + 8)
    for slot, prompt in enumerate(prompts):
        cache.truncate(slot, 0)
        runner.prefill(cache, slot, prompt)


@pytest.mark.parametrize("lengths", [(20, 20), (20, 20, 20, 20), (3, 60), (41, 1, 7, 60), (2, 64)])
def test_a_row_of_a_batch_has_the_bits_it_has_alone(
    bundle: Bundle, runner: InPlaceRunner, lengths: tuple[int, ...]
) -> None:
    prompts = [random_ids(bundle, length, seed) for seed, length in enumerate(lengths)]
    steps = np.array([random_ids(bundle, 5, 100 + seed) for seed in range(len(lengths))])
    cache = runner.new_cache()
    fill_slots(runner, cache, prompts)
    poison(cache)
    together = [runner.decode(cache, steps[:, k : k + 1])[:, 0].copy() for k in range(5)]
    assert np.isfinite(together).all()
    for row, prompt in enumerate(prompts):
        alone = runner.new_cache()
        runner.prefill(alone, 0, prompt)
        for k in range(5):
            logits = decoded(runner, alone, steps[row, k : k + 1].tolist())[0]
            assert_same(bundle, together[k][row], logits)
        for a, b in zip(keys_and_values(cache, row), keys_and_values(alone, 0), strict=True):
            assert_same(bundle, a, b)


def test_what_lies_beyond_a_slots_length_is_never_read(bundle: Bundle, runner: InPlaceRunner) -> None:
    ids = random_ids(bundle, 70)
    clean, dirty = runner.new_cache(), runner.new_cache()
    dirty.reserve(3, 96)
    poison(dirty)
    for start, stop in [(0, 20), (20, 40)]:
        a, b = (runner.prefill(cache, 0, ids[start:stop]).copy() for cache in (clean, dirty))
        np.testing.assert_array_equal(a, b)
        poison(dirty)
    for start, stop in [(40, 41), (41, 49), (49, 50)]:
        np.testing.assert_array_equal(decoded(runner, clean, ids[start:stop]), decoded(runner, dirty, ids[start:stop]))
        poison(dirty)
    for cache in (clean, dirty):
        cache.truncate(0, 30)
    poison(dirty)  # what was just forgotten, too
    np.testing.assert_array_equal(decoded(runner, clean, ids[50:60]), decoded(runner, dirty, ids[50:60]))


def test_other_slots_stay_as_they_are(bundle: Bundle, runner: InPlaceRunner) -> None:
    cache = runner.new_cache()
    fill_slots(runner, cache, [random_ids(bundle, 10, seed) for seed in range(3)])
    before = [array.copy() for array in keys_and_values(cache, 2)]
    runner.prefill(cache, 1, random_ids(bundle, 20))
    runner.decode(cache, np.array([[5], [6]]))
    for a, b in zip(keys_and_values(cache, 2), before, strict=True):
        np.testing.assert_array_equal(a, b)


# Weights exist once.


@dataclass(frozen=True)
class Stored:
    """An initializer that lies in the weights file."""

    name: str
    dtype: int
    shape: tuple[int, ...]
    offset: int
    length: int


def graph(bundle: Bundle, name: str) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(bundle.file(name).read_bytes())


def stored(model: onnx.ModelProto, weights: str = "weights.data") -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for tensor in model.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        assert entries["location"] == weights
        shape = tuple(tensor.dims)
        found[tensor.name] = Stored(
            tensor.name, tensor.data_type, shape, int(entries["offset"]), int(entries["length"])
        )
    return found


def inline_bytes(model: onnx.ModelProto) -> Iterator[int]:
    for tensor in model.graph.initializer:
        yield len(tensor.raw_data)


def test_all_graphs_point_at_one_copy_of_every_weight(bundle: Bundle) -> None:
    tensors = [stored(graph(bundle, name)) for name in GRAPHS]
    exact, rounded = tensors[:2], tensors[2:]
    assert exact == [exact[0]] * 2
    assert rounded == [rounded[0]] * 2
    assert exact[0]
    assert exact[0].items() < rounded[0].items()


def test_the_graphs_themselves_are_small(bundle: Bundle) -> None:
    for name in GRAPHS:
        assert sum(inline_bytes(graph(bundle, name))) < 1000
        assert bundle.manifest.files[name].size < 30_000


def test_the_graphs_pass_the_onnx_checker_with_their_weights(bundle: Bundle) -> None:
    for name in GRAPHS:
        cast(Any, onnx.checker).check_model(str(bundle.file(name)))


def test_the_weights_file_holds_each_tensor_once_and_nothing_else(bundle: Bundle) -> None:
    tensors = sorted({(t.offset, t.length) for name in GRAPHS for t in stored(graph(bundle, name)).values()})
    end = 0
    for offset, length in tensors:
        assert end <= offset < end + 4096  # the gap is padding
        assert offset % (4096 if length >= 4096 else 64) == 0
        end = offset + length
    assert end == bundle.manifest.files["weights.data"].size


def test_a_tied_embedding_is_stored_once(bundle: Bundle) -> None:
    vocabulary, width = bundle.manifest.model.vocab_size, bundle.manifest.model.hidden_size
    tables = {
        (t.offset, t.length)
        for t in stored(graph(bundle, "prefill.onnx")).values()
        if math.prod(t.shape) == vocabulary * width
    }
    assert len(tables) == 1


def test_an_int8_bundle_keeps_no_float_matrix(bundle: Bundle) -> None:
    tensors = stored(graph(bundle, "prefill.onnx")).values()
    floats = [t for t in tensors if t.dtype == onnx.TensorProto.FLOAT and not t.name.endswith(".scales")]
    matrices = {t.name for t in floats if len(t.shape) > 1}
    if bundle.manifest.quantization.scheme == "int8":
        assert not matrices
    else:
        assert len(matrices) == 2 + 4 * bundle.manifest.model.num_layers


@pytest.mark.parametrize(("scheme", "bits", "dtype"), [("int4", 8, "UINT8"), ("fp16", 16, "FLOAT16")])
def test_positions_are_stored_in_eight_bits_or_in_halves(tmp_path: Path, scheme: Scheme, bits: int, dtype: str) -> None:
    write_gpt2(tmp_path / "checkpoint", layout="original", n_layer=1, n_embd=64, vocab_size=90, n_positions=48)
    bundle, _ = export(str(tmp_path / "checkpoint"), tmp_path / "bundle", ExportOptions(scheme=scheme, fast=True))
    assert bundle.manifest.quantization.format_of("positions").bits == bits
    tables = [t for t in stored(graph(bundle, "prefill.onnx")).values() if t.name.startswith("positions.weight")]
    (table,) = (t for t in tables if math.prod(t.shape) == 48 * 64)
    assert onnx.TensorProto.DataType.Name(table.dtype) == dtype


def test_int8_weights_take_little_more_than_a_byte_each(tmp_path: Path) -> None:
    write_gpt2(tmp_path / "checkpoint", layout="original", n_layer=2, n_embd=256, vocab_size=2000, n_positions=32)
    bundle, _ = export(str(tmp_path / "checkpoint"), tmp_path / "bundle", ExportOptions(fast=True))
    matrices = 2000 * 256 + 2 * 12 * 256 * 256
    floats = 32 * 256 + 2 * (13 + 4) * 256 + 2 * 256
    assert bundle.manifest.files["weights.data"].size <= matrices * (1 + 2 / 64) + 4 * floats + 40 * 4096
    assert bundle.manifest.model.parameters == matrices + 32 * 256 + 2 * 13 * 256 + 2 * 256


def test_a_head_of_its_own_is_stored_beside_the_embedding(tmp_path: Path) -> None:
    write_gpt2(tmp_path / "checkpoint", layout="untied")
    names = stored(graph(export_to(tmp_path / "checkpoint", tmp_path / "bundle", "int8"), "prefill.onnx"))
    assert {"embed.weight.table", "head.weight", "head.weight.scales"} <= names.keys()
    assert names["embed.weight.table"].offset != names["head.weight"].offset
