"""On the kernels a float32 and an int4 KV cache are as exact as an int8 one: any chunks, reused answers and batches."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from edgegen import LLM, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KV_FORMATS, KVConversion, KVDtype
from edgegen.errors import BundleError
from edgegen.generation.results import GenerationResult
from edgegen.model.interfaces import make_runner
from edgegen.model.loading import open_runner
from edgegen.model.ort_session import OneSession
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import decoded, export_to, prefilled, random_ids
from tests.kernels.stock import needs_kernels
from tests.runtime.models import write_checkpoint

pytestmark = needs_kernels

CHUNKS = (1, 2, 16, 65, 100, 256, 512)
LENGTH = 300
SCHEMES: tuple[Scheme, ...] = ("int8", "int4")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "gpt2")


@pytest.fixture(scope="module", params=SCHEMES)
def bundle(request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_to(checkpoint, tmp_path_factory.mktemp(request.param) / "bundle", request.param)


FLOAT32 = EngineOptions(kv="float32", threads=1)
kinds = pytest.mark.parametrize("kv", ["float32", "int4"])


@kinds
def test_any_chunks_give_the_same_logits(bundle: Bundle, kv: KVDtype) -> None:
    runner = open_runner(bundle, replace(FLOAT32, kv=kv))
    assert runner.chunk_invariance == "any"
    ids = random_ids(bundle, LENGTH)
    whole = prefilled(runner, runner.new_cache(), ids, LENGTH)[-1]
    step = prefilled(runner, runner.new_cache(), ids[:-8], LENGTH)
    assert not np.array_equal(step[-1], whole)
    for chunk in CHUNKS:
        cache = runner.new_cache()
        np.testing.assert_array_equal(prefilled(runner, cache, ids, chunk)[-1], whole)
        cache.truncate(0, LENGTH - 8)
        np.testing.assert_array_equal(decoded(runner, cache, ids[-8:])[-1], whole)
        cache.truncate(0, LENGTH - 8)
        np.testing.assert_array_equal([decoded(runner, cache, [one])[0] for one in ids[-8:]][-1], whole)


@kinds
def test_a_batch_gives_each_row_its_own_logits(bundle: Bundle, kv: KVDtype) -> None:
    runner = open_runner(bundle, replace(FLOAT32, kv=kv))
    together, rows = runner.new_cache(), [random_ids(bundle, count, seed=count) for count in (90, 7, 33)]
    for slot, ids in enumerate(rows):
        runner.prefill(together, slot, ids)
    batch = runner.decode(together, np.array([[5], [6], [7]]))[:, 0].copy()
    for row, ids in enumerate(rows):
        alone = prefilled(runner, runner.new_cache(), [*ids, 5 + row], 16)[-1]
        np.testing.assert_array_equal(batch[row], alone)


def going_on(llm: LLM, new_tokens: int) -> tuple[list[int], GenerationResult]:
    """A prompt that is another one with its answer, whose tokens were computed one by one, and what follows it."""
    prompt = llm.encode("Once upon a time there was")
    first = llm.generate(prompt, max_new_tokens=40, do_sample=False)
    longer = [*prompt, *first.token_ids, 40]
    result = llm.generate(longer, max_new_tokens=new_tokens, do_sample=False)
    assert result.timings.cached_tokens > len(prompt)  # not the prompt alone, but the answer too
    return longer, result


@kinds
def test_reused_answers_change_no_id(bundle: Bundle, kv: KVDtype) -> None:
    """Deterministic output recomputes nothing that is exact."""
    with LLM.load(bundle.path, options=replace(FLOAT32, kv=kv, prefill_chunk=32)) as llm:
        longer, reusing = going_on(llm, 40)
    with LLM.load(bundle.path, options=replace(FLOAT32, kv=kv, deterministic=True)) as llm:
        assert llm.generate(longer, max_new_tokens=40, do_sample=False).token_ids == reusing.token_ids
        going_on(llm, 4)


def test_an_int4_kv_cache_stays_near_a_float32_one(bundle: Bundle) -> None:
    ids = random_ids(bundle, LENGTH)
    found, exact = (
        decoded(runner, runner.new_cache(), ids)
        for runner in (open_runner(bundle, replace(FLOAT32, kv=kv)) for kv in ("int4", "float32"))
    )
    spread = np.std(found - exact) / np.std(exact)
    assert 0.001 < spread < 0.1


def test_means_of_keys_change_what_is_rounded_and_no_weight(bundle: Bundle) -> None:
    rng, ids, variant = np.random.default_rng(0), random_ids(bundle, LENGTH), bundle.variant_with("int4")
    graph, model = bundle.file(variant.prefill), bundle.manifest.model
    shapes = {layer.past_key: (layer.kv_heads, layer.head_dim) for layer in variant.kv.layers}
    means = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    sessions = [OneSession(graph, 1, conversion=KVConversion(variant.kv.format, one)) for one in (means, {})]
    runners = [make_runner(one, variant, model.vocab_size, model.max_context) for one in sessions]
    less, plain = (prefilled(one, one.new_cache(), ids, LENGTH)[-1] for one in runners)
    assert 0.001 < np.std(less - plain) / np.std(plain) < 0.2
    for chunk in CHUNKS:
        np.testing.assert_array_equal(prefilled(runners[0], runners[0].new_cache(), ids, chunk)[-1], less)


def test_a_mean_of_keys_that_are_not_there_is_refused(bundle: Bundle) -> None:
    means = {"past_key_values.9.key": np.ones((1, 1), np.float32)}
    graph = bundle.file(bundle.variant_with("int4").prefill)
    with pytest.raises(BundleError, match=r"it has no input past_key_values\.9\.key, of whose keys there is a mean"):
        OneSession(graph, conversion=KVConversion(KV_FORMATS["int4"], means))


def test_an_int4_kv_cache_is_refused_where_stock_operators_would_run(bundle: Bundle) -> None:
    with pytest.raises(BundleError, match=r"^only edgegen's kernels keep a KV cache in int4, .*stock: take --kv int8"):
        open_runner(bundle, EngineOptions(kv="int4", kernels="stock"))


@pytest.mark.parametrize(("scheme", "kernels"), [("fp32", "auto"), ("int8", "stock")])
def test_what_onnx_runtime_adds_up_is_not_promised(
    scheme: Scheme, kernels: Literal["auto", "stock"], checkpoint: Path, tmp_path: Path
) -> None:
    other = export_to(checkpoint, tmp_path / "bundle", scheme)
    assert open_runner(other, replace(FLOAT32, kernels=kernels)).chunk_invariance == "chunks"
