"""Exports that were ended from outside go on where they were, and come to the same bundle."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.errors import ExportError
from edgegen_export.files.progress import Silent
from edgegen_export.options import ExportOptions
from edgegen_export.output.resume import KEPT_PREFIX, ResumeFolder, fingerprint
from edgegen_export.pipeline import export
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.bundles import little_calibration
from tests.export.checkpoint.layouts import write_gpt2
from tests.systems import WINDOWS, needs_posix

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("little_parity")]  # files of whole bundles are compared

SHAPE: dict[str, Any] = {"layout": "trainer", "n_layer": 3, "n_embd": 32, "n_positions": 32}


class Listener(Silent):
    """Notes stages and warnings; raises at the ``layers``-th layer that is quantized."""

    def __init__(self, layers: int | None = None, error: BaseException | None = None) -> None:
        self._layers, self._error = layers, error
        self.stages: list[str] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def advance(self, done: int, total: int) -> None:
        if self.stages[-1] == "quantizing" and done == self._layers and self._error:
            raise self._error

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture(scope="module", autouse=True)
def little() -> Iterator[None]:
    with little_calibration():
        yield


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gpt2(tmp_path_factory.mktemp("checkpoints") / "small", seed=1, **SHAPE)


@pytest.fixture(scope="module")
def whole(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export(str(checkpoint), tmp_path_factory.mktemp("whole") / "bundle", ExportOptions(scheme="int4"))[0]


def interrupt(checkpoint: Path, target: Path, error: BaseException, layers: int = 2) -> Listener:
    listener = Listener(layers, error)
    with pytest.raises((type(error), ExportError)):
        export(str(checkpoint), target, ExportOptions(scheme="int4"), progress=listener)
    return listener


def kept_in(target: Path) -> list[Path]:
    return list(target.glob(KEPT_PREFIX + "*"))


def names_in(target: Path) -> list[str]:
    """Return the names that an export leaves. On Windows its temporary files stay until nothing has them open, or the
    process ends."""
    if not target.exists():
        return []
    names = (path.name for path in target.iterdir())
    return sorted(name for name in names if not (WINDOWS and name.startswith(".partial-")))


@pytest.mark.parametrize("error", [KeyboardInterrupt("Ctrl-C"), OSError(28, "No space left")], ids=["Ctrl-C", "disk"])
def test_the_same_export_goes_on_to_the_same_bundle(
    checkpoint: Path, whole: Bundle, tmp_path: Path, error: BaseException
) -> None:
    target = tmp_path / "bundle"
    first = interrupt(checkpoint, target, error)
    assert any("is kept" in warning for warning in first.warnings)
    (kept,) = kept_in(target)
    matrices = {path.name: path.stat().st_mtime_ns for path in kept.glob("*.npz")}
    assert len(matrices) == 8  # of two layers

    again = Listener(2, KeyboardInterrupt("once more"))
    with pytest.raises(KeyboardInterrupt):
        export(str(checkpoint), target, ExportOptions(scheme="int4"), progress=again)
    assert matrices.items() <= {path.name: path.stat().st_mtime_ns for path in kept.glob("*.npz")}.items()

    last = Listener()
    bundle, _ = export(str(checkpoint), target, ExportOptions(scheme="int4"), progress=last)
    assert last.notes == [f"continues where an earlier export ended: 2 of {SHAPE['n_layer']} layers are done"]
    assert not any("sampling" in stage for stage in last.stages)
    assert bundle.manifest.files == whole.manifest.files
    assert names_in(target) == ["edgegen.json", "v1"]


def test_what_was_left_is_used_for_the_same_weights_and_wishes_only(checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    interrupt(checkpoint, target, KeyboardInterrupt("Ctrl-C"))
    other = write_gpt2(tmp_path / "other", seed=2, **SHAPE)
    listener = interrupt(other, target, KeyboardInterrupt("Ctrl-C"))
    assert any("sampling" in stage for stage in listener.stages)
    assert len(kept_in(target)) == 2
    whole, _ = export(str(other), tmp_path / "elsewhere", ExportOptions(scheme="int8"))
    listener = Listener()
    bundle, _ = export(str(other), target, ExportOptions(scheme="int8"), progress=listener)
    assert listener.notes == []
    assert bundle.manifest.files == whole.manifest.files
    assert kept_in(target) == []


def test_a_bug_leaves_nothing(checkpoint: Path, tmp_path: Path) -> None:
    interrupt(checkpoint, tmp_path / "bundle", RuntimeError("a bug"))
    assert names_in(tmp_path / "bundle") == []


KILLED = """
import os, signal, sys
from pathlib import Path
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.files.progress import Silent
from dataclasses import replace
from edgegen_export.calibration import text

class KillAtTheSecondLayer(Silent):
    quantizing = False
    def stage(self, name):
        self.quantizing = name == "quantizing"
    def advance(self, done, total):
        if self.quantizing and done == 2:
            os.kill(os.getpid(), signal.SIGKILL)

text.OF_SMALL = replace(text.OF_SMALL, tokens=text.OF_SMALL.few)  # as in the other process
export(sys.argv[1], Path(sys.argv[2]), ExportOptions(scheme="int4"), progress=KillAtTheSecondLayer())
"""


@needs_posix("SIGKILL")
def test_a_killed_export_goes_on_too(checkpoint: Path, whole: Bundle, tmp_path: Path) -> None:
    target, listener = tmp_path / "bundle", Listener()
    run = subprocess.run([sys.executable, "-c", KILLED, str(checkpoint), str(target)], check=False)
    assert run.returncode == -9
    bundle, _ = export(str(checkpoint), target, ExportOptions(scheme="int4"), progress=listener)
    assert any("continues where" in note for note in listener.notes)
    assert bundle.manifest.files == whole.manifest.files


def test_two_exports_at_once_do_not_share_a_resume_folder(tmp_path: Path) -> None:
    warnings: list[str] = []
    (tmp_path / "scratch").mkdir()
    with ResumeFolder(tmp_path, tmp_path / "first", warnings.append) as first:
        folder, _ = first.claim("key")
        (folder / "text.npy").write_text("first's")
        with ResumeFolder(tmp_path, tmp_path / "scratch", warnings.append) as second:
            assert second.claim("key") == (tmp_path / "scratch", False)
        assert (folder / "text.npy").exists()  # the second, done, takes nothing away
    assert kept_in(tmp_path) == []
    assert warnings == []


def test_a_fingerprint_tells_every_weight_shape_and_fact() -> None:
    def of(array: np.ndarray[Any, Any], facts: object = None) -> str:
        return fingerprint({"a": LazyTensor.from_array(array.astype(np.float32))}, facts, Silent().advance)

    weights = np.arange(12.0).reshape(3, 4)
    changed = weights.copy()
    changed[2, 3] += 1
    prints = [of(weights), of(changed), of(weights.reshape(4, 3)), of(weights, ["int4"]), of(weights, ["int8"])]
    assert len(set(prints)) == len(prints)
    assert of(weights.copy()) == prints[0]
