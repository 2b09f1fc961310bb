"""A round in a process of its own, and how such a process may end."""

import json
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from edgegen.benchmark import BenchmarkOptions, Round, run_benchmark, run_round
from edgegen.bundle.bundle import Bundle
from edgegen.errors import BundleError, BundleNotFoundError, UsageError
from edgegen.system import proportional_memory
from tests.runtime.models import raw_manifest, write_fake_bundle

pytestmark = pytest.mark.slow

OPTIONS = BenchmarkOptions(prefill=(4, 16), contexts=(8, 32), batches=(1, 3), repeats=1, threads=1)


@pytest.fixture(scope="module")
def measured(int8_bundle: Bundle) -> tuple[Round, int]:
    """A round, and how many parts were told of."""
    parts = list[None]()
    return run_round(int8_bundle.path, OPTIONS, lambda: parts.append(None)), len(parts)


def test_a_round_measures_all_that_was_asked_for(int8_bundle: Bundle, measured: tuple[Round, int]) -> None:
    found, parts = measured
    assert parts == OPTIONS.plan(512).parts
    assert [one.tokens for one in found.prefill] == [4, 16]
    assert [(one.context, len(one.step_seconds), len(one.graph_seconds)) for one in found.decode] == [
        (8, 32, 32),
        (32, 32, 32),
    ]
    assert [(one.rows, one.context, len(one.step_seconds)) for one in found.batch] == [(1, 8, 32), (3, 8, 32)]
    for run in found.decode:
        assert all(0 < graph < whole for whole, graph in zip(run.step_seconds, run.graph_seconds, strict=True))
    assert found.first_token_seconds is not None
    assert 0 < found.load_seconds < found.first_token_seconds
    assert found.bandwidth > 0
    assert found.onnxruntime == version("onnxruntime")
    assert found.kv_bytes == 17 * int8_bundle.variant.kv.bytes_per_token


@pytest.mark.skipif(proportional_memory() is None, reason="the system does not tell shares of memory")
def test_memory_is_the_models_own(int8_bundle: Bundle, measured: tuple[Round, int]) -> None:
    found, _ = measured
    weights = int8_bundle.file("weights.data").stat().st_size
    assert found.memory_bytes is not None
    assert found.peak_bytes is not None
    assert weights < found.memory_bytes < found.peak_bytes
    assert found.memory_bytes < 40e6  # and nothing of Python's, NumPy's and ONNX Runtime's own


def test_int8_keys_and_values_are_a_quarter(int8_bundle: Bundle) -> None:
    options = BenchmarkOptions(prefill=(4,), contexts=(8,), batches=(1,), repeats=1, threads=1, kv="int8")
    (found,) = run_benchmark([int8_bundle.path], options)
    assert found.kv == "int8"
    assert found.kv_bytes * 4 == 5 * int8_bundle.variant_with("float32").kv.bytes_per_token


def test_a_bundle_needs_no_tokenizer(tmp_path: Path, int8_bundle: Bundle) -> None:
    folder = shutil.copytree(int8_bundle.path, tmp_path / "mute")
    manifest = raw_manifest(int8_bundle.path)
    assert manifest["tokenizer"] == "tokenizer.json"
    (folder / "edgegen.json").write_text(json.dumps(manifest | {"tokenizer": None}))
    assert run_round(folder, OPTIONS).prefill


def test_errors_of_the_child_process_are_raised(tmp_path: Path) -> None:
    with pytest.raises(BundleNotFoundError, match="is not a bundle"):
        run_round(tmp_path, OPTIONS)
    bundle = write_fake_bundle(tmp_path / "fake")
    with pytest.raises(BundleError, match=r"cannot load prefill\.onnx"):
        run_round(bundle.path, OPTIONS)
    with pytest.raises(UsageError, match="no variant with a KV cache in int8"):
        run_round(bundle.path, BenchmarkOptions(kv="int8"))


def test_a_process_that_ends_otherwise_is_an_error_with_its_last_words(
    tmp_path: Path, int8_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nprint('first', file=sys.stderr)\nprint('no memory', file=sys.stderr, flush=True)\nos._exit(3)"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(BundleError, match="ended with code 3 and said: no memory"):
        run_round(int8_bundle.path, OPTIONS)


def test_what_else_is_printed_while_a_process_starts_is_no_matter(
    tmp_path: Path, int8_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('welcome')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run_round(int8_bundle.path, OPTIONS).prefill
