"""Nothing leaves the machine: no socket is made while a model is loaded and generates, and telemetry is off."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from tests.root import ROOT

GENERATE = """
from edgegen import LLM
llm = LLM.load({bundle!r})
assert llm.generate("Once", max_new_tokens=5, seed=1).token_ids
assert list(llm.stream("Once", max_new_tokens=5))
"""
CONNECT = """
import socket
with socket.socket() as s:
    s.connect_ex(("127.0.0.1", 9))
"""
# Fails on what Python itself does; what native code does is seen by strace only.
AUDIT = """
import sys
def refuse(event, arguments):
    if event.startswith("socket."):
        raise SystemExit(f"a socket was touched: {event}")
sys.addaudithook(refuse)
"""
# onnxruntime 1.31.1 opens its first socket for telemetry some 10 seconds after it was imported.
PATIENCE_S = 16
WAIT = f"""
import time
time.sleep({PATIENCE_S})
"""
STRACE = shutil.which("strace")


def start(code: str, *before: str) -> subprocess.Popen[str]:
    """A fresh interpreter with nothing in its environment that might keep telemetry off, such as CI=true."""
    environment = {key: os.environ[key] for key in ("PATH", "HOME", "PYTHONPATH", "EDGEGEN_HOME") if key in os.environ}
    command = [*before, sys.executable, "-c", code]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def python(code: str) -> subprocess.CompletedProcess[str]:
    process = start(code)
    out, errors = process.communicate(timeout=300)
    return subprocess.CompletedProcess((), process.returncode, out, errors)


class Traced:
    """A process whose system calls for sockets are noted; with ``refuse`` each fails, and nothing can leave."""

    def __init__(self, code: str, trace: Path, *, refuse: bool = False) -> None:
        self._trace = trace
        inject = ("-e", "inject=socket:error=EPERM") * refuse
        self._process = start(code, "strace", "-f", "-e", "trace=network", *inject, "-o", str(trace))

    def calls(self) -> list[str]:
        """Return the calls for sockets of any kind but of the machine's own file system."""
        _, errors = self._process.communicate(timeout=300)
        assert self._process.returncode == 0, errors
        lines = [line.partition(" ")[2].strip() for line in self._trace.read_text().splitlines()]
        calls = [line for line in lines if not line.startswith(("+++", "---", "<..."))]
        return [call for call in calls if "AF_UNIX" not in call]


@pytest.fixture
def generate(int8_bundle: Bundle) -> str:
    return GENERATE.format(bundle=str(int8_bundle.path))


def test_python_touches_no_socket(generate: str) -> None:
    done = python(AUDIT + generate)
    assert done.returncode == 0, done.stderr


def test_that_a_socket_of_python_would_be_noticed() -> None:
    done = python(AUDIT + CONNECT)
    assert done.returncode == 1
    assert "a socket was touched" in done.stderr


needs_strace = pytest.mark.skipif(
    STRACE is None or subprocess.run([STRACE, "-o", "/dev/null", "true"], capture_output=True).returncode != 0,
    reason="strace is not installed, or may not trace here: native code's sockets would go unseen",
)


@needs_strace
def test_that_a_socket_of_any_kind_would_be_noticed(tmp_path: Path) -> None:
    calls = Traced(CONNECT, tmp_path / "trace").calls()
    assert any(call.startswith("socket(AF_INET") for call in calls)
    assert any(call.startswith("connect(") for call in calls)


@pytest.mark.release
@needs_strace
def test_no_thread_of_the_process_makes_a_socket_for_as_long_as_telemetry_would_take(
    generate: str, int8_bundle: Bundle, tmp_path: Path
) -> None:
    """Beside it, the control: ONNX Runtime by itself, which tries, where its build does, and is kept from it."""
    graph = str(int8_bundle.file("prefill.onnx"))
    bare = f"import onnxruntime; s = onnxruntime.InferenceSession({graph!r})"
    ours = Traced(generate + WAIT + generate, tmp_path / "ours")
    control = Traced(bare + WAIT, tmp_path / "control", refuse=True)
    assert ours.calls() == []
    if not any(call.startswith("socket(AF_INET") for call in control.calls()):
        pytest.skip("this build of onnxruntime makes no socket of itself: the test has nothing to show")


def test_telemetry_is_off_before_onnx_runtime_is_imported() -> None:
    code = """
import os, sys
os.environ.pop("ORT_DISABLE_TELEMETRY", None)
def check(event, arguments):
    if event == "import" and arguments[0] == "onnxruntime":
        print(os.environ.get("ORT_DISABLE_TELEMETRY"))
sys.addaudithook(check)
from edgegen import LLM
"""
    assert python(code).stdout.split()[:1] == ["1"]


def test_telemetry_cannot_be_switched_on_by_the_environment() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import edgegen.llm, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"],
        env=os.environ | {"ORT_DISABLE_TELEMETRY": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"


def test_onnx_runtime_is_imported_in_one_place_only() -> None:
    package = ROOT / "edgegen"
    importing = [path.name for path in package.rglob("*.py") if "import onnxruntime" in path.read_text("utf-8")]
    assert importing == ["ort_session.py"]
