"""How the command begins and what may end it there: Ctrl-C amid imports, and too little memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from edgegen.cli import run
from tests.cli.conftest import COMMAND

INTERRUPTED = """
import signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            {interrupt}

sys.meta_path.insert(0, Interrupts())
sys.argv[1:] = ["generate", "Once", "-n", "2"]
from edgegen.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "module",
    [
        "edgegen.cli",
        "click",
        "edgegen.errors",
        "edgegen.cli.generate",
        "edgegen.options.generation",
        "numpy",
        "onnxruntime",
    ],
)
def test_ctrl_c_amid_an_import_leaves_with_130(module: str) -> None:
    leaves_with_130("-c", INTERRUPTED.format(module=module, interrupt="signal.raise_signal(signal.SIGINT)"))


@pytest.mark.parametrize("module", ["edgegen.cli", "edgegen.cli.generate", "onnxruntime"])
def test_ctrl_c_amid_a_text_of_code_leaves_with_130(module: str, tmp_path: Path) -> None:
    """A dataclass is made of one. With -m, Python would end with the signal then, whatever the code."""
    code = INTERRUPTED.format(module=module, interrupt='exec("raise KeyboardInterrupt")')
    (tmp_path / "interrupted.py").write_text(code)
    leaves_with_130("-m", "interrupted", cwd=tmp_path)


@pytest.mark.parametrize("module", ["numpy", "onnxruntime"])
def test_ctrl_c_amid_a_native_module_leaves_with_130(module: str) -> None:
    """It says that it cannot be imported."""
    interrupt = 'raise ImportError("initialization failed") from KeyboardInterrupt()'
    leaves_with_130("-c", INTERRUPTED.format(module=module, interrupt=interrupt))


def leaves_with_130(*arguments: str, cwd: Path | None = None) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, check=False, timeout=300, cwd=cwd)
    assert (done.returncode, done.stdout) == (130, b"")
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="an address space is limited on Linux")
@pytest.mark.parametrize("kilobytes", [100_000, 150_000, 200_000, 290_000])
def test_an_address_space_in_which_libraries_would_crash_is_refused(kilobytes: int) -> None:
    command = ["sh", "-c", f'ulimit -v {kilobytes}; exec "$@"', "sh", *COMMAND, "generate", "Once", "-n", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    may = f"this process may map {kilobytes * 1024 / 1e6:.0f} MB of memory (ulimit -v)"
    said = f"{may}, and needs at least 300 MB to begin"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"edgegen: error: {said}: raise the limit")


def test_memory_that_runs_out_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def use_up(argv: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr("edgegen.cli.app.main", use_up)
    assert run(["generate", "Once"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("edgegen: error: there is not enough memory: see what it takes with `edgegen info BUNDLE`")
