"""Graphs with an int8 KV cache against the formula with rounded K and V, and which bundles have them."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.errors import BundleError, UsageError
from edgegen.model.kv_cache import KVCache
from edgegen_export.calibration.kv_scales import kv_statistics
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.pipeline import export
from edgegen_export.source import family_source
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.bundles import Listener, decoded, random_ids, runner_of
from tests.export.checkpoint.layouts import write_gpt2
from tests.export.flat_model import Model
from tests.export.graph.decoder_formula import DecoderFormula, RoundedFormula
from tests.export.graph.test_blocks import MODELS, folded_tensors, random_tensors
from tests.export.graph.test_blocks import runner_of as runner_of_blocks
from tests.export.graph.test_graphs import graph, stored

pytestmark = pytest.mark.usefixtures("whole_parity")

TOLERANCE = 1e-4
"""Largest allowed difference of logits on average; a value between two codes may be rounded to either."""

KINDS = (
    "no positions",
    "learned positions",
    "heads of 8",
    "adjacent pairs",
    "a quarter rotated",
    "two ropes",
    "norm of each head",
    "windows, norm of heads, one shared head",
    "alibi and windows",
    "capped scores",
    "clipped",
    "shared keys and values",
    "shared keys, rotated before",
)


@pytest.mark.parametrize("cut_off", [1.0, 0.3])
@pytest.mark.parametrize("model", [MODELS[kind] for kind in KINDS], ids=KINDS)
def test_logits_are_those_of_rounded_keys_and_values(model: Model, cut_off: float, tmp_path: Path) -> None:
    config = model.config()
    tensors = random_tensors(config, biases=config.norm.kind == "layer")
    calibration = np.random.default_rng(1).integers(0, config.vocab_size, (2, 20))
    scales = {
        name: np.float32(cut_off) * scale.read()
        for name, scale in kv_statistics(
            folded_tensors(config, tensors), config, kv_spec(config), calibration
        ).scales.items()
    }
    ids = np.random.default_rng(0).integers(0, config.vocab_size, 40).tolist()
    lazy = {name: LazyTensor.from_array(scale) for name, scale in scales.items()}
    runner = runner_of_blocks(config, tensors, tmp_path, scales=lazy)
    cache = runner.new_cache()
    found = [runner.prefill(cache, 0, ids[:11]).copy(), *runner.decode(cache, np.array([ids[11:39]]))[0].copy()]
    found.append(runner.decode(cache, np.array([[ids[39]]]))[0, 0].copy())

    rounded = RoundedFormula(model, tensors, {name: x.astype(np.float64) for name, x in scales.items()})
    expected = rounded.logits(ids)[10:]
    moved = np.abs(expected - DecoderFormula(model, tensors).logits(ids)[10:]).mean()
    assert moved > 20 * TOLERANCE
    # The median: a number that lies between two codes may get either, which moves the logits after it. Kernels round
    # queries and weights to 16 bits besides, which is little beside the cache's 8.
    assert np.median(np.abs(expected - np.array(found))) < 0.025 * moved


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("int8")
    return export(str(write_gpt2(folder / "checkpoint", layout="original")), folder / "bundle")[0]


def test_the_int8_cache_is_the_preferred_variant_over_the_same_weights(bundle: Bundle) -> None:
    second, first = bundle.manifest.variants
    assert (first.name, second.name) == ("int8", "int8-kv-int8")
    assert (first.kv.dtype, second.kv.dtype) == ("float32", "int8")
    assert second.kv == replace(first.kv, dtype="int8")
    assert first.kv.bytes_per_token == 4 * second.kv.bytes_per_token
    assert (first.minimum_onnxruntime, second.minimum_onnxruntime) == ("1.23.2", "1.27.0")
    places = {name: (t.offset, t.length) for name, t in stored(graph(bundle, first.prefill)).items()}
    for name in (second.prefill, second.decode):
        own = {name: (t.offset, t.length) for name, t in stored(graph(bundle, name)).items()}
        scales = {name for name in own if name.endswith("_scale")}
        assert scales == {f"layers.{i}.attn.{part}_scale" for i in range(2) for part in "kv"}
        assert {name: place for name, place in own.items() if name not in scales} == places


def test_past_and_present_are_int8(bundle: Bundle) -> None:
    second = bundle.variant_with("int8")
    model: onnx.ModelProto = cast(Any, onnx).load(bundle.file(second.decode), load_external_data=False)
    types = {v.name: v.type.tensor_type.elem_type for v in [*model.graph.input, *model.graph.output]}
    names = [n for x in second.kv.layers for n in (x.past_key, x.past_value, x.present_key, x.present_value)]
    assert {types[name] for name in names} == {onnx.TensorProto.INT8}


def test_a_cache_of_it_takes_a_quarter_of_the_room(bundle: Bundle) -> None:
    caches: list[KVCache] = []
    for kv in ("float32", "int8"):
        runner = runner_of(bundle, kv=kv)
        caches.append(runner.new_cache())
        decoded(runner, caches[-1], random_ids(bundle, 9))
        caches[-1].reserve(3, 20)  # moves what is there
        decoded(runner, caches[-1], random_ids(bundle, 3))
    assert caches[0].nbytes == 4 * caches[1].nbytes > 0
    assert caches[0].copied_bytes == 4 * caches[1].copied_bytes > 0


def test_both_ways_to_open_the_pair_give_the_same_bits(bundle: Bundle) -> None:
    ids, results = random_ids(bundle, 20), list[Any]()
    for sessions in ("one", "two"):
        runner = runner_of(bundle, sessions, kv="int8")
        cache = runner.new_cache()
        results.append([runner.prefill(cache, 0, ids[:12]).copy(), decoded(runner, cache, ids[12:])[-1]])
    np.testing.assert_array_equal(results[0], results[1])


def test_without_an_operator_for_it_the_bundle_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, in_int8: bool, entered: Any) -> Any:
        raise BundleError("its heads are odd")

    monkeypatch.setattr(family_source, "kv_statistics", refuse)  # no shape is known that only float32 takes
    listener = Listener()
    source = write_gpt2(tmp_path / "checkpoint", layout="original")
    bundle, report = export(str(source), tmp_path / "bundle", progress=listener)
    assert "the bundle gets no variant with an int8 KV cache: its heads are odd" in listener.warnings
    assert [variant.kv.dtype for variant in bundle.manifest.variants] == ["float32"]
    assert not any("kv-int8" in name for name in bundle.manifest.files)
    assert not any(name.endswith("_scale") for name in stored(graph(bundle, bundle.variant.prefill)))
    assert report.variants.keys() - {"int8-kv-int4"} == report.layer_errors.keys() == {"int8"}
    with pytest.raises(UsageError, match=r"has no variant with a KV cache in int8, only in float32: export"):
        runner_of(bundle, kv="int8")
