"""The memory forecast counts the biases that attention adds to its scores."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgegen.benchmark.memory_forecast import forecast_memory
from edgegen.benchmark.memory_plan import plan_memory
from edgegen.options.engine import EngineOptions
from edgegen_export.families import FAMILIES
from edgegen_export.files.progress import Silent
from edgegen_export.preflight.estimate import estimate
from edgegen_export.source.family_source import FamilyLoader
from tests.export.bundles import export_to
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of

CONTEXT, CHUNK = 256, 32


@pytest.mark.parametrize(("family", "arrays"), [("inkling_text", 2 * 8), ("bloom", 4), ("llama", 0)])
def test_biases_count_by_chunk_and_context(family: str, arrays: int, tmp_path: Path) -> None:
    """Of the queries of 8 heads, gathered and then transposed; of ALiBi with 4 heads, once for all layers."""
    case = next(one for one in CASES if str(one) == f"{family}: base")
    places = {"seq_length": CONTEXT} if family == "bloom" else {"max_position_embeddings": CONTEXT}
    checkpoint = checkpoint_of(replace(case, config={**case.config, **places}), tmp_path / "checkpoint")
    bundle = export_to(checkpoint, tmp_path / "bundle")
    options = EngineOptions(prefill_chunk=CHUNK)
    short, long = (forecast_memory(bundle, options, context=n, kv=0).activations for n in (64, CONTEXT))
    assert long - short == 4 * CHUNK * (CONTEXT - 64) * arrays
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    found, shorter = (
        estimate(FamilyLoader(FAMILIES, n, None, Silent()).decoder(config), "fp32", fast=True, gflops=100.0).running
        for n in (CONTEXT, 64)
    )
    of_token = bundle.variant.kv.bytes_per_token
    whole = 4 * arrays * (min(CONTEXT, EngineOptions().prefill_chunk) * CONTEXT - 64 * 64)
    assert found - shorter == (CONTEXT - 64) * of_token + whole
    plan = plan_memory(bundle, 10**9, options)
    assert plan.context == bundle.manifest.model.max_context
    assert plan.forecast.activations - short == 4 * CHUNK * (plan.context - 64) * arrays
