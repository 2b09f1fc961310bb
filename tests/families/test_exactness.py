"""Int8 and int4 bundles of every family are bit-exact for any chunking and batch, as docs/performance.md says."""

from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import KVSpec
from edgegen.errors import OptionError
from edgegen.model.interfaces import Runner
from edgegen.model.kernels import runs_kernels
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.every_case import EVERY
from tests.export.bundles import decoded, prefilled, runner_of
from tests.families.cases import BASES, CASES, Case
from tests.families.harness import Logits, checkpoint_of, judged_cases, tokens, worst_kl

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.usefixtures("divergence"),
]

UNRELATED: dict[Scheme, float] = {"int8": 0.5, "int4": 3.0}
"""Upper limits of the KL divergence for tiny models; unrelated logits have several nats."""

CHUNKINGS = ([1] * 64, [5, 1, 16, 1, 1, 31, 9], [2] * 32, [63, 1])
"""Chunk lengths for 64 tokens."""


def changes_of(case: Case) -> dict[str, Any]:
    """Where the fused operator computes experts, three of them for each token, and widths that our kernels read.

    Cases with experts that are sorted have changes of their own, and deep ones: random nets of many layers make
    rounding errors large.
    """
    if case.exact_with is not None:
        return {**case.exact_with}
    if "num_experts_per_tok" not in case.config:
        return {}
    width = "moe_intermediate_size" if "moe_intermediate_size" in case.config else "intermediate_size"
    return {"num_experts_per_tok": 3, width: 64}


def exported(case: Case, folder: Path, scheme: Scheme = "int8", **changes: Any) -> Bundle:
    """A quantized bundle of the case. It is calibrated for a few, whose matrices then have zeros and smaller blocks."""
    changed = replace(case, config={**case.config, **changes})
    checkpoint, fast = checkpoint_of(changed, folder / "checkpoint"), "calibrated" not in case.also
    bundle, report = export(str(checkpoint), folder / "bundle", ExportOptions(scheme=scheme, fast=fast))
    rounded = [f"{scheme}-kv-int8", f"{scheme}-kv-int4"] if bundle.variant.kv.layers else []
    assert report.variants.keys() == {scheme, *(rounded if runs_kernels("auto") else rounded[:1])}
    assert worst_kl(report) < UNRELATED[scheme]
    return bundle


def is_held(case: Case) -> bool:
    """Cases of a kind, which other tests of a few cases take too; `make families` holds the bases of all families."""
    is_asked = case.name == "base" or "exactness" in case.also
    return is_asked and (EVERY or bool(case.also or case.kept or case.quiet))


@pytest.fixture(scope="module", params=judged_cases(case for case in CASES if is_held(case)))
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(scope="module")
def bundle(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return exported(case, tmp_path_factory.mktemp("exact"), "int8", **changes_of(case))


def test_every_chunking_is_bit_exact(case: Case, bundle: Bundle) -> None:
    run = runner_of(bundle)
    # In layers that share a cache a prompt's last token is alone, which ONNX Runtime computes in another way.
    if run.chunk_invariance == "any" or not bundle.variant.kv.shared:
        assert_the_graphs_agree(run, case)
    assert_rows_are_alone(run, case)
    ids = tokens(case, 64, seed=1)
    whole = prefilled(run, run.new_cache(), ids, 64)[-1]
    for chunk in (2, 16, 31):
        np.testing.assert_array_equal(prefilled(run, run.new_cache(), ids, chunk)[-1], whole)


def test_an_int8_kv_cache_is_bit_exact_for_single_tokens_and_threads_too(case: Case, bundle: Bundle) -> None:
    run = runner_of(bundle, kv="int8")
    assert_the_graphs_agree(run, case)
    assert_rows_are_alone(run, case)
    assert_any_chunking_is_bit_exact(bundle, case)


def test_an_int4_kv_cache_is_bit_exact_too(case: Case, bundle: Bundle) -> None:
    if "int4 KV" in case.also:
        run = runner_of(bundle, kv="int4")
        assert run.chunk_invariance == "any"
        assert_the_graphs_agree(run, case)
        assert_rows_are_alone(run, case)


@pytest.mark.release
@pytest.mark.parametrize("case", judged_cases(case for case in CASES if is_held(case)))
def test_four_bits_are_bit_exact_too(case: Case, tmp_path: Path) -> None:
    bundle = exported(case, tmp_path, "int4", **changes_of(case))
    assert_bit_exact(bundle, case)


def test_wide_heads_differ_in_chunks_only(tmp_path: Path) -> None:
    case = BASES["gemma3_text"]
    bundle = exported(case, tmp_path, head_dim=256)
    run = runner_of(bundle)
    assert_the_graphs_agree(run, case)
    assert_rows_are_alone(run, case)
    assert_any_chunking_is_bit_exact(bundle, case)  # with an int8 KV cache they are no exception


@pytest.mark.usefixtures("all_cores")
@pytest.mark.parametrize("kv", ["float32", "int8"])
def test_many_experts_by_stock_operators_promise_nothing(tmp_path: Path, kv: Any) -> None:
    case = BASES["olmoe"]
    bundle = exported(case, tmp_path, num_experts_per_tok=4)
    options = EngineOptions(threads=1, kv=kv, kernels="stock")
    run = open_runner(bundle, options)
    assert run.chunk_invariance == "none"
    assert_the_graphs_agree(run, case)
    with pytest.raises(OptionError, match=r"^deterministic: .*: run it on edgegen's kernels"):
        open_runner(bundle, replace(options, deterministic=True))


def assert_bit_exact(bundle: Bundle, case: Case) -> None:
    """With either KV cache: in both graphs, in batches, and in chunks of any size."""
    for kv in ("float32", "int8"):
        run = runner_of(bundle, kv=kv)
        assert_the_graphs_agree(run, case)
        assert_rows_are_alone(run, case)
    assert_any_chunking_is_bit_exact(bundle, case)


def assert_the_graphs_agree(run: Runner[Any], case: Case) -> None:
    """Prefill and decode, over the same tokens after the same past, of which logits were wanted or not."""
    ids, caches, silent = tokens(case, 80, seed=1), (run.new_cache(), run.new_cache()), run.new_cache()
    for start, stop in [(0, 50), (50, 51), (51, 80)]:
        prefill = prefilled(run, caches[0], ids[start:stop], stop - start)[-1]
        np.testing.assert_array_equal(prefill, decoded(run, caches[1], ids[start:stop])[-1])
        if stop < len(ids):
            run.append(silent, 0, ids[start:stop])
        else:
            np.testing.assert_array_equal(run.prefill(silent, 0, ids[start:stop]), prefill)


def assert_rows_are_alone(run: Runner[Any], case: Case) -> None:
    """Rows of several lengths, decoded in one batch."""
    prompts = [tokens(case, count, seed=count) for count in (40, 7, 23, 1)]
    steps = np.array([tokens(case, 6, seed=row) for row in range(4)])
    together = run.new_cache()
    for row, prompt in enumerate(prompts):
        run.prefill(together, row, prompt)
    batch: list[Logits] = [run.decode(together, steps[:, k : k + 1])[:, 0].copy() for k in range(6)]
    for row, prompt in enumerate(prompts):
        alone = run.new_cache()
        run.prefill(alone, 0, prompt)
        for k in range(6):
            np.testing.assert_array_equal(decoded(run, alone, [int(steps[row, k])])[0], batch[k][row])


def assert_any_chunking_is_bit_exact(bundle: Bundle, case: Case) -> None:
    """Logits of every position and the int8 KV cache: at once, in chunks by either graph, with more threads, in a
    larger cache."""
    ids, kv = tokens(case, 64, seed=1), bundle.variant_with("int8").kv
    runner, threaded = (runner_of(bundle, kv="int8", threads=threads) for threads in (1, 2))
    whole, kept = walked(runner, kv, ids, [len(ids)])
    for chunks in CHUNKINGS:
        for run, capacity in ((runner, 1), (threaded, bundle.manifest.model.max_context)):
            logits, cache = walked(run, kv, ids, chunks, capacity)
            np.testing.assert_array_equal(logits, whole)
            np.testing.assert_array_equal(cache, kept)
        cache, ends = runner.new_cache(), list(accumulate(chunks))
        last = [
            runner.prefill(cache, 0, ids[end - count : end]).copy() for count, end in zip(chunks, ends, strict=True)
        ]
        np.testing.assert_array_equal(last, whole[np.array(ends) - 1])


def walked(
    run: Runner[Any], kv: KVSpec, ids: list[int], chunks: list[int], capacity: int = 1
) -> tuple[Logits, NDArray[np.float32]]:
    """Decode ids in chunks; logits [t, vocab], and the final KV cache and fixed states, one after the other."""
    cache = run.new_cache()
    cache.reserve(1, capacity)
    logits = [
        decoded(run, cache, ids[end - count : end]) for count, end in zip(chunks, accumulate(chunks), strict=True)
    ]
    run.prefill(cache, 0, ids[:1])  # so that no token of the last run is pending, and all are part of the states
    arrays = sum(layer.arrays for layer in kv.layers) + len(kv.fixed)
    rows = [buffer.array[0] for buffer in cache.buffers(0, 1)[:arrays]]
    kept = [row[:, : len(ids)] if row.dtype == np.int8 else row for row in rows]  # keys and values have positions
    return np.concatenate(logits), np.concatenate([row.astype(np.float32).ravel() for row in kept])
