"""``edgegen batch``: what it writes where, how it ends, killed at random moments and resumed."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from edgegen.cli import run
from edgegen.llm import LLM
from tests.cli.conftest import COMMAND, Done, Edgegen
from tests.systems import needs_posix
from tests.waiting import PATIENCE_S

LINES: list[dict[str, Any]] = [
    {"prompt": "Once upon a time", "max_new_tokens": 5, "id": "first"},
    {"messages": [{"role": "user", "content": "Hi"}], "max_new_tokens": 4},
    {"prompt": "One", "temprature": 1},
    {"custom_id": "c", "method": "POST", "url": "/v1/completions", "body": {"prompt": "The dog", "max_tokens": 3}},
]
FAULT = "line 3: 'temprature' is not an option (did you mean 'temperature'?)"


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    """A file of four lines, of which one is faulty."""
    return write(tmp_path / "prompts.jsonl", LINES)


def write(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def long_input(path: Path, count: int) -> str:
    """Lines of all kinds, each tenth an error."""
    lines: list[dict[str, Any]] = [
        {"prompt": LINES[0]["prompt"][: 3 + n % 9], "max_new_tokens": 1 + n % 17, "id": n} for n in range(count)
    ]
    for line in lines[::10]:
        line["temprature"] = 1
    return write(path, lines)


class TestAnswers:
    def test_are_in_the_output_and_the_count_on_stderr(self, edgegen: Edgegen, prompts: str, tmp_path: Path) -> None:
        done = edgegen("batch", prompts, "-o", str(tmp_path / "out.jsonl"), "--threads", "1", "--temperature", "0")
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.startswith("edgegen: 4 lines · 1 failed · 12 tokens in ".encode())
        assert done.stderr.count(b"\n") == 1
        records = read(tmp_path / "out.jsonl")
        llm = LLM.load()
        first = llm.generate("Once upon a time", max_new_tokens=5, temperature=0)
        assert records[0] == {
            "line": 1,
            "id": "first",
            "text": first.text,
            "token_ids": [*first.token_ids],
            "finish_reason": "length",
            "stopped_by": "max_new_tokens",
            "matched": None,
            "seed": None,
        }
        assert records[1]["text"] == llm.chat([{"role": "user", "content": "Hi"}], max_new_tokens=4, temperature=0).text
        assert records[2] == {"line": 3, "error": {"code": "invalid_request", "message": FAULT}}
        body = records[3]["response"]["body"]
        assert body["choices"][0]["text"] == llm.generate("The dog", max_new_tokens=3, temperature=0).text
        assert abs(body["created"] - time.time()) < 600
        assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == ["out.jsonl"]

    @pytest.mark.slow
    def test_flags_are_for_lines_that_do_not_say_otherwise(self, edgegen: Edgegen, model: str, tmp_path: Path) -> None:
        prompts = write(tmp_path / "in", [{"prompt": "a"}, {"prompt": "a", "max_new_tokens": 2}])
        flags = ["-m", model, "-n", "4", "--choice", "xyzuv", "--kv", "int8", "--suppress-tokens", "5"]
        done = edgegen("batch", prompts, "-o", "-", *flags)
        assert done.returncode == 0
        assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == ["xyzu", "xy"]

    def test_a_pipe_at_either_end(self, edgegen: Edgegen, prompts: str) -> None:
        done = edgegen("batch", "-", "-o", "-", stdin=Path(prompts).read_bytes())
        assert done.returncode == 1
        assert [json.loads(line).get("line") for line in done.stdout.splitlines()] == [1, 2, 3, None]
        assert done.stderr.startswith(b"edgegen: 4 lines")

    def test_no_lines_are_no_fault(self, edgegen: Edgegen, tmp_path: Path) -> None:
        done = edgegen("batch", write(tmp_path / "in", []), "-o", str(tmp_path / "out"))
        assert done.returncode == 0
        assert (tmp_path / "out").read_bytes() == b""

    @pytest.mark.slow
    def test_a_seed_makes_all_answers_the_same_again(self, edgegen: Edgegen, tmp_path: Path) -> None:
        prompts = write(tmp_path / "in", [{"prompt": "Once", "max_new_tokens": 6}] * 4)
        first, second = (edgegen("batch", prompts, "-o", "-", "--seed", "3") for _ in range(2))
        assert first.stdout == second.stdout
        assert len({json.loads(line)["seed"] for line in first.stdout.splitlines()}) == 4


@pytest.mark.slow
class TestKilled:
    def test_at_random_moments_nothing_is_lost_doubled_or_halved(self, tmp_path: Path) -> None:
        """tests/long/kill_batch.py does the same more often."""
        prompts, output = long_input(tmp_path / "in", 200), tmp_path / "out.jsonl"
        whole = tmp_path / "whole.jsonl"
        assert finish(prompts, whole).returncode == 1
        chance = random.Random(7)
        for _ in range(4):
            process = start(prompts, output)
            time.sleep(chance.uniform(0.3, 1.5))
            process.kill()
            process.communicate()
            assert not output.exists() or output.read_bytes() == whole.read_bytes()
        if not output.exists():
            assert finish(prompts, output).returncode == 1
        assert output.read_bytes() == whole.read_bytes()

    @needs_posix("signals for one process")
    def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(self, tmp_path: Path) -> None:
        prompts, output = long_input(tmp_path / "in", 2000), tmp_path / "out.jsonl"
        process = start(prompts, output)
        part = tmp_path / "out.jsonl.part"
        wait_for(part, 20)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
        done = part.read_bytes().count(b"\n") - 1
        assert (process.returncode, out) == (130, b"")
        # The word may come between a line and its count.
        said = [f"edgegen: {count} lines are answered; the same command goes on." for count in (done - 1, done)]
        assert err.decode().strip() in said
        assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.jsonl.part"]

    @needs_posix("ulimit")
    def test_a_full_disk_is_an_error_and_no_loss(self, edgegen: Edgegen, tmp_path: Path) -> None:
        prompts, output = long_input(tmp_path / "in", 60), tmp_path / "out.jsonl"
        limited = f"ulimit -f 4; exec {sys.executable} -m edgegen batch {prompts} -o {output} --seed 5"
        done = subprocess.run(["bash", "-c", "trap '' XFSZ; " + limited], capture_output=True, check=False)
        assert (done.returncode, done.stderr.decode().strip()) == (1, "edgegen: error: File too large")
        assert finish(prompts, output).returncode == 1
        assert finish(prompts, tmp_path / "whole").returncode == 1
        assert output.read_bytes() == (tmp_path / "whole").read_bytes()


class TestRefusals:
    def test_come_all_at_once(self, edgegen: Edgegen, capsys: pytest.CaptureFixture[str], prompts: str) -> None:
        done = edgegen("batch", "-", "-o", "out", "--ray", "local", "--threads", "0", "--top-p", "3")
        assert done.returncode == 2
        assert done.stderr.decode().splitlines() == [
            "edgegen: error: 3 problems:",
            "  - top_p: must be between 0 and 1, found 3.0",
            "  - threads: must be between 1 and 1024, found 0",
            "  - --ray reads its lines from a file, in any order: give one.",
        ]
        assert run(["batch", "nowhere", "-o", "out", "-m", "storys"]) == 2
        err = capsys.readouterr().err
        assert "  - cannot read nowhere: No such file or directory." in err
        assert "  - no bundle named or at 'storys'" in err
        assert run(["batch", prompts, "-o", prompts, "--force"]) == 2
        assert capsys.readouterr().err == f"edgegen: error: {prompts} is the input: give another output.\n"

    def test_a_finished_output_stays(self, edgegen: Edgegen, prompts: str, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("old")
        done = edgegen("batch", prompts, "-o", str(tmp_path / "out"))
        assert done.returncode == 2
        assert b"exists: add --force to replace it" in done.stderr
        assert (tmp_path / "out").read_text() == "old"

    @pytest.mark.slow
    def test_other_options_and_another_input(self, edgegen: Edgegen, tmp_path: Path) -> None:
        prompts, output = long_input(tmp_path / "in", 2000), tmp_path / "out.jsonl"
        process = start(prompts, output)
        wait_for(tmp_path / "out.jsonl.part", 20)
        done = edgegen("batch", prompts, "-o", str(output), "--seed", "5")
        assert (done.returncode, b"another process writes" in done.stderr) == (2, True)
        process.kill()
        process.communicate()
        done = edgegen("batch", prompts, "-o", str(output), "--seed", "6")
        assert (done.returncode, b"was begun otherwise: seed was 5 and is 6" in done.stderr) == (2, True)
        Path(prompts).write_text("\n" + Path(prompts).read_text())
        done = edgegen("batch", prompts, "-o", str(output), "--seed", "5")
        assert (done.returncode, b"line 2 of the input is not what" in done.stderr) == (2, True)


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def wait_for(part: Path, lines: int) -> None:
    while not part.exists() or part.read_bytes().count(b"\n") <= lines:
        time.sleep(0.01)


def start(prompts: str, output: Path) -> subprocess.Popen[bytes]:
    command = [*COMMAND, "batch", prompts, "-o", str(output), "--seed", "5"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)


def finish(prompts: str, output: Path) -> Done:
    process = start(prompts, output)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@needs_posix("pseudo-terminals of this kind")
@pytest.mark.slow
def test_at_a_terminal_a_bar_shows_lines_speed_and_time_and_goes_away(tmp_path: Path) -> None:
    from tests.cli.test_terminal import at_a_terminal

    code, out, seen = at_a_terminal("batch", long_input(tmp_path / "in", 100), "-o", str(tmp_path / "out"))
    assert (code, out) == (1, b"")
    shown = seen.decode()
    assert "/100 lines  " in shown
    assert " tok/s  " in shown
    assert " left" in shown
    last = shown.split("\r")[-2]
    assert "█" not in last
    assert last.lstrip().startswith("edgegen: 100 lines · 10 failed · ")
