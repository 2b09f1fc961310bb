"""Folders and files that may not be written or read: one sentence, nothing is lost, nothing is left behind."""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND
from tests.root import ROOT

if sys.platform != "linux":
    pytest.skip("the superuser's rights are taken away as Linux does it", allow_module_level=True)

pytestmark = pytest.mark.slow

_DROP_CAPABILITY, _RIGHTS_OF_ALL = 24, (1, 2)
"""``PR_CAPBSET_DROP``, and what lets the superuser read and write whatever the modes of files say."""

Run = Callable[..., subprocess.CompletedProcess[str]]


def _as_anybody() -> None:
    for capability in _RIGHTS_OF_ALL:
        ctypes.CDLL(None).prctl(_DROP_CAPABILITY, capability, 0, 0, 0)  # of others, who have none, it says no


@pytest.fixture
def edgegen(edgegen_home: Path, tmp_path: Path) -> Run:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "export")])}

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, preexec_fn=_as_anybody, env=environment, cwd=tmp_path
        )

    return run


@pytest.fixture
def shut(tmp_path: Path) -> Iterator[Path]:
    """A folder to be made read-only; removable again afterwards."""
    folder = tmp_path / "shut"
    folder.mkdir()
    yield folder
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)


def refused(done: subprocess.CompletedProcess[str], said: str) -> None:
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert done.stderr.startswith("edgegen: error: ")
    assert len(done.stderr.splitlines()) == 1


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_session(edgegen: Run, model: str, shut: Path) -> None:
    told = ("generate", "-m", model, "-n", "2", "--session", shut / "a", "Once")
    assert edgegen(*told).returncode == 0
    before = content(shut)
    shut.chmod(0o555)
    refused(edgegen(*told), f"the session cannot be saved to {shut / 'a'}: Permission denied")
    assert content(shut) == before


def test_a_batch(edgegen: Run, model: str, shut: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text('{"prompt": "a", "max_new_tokens": 1}\n')
    (shut / "out").write_text("before")
    shut.chmod(0o555)
    refused(edgegen("batch", tmp_path / "in", "-m", model, "--force", "-o", shut / "out"), "Permission denied")
    assert content(shut) == {"out": b"before"}


def test_an_export(edgegen: Run, checkpoint: Path, shut: Path) -> None:
    target = shut / "bundle"
    assert edgegen("export", checkpoint, "--fast", "-o", target).returncode == 0
    before = content(shut)
    target.chmod(0o555)
    refused(edgegen("export", checkpoint, "--fast", "--force", "-o", target), f"{target} cannot be written: ")
    shut.chmod(0o555)
    refused(edgegen("export", checkpoint, "--fast", "-o", shut / "new"), f"{shut / 'new'} cannot be written: ")
    assert content(shut) == before


def test_the_store(edgegen: Run, model: str, edgegen_home: Path) -> None:
    bundles = edgegen_home / "bundles"
    shutil.copytree((bundles / model).resolve(), bundles / "mine")
    before = content(bundles)
    bundles.chmod(0o555)
    try:
        refused(edgegen("rm", "mine"), f"{bundles / 'mine'} cannot be removed: Permission denied")
        assert content(bundles) == before
    finally:
        bundles.chmod(0o755)


def test_a_home_that_cannot_be_written_costs_a_verification_and_no_more(
    edgegen: Run, model: str, edgegen_home: Path
) -> None:
    edgegen_home.chmod(0o555)
    try:
        done = edgegen("generate", "-m", model, "-n", "2", "Once")
    finally:
        edgegen_home.chmod(0o755)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (edgegen_home / "verified").exists()


@pytest.mark.parametrize("name", ["edgegen.json", "weights.data"])
def test_files_that_may_not_be_read(edgegen: Run, model: str, edgegen_home: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree((edgegen_home / "bundles" / model).resolve(), tmp_path / "copy")
    (path,) = copy.rglob(name)
    path.chmod(0)
    done = edgegen("generate", "-m", copy, "Once")
    path.chmod(0o644)
    assert (done.returncode, done.stdout) == (1, "")
    assert name in done.stderr
    assert "Permission denied" in done.stderr
    assert "Traceback" not in done.stderr
