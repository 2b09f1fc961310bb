"""Environment of a process that runs edgegen too, and how it is ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgegen.system import child_environment, interrupt, use_one_blas_thread
from edgegen.system import children as module
from tests.root import ROOT
from tests.waiting import PATIENCE_S


def test_folders_are_the_same_in_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEGEN_HOME", "home")
    monkeypatch.setenv("HF_HOME", "~/hf")
    monkeypatch.setenv("XDG_DATA_HOME", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["here", str(tmp_path / "there")]))
    found = child_environment()
    assert found["EDGEGEN_HOME"] == str(tmp_path / "home")
    assert (found["HF_HOME"], found["XDG_DATA_HOME"]) == ("~/hf", "")
    paths = found["PYTHONPATH"].split(os.pathsep)
    assert paths == [str(ROOT), str(tmp_path / "here"), str(tmp_path / "there")]


@pytest.mark.parametrize("given", [None, "3"])
def test_a_process_that_exports_has_the_threads_that_the_user_says(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_set_here", set[str]())
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", given or "")
    if given is None:
        monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    use_one_blas_thread()
    use_one_blas_thread()
    assert child_environment()["OPENBLAS_NUM_THREADS"] == given or "1"
    assert child_environment(exports=True).get("OPENBLAS_NUM_THREADS") == given


def test_an_interrupt_ends_a_process_and_one_that_has_ended_is_let_be() -> None:
    program = "import sys, time; print(flush=True); time.sleep(1000)"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as made:
        assert made.stdout is not None
        made.stdout.readline()
        interrupt(made)
        assert made.wait(PATIENCE_S) != 0
        interrupt(made)
