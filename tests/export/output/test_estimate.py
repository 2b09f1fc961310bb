"""Estimates of an export by its config: memory and disk are those of real exports, time has the right order."""

import gc
import json
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.benchmark.memory_forecast import forecast_memory
from edgegen.errors import ExportError
from edgegen.options.engine import EngineOptions
from edgegen_export.families import FAMILIES
from edgegen_export.files.disk import amount
from edgegen_export.files.progress import Silent
from edgegen_export.files.scratch import Scratch
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.preflight.estimate import Estimate, estimate, measure_gflops
from edgegen_export.preflight.preflight import Preflight, announcement, duration
from edgegen_export.quantize.recipe import Scheme
from edgegen_export.source.family_source import FamilyLoader
from tests.export.checkpoint.layouts import write_gpt2

SHAPES: dict[str, dict[str, Any]] = {
    "wide": {"n_layer": 2, "n_embd": 512, "n_head": 8, "vocab_size": 3000, "n_positions": 64},
    "deep": {"n_layer": 8, "n_embd": 192, "n_head": 4, "vocab_size": 500, "n_positions": 64},
    "vocabulary": {"n_layer": 2, "n_embd": 128, "n_head": 2, "vocab_size": 40000, "n_positions": 64},
}
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new"} | {
    "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024, "layer_norm_epsilon": 1e-5,
}  # fmt: skip


class Watched(Silent):
    """Notes the most bytes that lie in ``folder`` and in scratch files at a time, and all the export's words."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.most = self.scratch = 0
        self.stages, self.notes = list[str](), list[str]()
        self.expected: dict[str, float] = {}

    def expect(self, seconds: Any) -> None:
        self.expected = dict(seconds)

    def stage(self, text: str) -> None:
        self.stages.append(text)
        self.look()

    def advance(self, done: int, total: int) -> None:
        self.look()

    def note(self, text: str) -> None:
        self.notes.append(text)

    def look(self) -> None:
        files = sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())
        self.most = max(self.most, files + self.scratch)

    def freed(self, nbytes: int) -> None:
        self.scratch -= nbytes


@contextmanager
def watched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Watched]:
    seen, empty = Watched(folder), Scratch.empty

    def watch(self: Scratch, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        array = empty(self, shape, dtype)
        seen.scratch += array.nbytes
        weakref.finalize(array if array.base is None else array.base, seen.freed, array.nbytes)
        seen.look()
        return array

    with monkeypatch.context() as patch:
        patch.setattr(Scratch, "empty", watch)
        yield seen
    gc.collect()


def of(config: dict[str, Any], scheme: Scheme, fast: bool, gflops: float = 100.0) -> Estimate:
    loader = FamilyLoader(FAMILIES, None, None, Silent())
    return estimate(loader.decoder(config), scheme, fast=fast, gflops=gflops)


@pytest.mark.parametrize(
    ("shape", "scheme", "fast"),
    [
        *((shape, "int8", True) for shape in SHAPES),
        ("wide", "fp16", False),
        pytest.param("deep", "int8", False, marks=pytest.mark.slow),
        pytest.param("deep", "int4", False, marks=pytest.mark.slow),
    ],
)
def test_the_disk_space_is_what_an_export_takes(
    shape: str, scheme: Scheme, fast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = write_gpt2(tmp_path / "checkpoint", layout="original", **SHAPES[shape])
    with watched(tmp_path / "out", monkeypatch) as seen:
        bundle, _ = export(str(checkpoint), tmp_path / "out", ExportOptions(scheme=scheme, fast=fast), progress=seen)
    config = json.loads((checkpoint / "config.json").read_text())
    found = of(config, scheme, fast)
    stored = sum(file.size for file in bundle.manifest.files.values())
    most = 1.7 if scheme == "int4" else 1.1  # where few bits cost little, not all of the budget is spent
    assert 0.98 * stored <= found.bundle <= most * stored + 8_000_000
    assert seen.most <= found.disk <= 1.5 * seen.most + 20_000_000
    assert list(seen.expected) == [text for text in seen.stages if text in seen.expected]
    assert {text for text in seen.stages if not text.startswith("opening")} == seen.expected.keys()
    assert seen.notes == []  # it is not long


@pytest.mark.parametrize("fast", [True, False])
def test_experts_are_stored_in_4_bits(fast: bool) -> None:
    config = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
    four, eight = (of(config, scheme, fast).bundle for scheme in ("int4", "int8"))
    assert 0.5 < four / eight < 0.6


def test_a_slower_machine_takes_longer_and_no_more_room() -> None:
    quick, slow = of(GPT2, "int4", False, 200.0), of(GPT2, "int4", False, 20.0)
    assert slow.total_seconds == pytest.approx(10 * quick.total_seconds)
    assert (slow.memory, slow.disk) == (quick.memory, quick.disk)


@pytest.mark.parametrize(
    ("scheme", "fast", "megabytes"), [("int8", True, 168), ("int8", False, 262), ("int4", False, 293)]
)
def test_the_memory_of_gpt2_is_what_was_measured(scheme: Scheme, fast: bool, megabytes: int) -> None:
    """Measured with ``python -m bench.exports --shapes G``."""
    assert megabytes <= of(GPT2, scheme, fast).memory / 1e6 <= 2 * megabytes


def test_more_effort_takes_more_time() -> None:
    fast, int8 = of(GPT2, "int8", True), of(GPT2, "int8", False)
    times = [fast.total_seconds, int8.total_seconds, of(GPT2, "int4", False).total_seconds]
    assert times == sorted(times)
    assert times[0] < times[1] / 1.5


def test_this_machine_multiplies() -> None:
    assert 0.01 < measure_gflops() < 100_000


def announced(scheme: Scheme, fast: bool, gflops: float) -> Watched:
    seen = Watched(Path("nowhere"))
    loader = FamilyLoader(FAMILIES, None, None, seen)
    preflight = Preflight(loader, Path("nowhere"), scheme, fast, seen, lambda: gflops)
    preflight.check_config(GPT2)
    preflight.check_config(GPT2)
    return seen


def test_a_long_export_is_announced_once_with_what_fast_would_take() -> None:
    (line,) = announced("int8", False, 20.0).notes
    found = of(GPT2, "int8", False, 20.0), of(GPT2, "int8", True, 20.0)
    assert line == announcement(*found)
    assert line.startswith(f"this export takes about {duration(found[0].total_seconds)}, ")
    assert line.count(" of memory and ") == 2
    assert "; with --fast, about " in line


def test_a_long_fast_export_has_no_alternative() -> None:
    (line,) = announced("int8", True, 1.0).notes
    assert "--fast" not in line
    (line,) = announced("fp32", False, 1.0).notes
    assert "--fast" not in line


def test_a_short_export_is_not_announced() -> None:
    seen = announced("int8", False, 1000.0)
    assert seen.notes == []
    assert seen.expected


@pytest.mark.parametrize("memory", [100_000_000, 280_000_000])
def test_a_machine_that_is_too_small_is_told_before_anything_is_downloaded(memory: int) -> None:
    loader = FamilyLoader(FAMILIES, None, None, Silent())
    preflight = Preflight(loader, Path("nowhere"), "int8", False, Silent(), lambda: 100.0, memory=memory)
    with pytest.raises(ExportError) as caught:
        preflight.check_config(GPT2)
    found = of(GPT2, "int8", False)
    assert str(caught.value) == (
        f"the model is too large for this machine: in int8 it takes about {amount(found.running)} to run with 4096 "
        f"tokens and {amount(found.memory)} to be made, and the machine has {amount(memory)} of memory; choose a "
        "smaller one or fewer bits (--int4)."
    )


def test_a_machine_that_is_large_enough_is_not_refused() -> None:
    loader, found = FamilyLoader(FAMILIES, None, None, Silent()), of(GPT2, "int8", False)
    most = max(found.running, found.memory)
    Preflight(loader, Path("nowhere"), "int8", False, Silent(), lambda: 100.0, memory=most).check_config(GPT2)


@pytest.mark.parametrize("scheme", ["int8", "fp32"])
def test_the_memory_to_run_is_what_the_bundle_is_forecast_to_take(scheme: Scheme, tmp_path: Path) -> None:
    checkpoint = write_gpt2(tmp_path / "checkpoint", layout="original", **SHAPES["wide"])
    bundle, _ = export(str(checkpoint), tmp_path / "out", ExportOptions(scheme=scheme, fast=True))
    found = of(json.loads((checkpoint / "config.json").read_text()), scheme, True)
    forecast = forecast_memory(bundle, EngineOptions())
    tokenizer = 8 * 135 * bundle.manifest.model.vocab_size  # which the checkpoint has not
    assert found.running - tokenizer == pytest.approx(forecast.total, rel=0.03)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 second"), (59, "59 seconds"), (60, "1 minute"), (700, "12 minutes"), (9000, "2.5 hours")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
