"""MemoryForecast: its sums by hand, and what processes take that run models of three shapes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.compare.checkpoints import write_checkpoint
from bench.compare.shapes import Qwen35Shape
from edgegen.benchmark.memory_forecast import MemoryForecast, forecast_memory
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.errors import UsageError
from edgegen.options.engine import EngineOptions
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.checkpoint.layouts import write_gpt2
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of
from tests.root import ROOT
from tests.runtime.models import write_fake_bundle
from tests.systems import needs_proc

PYTHON, SESSION = 60_000_000, 19_000_000


def test_the_total_is_the_sum_of_the_parts() -> None:
    forecast = MemoryForecast(
        python=1, weights=20, tokenizer=300, kv=4000, activations=50_000, draft=600_000, head=7_000_000
    )
    assert forecast.total == 7_654_321
    assert forecast.of_model == 7_650_320


def test_the_parts_of_a_model(int8_bundle: Bundle) -> None:
    """3 layers, a hidden size of 64: an int8 KV cache has 2 · 3 · 64 bytes a token. Positions are looked up in a table:
    64 codes and a scale of two bytes each."""
    vocab_size = int8_bundle.manifest.model.vocab_size
    options = EngineOptions(prefill_chunk=32, kernels="stock")
    forecast = forecast_memory(int8_bundle, options, context=100, batch=3)
    assert forecast.python == PYTHON
    assert forecast.kv == 3 * 100 * 2 * 3 * 64
    assert forecast.activations == SESSION + 4 * (32 * 64 * 13 + 3 * 4 * vocab_size)
    assert forecast.tokenizer == 8 * int8_bundle.file("tokenizer.json").stat().st_size
    weights = int8_bundle.file(int8_bundle.variant.weights).stat().st_size
    table = int8_bundle.manifest.model.max_context * (64 + 2)
    assert forecast.weights == int((weights - table) * 1.46)
    assert forecast_memory(int8_bundle, options).kv == int8_bundle.manifest.model.max_context * 2 * 3 * 64
    wider = forecast_memory(int8_bundle, EngineOptions(kv="float32"), context=100)
    assert wider.kv == 4 * 100 * 2 * 3 * 64


def test_a_draft_model_counts_with_its_kv_cache_and_without_a_tokenizer(int8_bundle: Bundle) -> None:
    options = EngineOptions()
    alone, kv = forecast_memory(int8_bundle, options), 1000
    both = forecast_memory(int8_bundle, options, kv=kv, draft=int8_bundle)
    assert both.draft == alone.weights + alone.activations + alone.kv
    assert both.total == alone.total - alone.kv + kv + both.draft


def test_a_type_of_kv_cache_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no variant with a KV cache in int8"):
        forecast_memory(write_fake_bundle(tmp_path / "one"), EngineOptions(kv="int8"))


MEASURE = """
import json, random, sys
from edgegen import LLM, EngineOptions
from edgegen.system import peak_memory, proportional_memory
path, options = sys.argv[1:]
llm = LLM.load(path, options=EngineOptions(**json.loads(options)))
draw = random.Random(0)
ids = [draw.randrange(llm.bundle.manifest.model.vocab_size) for _ in range(llm.max_context - 8)]
llm.generate(ids, max_new_tokens=8, eos_token_id=[])
print(json.dumps([proportional_memory(), peak_memory()]))
"""


def wide_checkpoint(folder: Path) -> Path:
    return write_gpt2(
        folder, layout="original", n_layer=6, n_embd=512, n_head=8, vocab_size=16_000, n_positions=512, seed=1
    )


def small_hybrid(folder: Path) -> Path:
    """As Qwen3.5, with a multi-token prediction head."""
    write_checkpoint(folder, Qwen35Shape(4, 512, 4, 2, 2048, 128, 8, 64, vocab=16_000, context=2048, with_head=True))
    return folder


def inkling(folder: Path) -> Path:
    """Heads enough that their biases count."""
    case = next(one for one in CASES if str(one) == "inkling_text: base")
    return checkpoint_of(replace(case, config={**case.config, "max_position_embeddings": 4096}), folder)


MADE: dict[str, tuple[Callable[[Path], Path], Scheme]] = {
    "wide fp32": (wide_checkpoint, "fp32"),
    "hybrid int8": (small_hybrid, "int8"),
    "inkling int8": (inkling, "int8"),
}
"""Checkpoints with random weights, and the schemes that they are exported in."""


@pytest.mark.golden
@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ("stories int8", {"kv": "int8"}),
        ("stories float32", {"kv": "float32"}),
        ("wide fp32", {"kv": "float32"}),
        ("hybrid int8", {"kv": "int8", "speculate": "off"}),
        ("hybrid int8", {"kv": "int8", "speculate": "mtp"}),
        ("inkling int8", {"kv": "int8"}),
    ],
    ids=str,
)
def test_processes_take_what_is_forecast(shape: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Within 15% of the peak. Of pages that other processes map too, the share of one process is less."""
    if shape in MADE:
        write, scheme = MADE[shape]
        bundle = export(
            str(write(tmp_path / "checkpoint")), tmp_path / "bundle", ExportOptions(scheme=scheme, fast=True)
        )[0]
    else:
        bundle = Bundle.open(BundleStore().resolve(DEFAULT_MODEL))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(bundle.path), json.dumps(options)],
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    share, peak = json.loads(done.stdout)
    forecast = forecast_memory(bundle, EngineOptions(**options)).total
    assert forecast == pytest.approx(peak, rel=0.15)
    assert share < 1.15 * forecast
