"""Fast prefill with integer products: its logits, its bit-exactness, and which bundles have it."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.errors import OptionError, UsageError
from edgegen.llm import LLM
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.blockwise import round_per_row
from tests.export.bundles import random_ids
from tests.export.checkpoint.layouts import write_gpt2

KVS: list[Any] = ["float32", "int8"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fast") / "checkpoint"
    return write_gpt2(folder, layout="tied_with_head", n_layer=3, n_embd=128, vocab_size=300, n_positions=192)


@pytest.fixture(scope="module", params=["int8", "int4"])
def bundle(request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp(request.param) / "bundle"
    return export(str(checkpoint), folder, scheme=request.param, fast=True, fast_prefill=True)[0]


def read(bundle: Bundle, kv: Any, ends: list[int], threads: int = 1, *, fast: bool = True) -> NDArray[np.float32]:
    """Logits after 170 ids in prefill chunks that end at ``ends``, and after one more."""
    runner = open_runner(bundle, EngineOptions(threads=threads, kv=kv, fast_prefill=fast))
    cache, ids = runner.new_cache(), random_ids(bundle, 170)
    pieces = [ids[begin:end] for begin, end in pairwise([0, *ends])]
    logits = [runner.prefill(cache, 0, piece).copy() for piece in pieces]
    return np.stack([logits[-1], runner.decode(cache, np.array([[7]]))[0, 0]])


def test_rounding_is_that_of_the_formula() -> None:
    matrix = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    matrix[3] = 0
    codes, scales = round_per_row(matrix)
    for row in (0, 1, 2, 4):
        step = np.abs(matrix[row]).max() / 127
        assert scales[row] == pytest.approx(step)
        assert codes[:, row].tolist() == np.rint(matrix[row] / step).astype(int).tolist()
    assert not codes[:, 3].any()
    assert np.isfinite(scales).all()


@pytest.mark.parametrize("kv", KVS)
def test_no_cut_and_no_number_of_threads_changes_a_bit(bundle: Bundle, kv: Any) -> None:
    whole = read(bundle, kv, [170])
    np.testing.assert_array_equal(read(bundle, kv, [128, 170]), whole)
    np.testing.assert_array_equal(read(bundle, kv, [16, 19, 83, 170]), whole)
    np.testing.assert_array_equal(read(bundle, kv, [170], threads=2), whole)


@pytest.mark.parametrize("kv", KVS)
def test_what_it_gives_is_near_what_the_ordinary_one_gives_and_not_the_same(bundle: Bundle, kv: Any) -> None:
    fast, ordinary = read(bundle, kv, [170]), read(bundle, kv, [170], fast=False)
    error = np.linalg.norm(fast - ordinary) / np.linalg.norm(ordinary)
    assert 0 < error < (0.05 if bundle.manifest.quantization.scheme == "int8" else 0.4)


def test_variants_come_twice_and_the_report_has_them_all(bundle: Bundle) -> None:
    scheme = bundle.manifest.quantization.scheme
    names = [scheme, f"{scheme}-kv-int8", f"{scheme}-fast-prefill", f"{scheme}-kv-int8-fast-prefill"]
    assert [variant.name for variant in bundle.manifest.variants] == names
    assert [variant.fast_prefill for variant in bundle.manifest.variants] == [False, False, True, True]
    assert not bundle.variant.fast_prefill
    parity = bundle.json(bundle.manifest.parity)
    assert [*parity["variants"]] == [*parity["layer_errors"]] == names
    assert parity["variants"][names[0]]["mean_kl"] != parity["variants"][names[2]]["mean_kl"]


def test_only_layers_are_there_twice_and_each_once(bundle: Bundle) -> None:
    variants = bundle.manifest.variants
    graphs = [
        onnx.ModelProto.FromString(bundle.file(name).read_bytes())
        for name in dict.fromkeys(name for v in variants for name in (v.prefill, v.decode))
    ]
    assert len(graphs) == 6
    places = {(t.name, entry.value) for g in graphs for t in g.graph.initializer for entry in t.external_data[1:2]}
    by_row = {name for name, _ in places if name.endswith(".by_row")}
    assert by_row == {
        f"layers.{i}.{m}.weight.by_row" for i in range(3) for m in ("attn.q+k+v", "attn.o", "mlp.up", "mlp.down")
    }
    assert len(places) == len({name for name, _ in places})


def test_a_model_without_one_says_how_to_get_one(checkpoint: Path, tmp_path: Path) -> None:
    bundle, _ = export(str(checkpoint), tmp_path / "bundle", scheme="int8", fast=True)
    with pytest.raises(UsageError, match=r"has no fast prefill: export the model with fast_prefill=True\."):
        LLM.load(bundle.path, options=EngineOptions(fast_prefill=True))


@pytest.mark.parametrize(("scheme", "via"), [("fp32", "edgegen"), ("fp16", "edgegen"), ("int8", "optimum")])
def test_it_is_refused_where_there_is_none(checkpoint: Path, tmp_path: Path, scheme: Any, via: Any) -> None:
    with pytest.raises(UsageError, match="a fast prefill is for int8 and int4 bundles of edgegen's own graphs"):
        export(str(checkpoint), tmp_path / "bundle", scheme=scheme, via=via, fast_prefill=True)


def test_it_goes_without_packed_weights() -> None:
    with pytest.raises(OptionError, match="packed_weights go without fast_prefill"):
        EngineOptions(packed_weights=True, fast_prefill=True)
