"""``--max-memory``: the plan is printed, kept to, and refused before anything is loaded."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from edgegen.benchmark.memory_forecast import PYTHON, uncounted_memory
from edgegen.cli import run
from edgegen.cli.max_memory import rest_of, within_memory
from edgegen.errors import UsageError
from edgegen.options.engine import EngineOptions
from tests.cli.conftest import COMMAND, Edgegen
from tests.runtime.system.recorded import Recorded, windows

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the data of a process")
PLAN = re.compile(r"edgegen: memory: about (\d+) MB of (\d+) MB \(.*\): context of (\d+) tokens.*\.\n")
LONG = "Once upon a time there was a little girl. " * 40
"""About 400 tokens of the embedded model, whose context is 512."""


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--kv", "float32")], ids=["int8", "float32"])
def test_generate_keeps_to_it_under_a_limit_of_the_system(flags: tuple[str, ...]) -> None:
    """``ulimit -d`` fails what takes more private memory; the peak, weights and libraries included, is below it too."""
    limit = 115_000_000
    command = [*COMMAND, "generate", LONG, "-n", "60", "--max-memory", str(limit), "--stats", *flags]
    script = f"ulimit -d {limit // 1024}; exec {shlex.join(command)}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    plan = PLAN.match(done.stderr)
    assert plan, done.stderr
    peak = re.search(r"peak memory (\d+) MB", done.stderr)
    assert peak
    assert int(peak[1]) * 1_000_000 <= limit
    assert int(peak[1]) == pytest.approx(int(plan[1]), rel=0.15)


def test_what_does_not_fit_is_refused_before_it_is_loaded(edgegen: Edgegen, tmp_path: Path) -> None:
    (tmp_path / "cwd" / "prompts.jsonl").write_text('{"prompt": "a"}\n')
    for command in (("generate", "a"), ("batch", "prompts.jsonl", "-o", "out.jsonl"), ("serve", "--port", "0")):
        done = edgegen(*command, "--max-memory", "50MB")
        assert done.returncode == 2
        assert done.stdout == b""
        assert re.search(rb"stories needs at least \d+ MB .*and --max-memory allows 50 MB", done.stderr)
    assert not (tmp_path / "cwd" / "out.jsonl").exists()


def test_a_request_that_does_not_fit_the_planned_context_is_refused(edgegen: Edgegen) -> None:
    flags = ("--max-memory", "99MB", "--kv", "float32", "-n", "100")
    done = edgegen("generate", LONG, *flags)
    plan = PLAN.match(done.stderr.decode())
    assert plan, done.stderr
    assert int(plan[3]) < 500
    assert done.returncode == 2
    assert b"kv_budget allows" in done.stderr
    assert edgegen("generate", "Once", "--max-memory", "99MB", "--kv", "float32", "-n", "10").returncode == 0


def test_batch_plans_for_its_sequences(edgegen: Edgegen, tmp_path: Path) -> None:
    (tmp_path / "cwd" / "prompts.jsonl").write_text('{"prompt": "a"}\n' * 3)
    done = edgegen("batch", "prompts.jsonl", "-o", "-", "--max-memory", "200MB", "--max-new-tokens", "4")
    assert done.returncode == 0, done.stderr
    assert b"for 8 sequences at once, int8 KV cache" in done.stderr
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 3


@pytest.mark.unit
def test_what_libraries_take_elsewhere_than_on_linux_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """The recorded Windows process has 287 MB when its libraries are loaded, of which forecasts know 60."""
    more = 287_002_624 - PYTHON
    assert (uncounted_memory(windows(), load=int), uncounted_memory(Recorded("linux"))) == (more, 0)
    assert uncounted_memory(Recorded("darwin"), load=int) == 0
    assert rest_of(10**9, 5, Recorded("linux")) - rest_of(10**9, 5, windows()) == more
    with click.Context(click.Command("generate")):
        options = within_memory(400_000_000, "stories", EngineOptions(), source=windows())
        assert "287 MB Python and ONNX Runtime" in capsys.readouterr().err
        assert options.kv_budget
        with pytest.raises(UsageError, match="287 MB Python and ONNX Runtime"):
            within_memory(300_000_000, "stories", EngineOptions(), source=windows())


@pytest.mark.unit
def test_two_limits_of_a_server_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--max-memory", "1GB", "--memory-budget", "1GB"]) == 2
    assert "--max-memory and --memory-budget exclude each other" in capsys.readouterr().err


@pytest.mark.unit
def test_ray_has_machines_of_its_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ["--ray", "local", "--max-memory", "1GB", "-o", str(tmp_path / "out")]
    assert run(["batch", str(tmp_path / "nowhere.jsonl"), *flags]) == 2
    assert "--max-memory is for this machine" in capsys.readouterr().err
