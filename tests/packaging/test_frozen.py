"""PyInstaller freezes an app with edgegen's hook: it generates, constrained too; without data it says what to add."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from edgegen import LLM, BundleNotFoundError, ConstraintError
from edgegen.system.pyinstaller import hook_folders
from tests.root import ROOT

APP = ROOT / "examples" / "desktop" / "frozen_app.py"
ORACLES = ("torch", "transformers", "peft", "optimum", "hypothesis", "pytest", "PIL", "pandas", "pyarrow")
"""An environment of users has none of these, of which PyInstaller would follow every import."""


def run(program: Path) -> subprocess.CompletedProcess[str]:
    """In an environment that has no other Python, nor edgegen's settings."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "SYSTEMROOT", "TMPDIR")}
    return subprocess.run([program], capture_output=True, text=True, check=False, timeout=300, env=kept)


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("PyInstaller")
    folder = tmp_path_factory.mktemp("frozen")
    paths = [word for path in (ROOT, ROOT / "export") for word in ("--paths", str(path))]
    hooks = ["--additional-hooks-dir", *hook_folders()]  # as the entry point of an installation says
    without = [word for name in ORACLES for word in ("--exclude-module", name)]
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "ERROR", *paths, *hooks, *without]
    command += ["--distpath", str(folder), "--workpath", str(folder / "work"), "--specpath", str(folder), str(APP)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder / "frozen_app"


@pytest.mark.release
def test_a_frozen_app_writes_what_the_program_writes(frozen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(APP)])
    with redirect_stdout(StringIO()) as written:
        runpy.run_path(str(APP))
    done = run(frozen / "frozen_app")
    assert done.returncode == 0, done.stderr
    assert done.stdout == written.getvalue()
    assert json.loads(done.stdout.splitlines()[1]) in ("Tom", "Lily")


@pytest.mark.release
def test_a_frozen_app_carries_the_kernels_of_this_installation(frozen: Path) -> None:
    here = {path.name for path in (ROOT / "edgegen" / "model").glob("edgegen_kernels.*")}
    there = {path.name for path in (frozen / "_internal" / "edgegen" / "model").glob("edgegen_kernels.*")}
    assert here == there


@pytest.mark.release
def test_without_its_data_it_says_what_to_add(frozen: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(frozen, bare)
    shutil.rmtree(bare / "_internal" / "edgegen" / "bundle")
    done = run(bare / "frozen_app")
    assert done.returncode == 1
    assert "add `--collect-data edgegen` to PyInstaller's command" in done.stderr


class TestWithoutPyInstaller:
    """Texts of the errors, without an app."""

    def test_the_embedded_model_is_missing(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
        monkeypatch.setattr("edgegen.bundle.store.EMBEDDED", tmp_path / "none")
        with pytest.raises(
            BundleNotFoundError, match="frozen without the embedded model: add `--collect-data edgegen`"
        ):
            LLM.load()

    def test_llguidance_has_no_metadata(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
        monkeypatch.setitem(sys.modules, "llguidance", None)
        with (
            LLM.load() as llm,
            pytest.raises(ConstraintError, match="add `--copy-metadata llguidance` to PyInstaller's"),
        ):
            llm.generate("Once", grammar='root ::= "a"', max_new_tokens=2)


def test_the_hook_lies_where_the_entry_point_says() -> None:
    (folder,) = hook_folders()
    assert (Path(folder) / "hook-edgegen.py").is_file()
