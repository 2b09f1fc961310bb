"""A bundle appears whole or not at all: failures at every step, other exports, wrong targets."""

import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import FileEntry, Manifest
from edgegen.bundle.store import BundleStore
from edgegen.errors import ExportError
from edgegen_export.files.progress import Silent
from edgegen_export.options import ExportOptions
from edgegen_export.output.bundle_writer import PAGE, BundleWriter, WeightsFile, refuse_wrong_target
from edgegen_export.output.resume import KEPT_PREFIX
from edgegen_export.pipeline import export
from tests.export.checkpoint.layouts import write_gpt2
from tests.runtime.models import write_fake_bundle
from tests.runtime.system.recorded import Recorded
from tests.windows_files import windows_files

Tree = dict[str, bytes]


def tree(folder: Path) -> Tree:
    """Everything below ``folder``: files with their contents, folders with a slash."""
    return {
        path.relative_to(folder).as_posix() + ("/" if path.is_dir() else ""): path.read_bytes()
        if path.is_file()
        else b""
        for path in sorted(folder.rglob("*"))
    }


def remove_unfinished(target: Path) -> bool:
    """Let the next export begin anew; whether this one had left anything to go on from."""
    kept = list(target.glob(KEPT_PREFIX + "*"))
    for folder in kept:
        shutil.rmtree(folder)
    return bool(kept)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two checkpoints that differ in their weights only."""
    folder = tmp_path_factory.mktemp("checkpoints")
    shape: dict[str, Any] = {"layout": "trainer", "n_layer": 1, "n_embd": 32, "n_positions": 16}
    return write_gpt2(folder / "old", seed=1, **shape), write_gpt2(folder / "new", seed=2, **shape)


class Interrupted(BaseException):
    """Not an ``Exception``, as Ctrl-C is not."""


class FailingAt(Silent):
    """Raises at the ``step``-th thing it hears."""

    def __init__(self, step: int, error: BaseException) -> None:
        self.heard = 0
        self._step = step
        self._error = error

    def expect(self, seconds: Mapping[str, float]) -> None:
        self._hear()

    def stage(self, text: str) -> None:
        self._hear()

    def advance(self, done: int, total: int) -> None:
        self._hear()

    def note(self, text: str) -> None:
        self._hear()

    def warn(self, text: str) -> None:
        self._hear()

    def _hear(self) -> None:
        if self.heard == self._step:
            raise self._error
        self.heard += 1


def every_step(source: Path, target: Path, error: BaseException, check: Callable[[], None]) -> None:
    """Export, failing at a dozen steps from the first to the last, and then not; ``check`` after each failure.

    In int8, which has the most steps, or where another error does so, in float32.
    """
    progress, scheme = FailingAt(-1, error), "int8" if isinstance(error, RuntimeError) else "fp32"
    export(str(source), target.with_name("whole"), ExportOptions(scheme=scheme), progress=progress)
    for step in np.linspace(0, progress.heard - 1, 12, dtype=int):
        with pytest.raises((type(error), ExportError)):
            export(str(source), target, ExportOptions(scheme=scheme, force=True), progress=FailingAt(int(step), error))
        check()
    export(str(source), target, ExportOptions(scheme=scheme, force=True), progress=FailingAt(progress.heard, error))


errors = pytest.mark.parametrize(
    "error",
    [RuntimeError("a bug"), Interrupted(), OSError(28, "No space left on device")],
    ids=["error", "interrupt", "disk full"],
)


@pytest.mark.slow
@errors
def test_an_export_that_fails_at_any_step_leaves_nothing(
    checkpoints: tuple[Path, Path], tmp_path: Path, error: BaseException
) -> None:
    target = tmp_path / "bundle"

    def check() -> None:
        kept = remove_unfinished(target)
        assert not kept or not isinstance(error, RuntimeError)
        assert not target.exists() or not any(target.iterdir())

    every_step(checkpoints[0], target, error, check)
    Bundle.open(target).verify()


@pytest.mark.slow
@errors
def test_a_replacement_that_fails_at_any_step_leaves_the_old_bundle(
    checkpoints: tuple[Path, Path], tmp_path: Path, error: BaseException
) -> None:
    target = tmp_path / "bundle"
    old, _ = export(str(checkpoints[0]), target)
    before = tree(target)

    def check() -> None:
        remove_unfinished(target)
        assert tree(target) == before

    every_step(checkpoints[1], target, error, check)
    new = Bundle.open(target)
    new.verify()
    assert new.manifest.files["weights.data"] != old.manifest.files["weights.data"]
    assert (old.manifest.folder, new.manifest.folder) == ("v1", "v2")
    assert sorted(path.name for path in target.iterdir()) == ["edgegen.json", "v2"]


# Targets.


def test_a_target_that_is_a_file_is_refused_and_kept(checkpoints: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "notes.txt"
    target.write_text("mine")
    for force in (False, True):
        with pytest.raises(ExportError, match=r"notes\.txt is a file"):
            export(str(checkpoints[0]), target, ExportOptions(scheme="fp32", force=force))
    assert target.read_text() == "mine"


def test_a_folder_with_other_files_is_refused_and_kept(checkpoints: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "documents"
    (target / "v1").mkdir(parents=True)
    (target / "thesis.tex").write_text("mine")
    before = tree(target)
    for force in (False, True):
        with pytest.raises(ExportError, match="holds other files and no bundle"):
            export(str(checkpoints[0]), target, ExportOptions(scheme="fp32", force=force))
    assert tree(target) == before


def test_a_bundle_is_not_replaced_without_force(checkpoints: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    export(str(checkpoints[0]), target, ExportOptions(scheme="fp32"))
    before = tree(target)
    with pytest.raises(ExportError, match="already holds a bundle; replace it with --force"):
        export(str(checkpoints[1]), target, ExportOptions(scheme="fp32"))
    assert tree(target) == before


def test_an_empty_folder_and_folders_above_are_no_obstacle(checkpoints: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for target in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        bundle, _ = export(str(checkpoints[0]), target, ExportOptions(scheme="fp32"))
        bundle.verify()
        assert bundle.manifest.name == target.name


def test_a_target_given_as_a_relative_path_has_its_folders_name(
    checkpoints: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    bundle, _ = export(str(checkpoints[0]), Path(), ExportOptions(scheme="fp32"))
    assert bundle.manifest.name == "here"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a user whom permissions hold back")
def test_a_folder_that_may_not_be_written_is_refused(checkpoints: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(ExportError, match="cannot be written"):
        export(str(checkpoints[0]), tmp_path / "locked" / "bundle", ExportOptions(scheme="fp32"))


def test_a_target_below_a_file_is_refused(checkpoints: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ExportError, match="cannot be written"):
        export(str(checkpoints[0]), tmp_path / "file" / "bundle", ExportOptions(scheme="fp32"))


# What killed exports leave, and exports side by side.


def leave_remains(target: Path) -> Path:
    partial = target / ".partial-999999-deadbeef"
    partial.mkdir(parents=True)
    (partial / "weights.data").write_bytes(b"half")
    (target / f"{partial.name}.scratch").mkdir()
    (target / f"{partial.name}.scratch" / "trace").write_bytes(b"large")
    (target / f"{partial.name}.lock").touch()
    return partial


def test_remains_of_a_killed_export_are_cleaned_up(checkpoints: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    leave_remains(target)
    (target / "v1").mkdir()  # killed between its two last steps
    (target / "v1" / "weights.data").write_bytes(b"whole, but named by no manifest")
    bundle, _ = export(str(checkpoints[0]), target, ExportOptions(scheme="fp32"))
    bundle.verify()
    assert sorted(path.name for path in target.iterdir()) == ["edgegen.json", bundle.manifest.folder]


def test_what_a_running_export_writes_is_no_remains_however_old(tmp_path: Path) -> None:
    with BundleWriter(tmp_path / "bundle") as running:
        running.add("file", b"x")
        (running.scratch() / "trace").write_text("large")
        os.utime(running.folder, (0, 0))
        with BundleWriter(tmp_path / "bundle"):
            pass
        assert (running.folder / "file").exists()
        assert (running.scratch() / "trace").exists()


def test_remains_are_not_listed_as_bundles(tmp_path: Path) -> None:
    store = BundleStore(tmp_path)
    leave_remains(tmp_path / "half")
    leave_remains(tmp_path)
    assert [entry.name for entry in store if entry.path.parent == tmp_path] == []


class MeetingPoint(Silent):
    """Lets two exports go on only when both have written their weights."""

    def __init__(self, barrier: threading.Barrier) -> None:
        self._barrier = barrier

    def stage(self, text: str) -> None:
        if text.startswith("comparing"):
            self._barrier.wait(60)


@pytest.mark.parametrize("force", [False, True])
def test_of_two_exports_to_one_target_one_wins_whole(
    checkpoints: tuple[Path, Path], tmp_path: Path, force: bool
) -> None:
    target = tmp_path / "bundle"
    if force:
        export(str(checkpoints[0]), target, ExportOptions(scheme="fp32"))
    options = ExportOptions(scheme="fp32", force=force)
    barrier, outcomes = threading.Barrier(2), list[Bundle | ExportError]()

    def run(source: Path) -> None:
        try:
            outcomes.append(export(str(source), target, options, progress=MeetingPoint(barrier))[0])
        except ExportError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=run, args=(source,)) for source in checkpoints]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [outcome for outcome in outcomes if isinstance(outcome, Bundle)]
    lost = [outcome for outcome in outcomes if isinstance(outcome, ExportError)]
    assert len(won) == len(lost) == 1
    assert "another export has written" in str(lost[0])
    assert Bundle.open(target).manifest == won[0].manifest
    won[0].verify()
    assert sorted(path.name for path in target.iterdir()) == ["edgegen.json", won[0].manifest.folder]


def test_an_export_that_fails_does_not_take_the_folder_from_under_another(
    checkpoints: tuple[Path, Path], tmp_path: Path
) -> None:
    target = tmp_path / "bundle"

    class FailsWhenTheOtherRuns(Silent):
        def stage(self, text: str) -> None:
            if text.startswith("writing"):
                other.append(BundleWriter(target))
                raise Interrupted

    other: list[BundleWriter] = []
    with pytest.raises(Interrupted):
        export(str(checkpoints[0]), target, ExportOptions(scheme="fp32"), progress=FailsWhenTheOtherRuns())
    with other[0] as writer:
        writer.add("file", b"still possible")


# The weights file.


def test_scratch_is_no_part_of_the_bundle(checkpoints: tuple[Path, Path], tmp_path: Path) -> None:
    manifest = export(str(checkpoints[0]), tmp_path / "model", ExportOptions(scheme="fp32"))[0].manifest
    with BundleWriter(tmp_path / "other") as writer:
        (writer.scratch() / "trace").write_text("large")
        assert writer.scratch() == writer.scratch()
        writer.add("parity.json", b"{}")
        writer.commit(manifest)
    assert set(tree(tmp_path / "other")) == {"edgegen.json", "v1/", "v1/parity.json"}
    with BundleWriter(tmp_path / "third") as writer:  # not committed
        (writer.scratch() / "trace").write_text("large")
    assert not (tmp_path / "third").exists()


# Files in use, as on Windows, where they can be neither removed nor renamed.


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return write_fake_bundle(tmp_path_factory.mktemp("fake") / "fake").manifest


def test_a_temporary_file_that_is_open_keeps_no_bundle_from_being_written(manifest: Manifest, tmp_path: Path) -> None:
    with windows_files():
        with BundleWriter(tmp_path / "bundle") as writer:
            writer.add("parity.json", b"{}")
            file = (writer.scratch() / "states").open("wb")
            with file:
                assert writer.commit(manifest) == []
                writer.__exit__(None, None, None)
                assert set(tree(tmp_path / "bundle")) > {"edgegen.json", "v1/", "v1/parity.json"}
        with BundleWriter(tmp_path / "bundle", force=True) as writer:  # the next one removes what stayed
            assert not any("states" in name for name in tree(tmp_path / "bundle"))
    assert set(tree(tmp_path / "bundle")) == {"edgegen.json", "v1/", "v1/parity.json"}


def test_an_export_that_fails_with_files_open_leaves_only_them_and_the_next_one_nothing(tmp_path: Path) -> None:
    target, mapped = tmp_path / "bundle", list[np.ndarray[Any, Any]]()

    def fail() -> None:
        with BundleWriter(target) as writer:
            writer.add("tokenizer.json", b"{}")
            sink = writer.weights("weights.data")
            sink.append(np.zeros(4, np.uint8))
            sink.close()
            mapped.append(np.memmap(writer.folder / "weights.data", np.uint8, "r"))
            raise RuntimeError("a bug")

    with windows_files():
        with pytest.raises(RuntimeError, match="a bug"):
            fail()
        assert [path.name for path in target.rglob("*") if path.is_file()] == ["weights.data"]
        mapped.clear()
        with BundleWriter(target) as writer:
            assert [path.name for path in target.iterdir() if path.is_dir()] == [writer.folder.name]


def test_the_version_that_is_replaced_may_be_in_use(manifest: Manifest, tmp_path: Path) -> None:
    target = tmp_path / "bundle"

    def write(force: bool) -> list[Path]:
        with BundleWriter(target, force=force) as writer:
            writer.add("weights.data", b"x")
            return writer.commit(replace(manifest, folder=writer.version))

    with windows_files():
        assert write(force=False) == []
        with (target / "v1" / "weights.data").open("rb"):
            assert write(force=True) == [target / "v1"]
            assert Bundle.open(target).content == target / "v2"
        assert write(force=True) == []
    assert sorted(path.name for path in target.iterdir()) == ["edgegen.json", "v3"]


def test_a_whole_export_leaves_nothing_where_files_in_use_cannot_be_removed(
    checkpoints: tuple[Path, Path], tmp_path: Path
) -> None:
    with windows_files():
        bundle, _ = export(str(checkpoints[0]), tmp_path / "bundle")
    bundle.verify()
    assert sorted(path.name for path in bundle.path.iterdir()) == ["edgegen.json", "v1"]


def test_a_path_that_leaves_no_room_for_files_is_refused_at_first(tmp_path: Path) -> None:
    target = tmp_path / ("x" * max(1, 200 - len(str(tmp_path))))
    with pytest.raises(ExportError, match=r"too long a path: with the names of files in it \d+ characters"):
        refuse_wrong_target(target, force=False, source=Recorded("win32"))
    refuse_wrong_target(target, force=False, source=Recorded("linux"))


def test_tensors_begin_on_a_page_or_on_a_small_boundary(tmp_path: Path) -> None:
    file = WeightsFile(tmp_path / "weights.data")
    sizes = [1, 63, 64, 65, PAGE - 1, PAGE, PAGE + 1, 3, 2 * PAGE]
    offsets: list[int] = []
    for k, size in enumerate(sizes):
        offsets.append(file.begin(size))
        file.append(np.full(size, k + 1, np.uint8))
    entry = file.close()
    content = (tmp_path / "weights.data").read_bytes()
    assert entry == FileEntry(len(content), hashlib.sha256(content).hexdigest())
    for k, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        assert offset % (PAGE if size >= PAGE else 64) == 0
        assert content[offset : offset + size] == bytes([k + 1]) * size
    assert sum(content.count(bytes([k + 1])) for k in range(len(sizes))) == sum(sizes)
