"""How the command begins and what may end it there: Ctrl-C amid imports, and too little memory."""

import subprocess
import sys

import pytest

from edgegen.cli import run
from tests.cli.conftest import COMMAND

INTERRUPTED = """
import signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

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
    command = [sys.executable, "-c", INTERRUPTED.format(module=module)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
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
