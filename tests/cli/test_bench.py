"""``edgegen bench``: the table, the JSON, the picture, what is refused before anything is measured, how it ends."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.cli import run
from edgegen.cli.bench_plot import check_plot, plot_decode
from edgegen.cli.bench_table import bench_table
from edgegen.errors import EdgegenError
from edgegen.graph.external_data import bytes_read
from tests.cli.conftest import COMMAND, Edgegen
from tests.runtime.benchmark.rounds import BENCHMARK, ROUND
from tests.runtime.models import write_fake_bundle
from tests.systems import needs_posix
from tests.waiting import PATIENCE_S

SMALL = ["--prefill", "4,16", "--context", "8,600", "--batch", "1,2", "--repeats", "2", "--threads", "1"]
TABLE = """\
                                       mine  other
decode at 32, tokens/s        250 (125-250)      -
decode at 256, tokens/s       200 (100-200)    200
prefill of 32, tokens/s    2000 (1000-2000)   2000
prefill of 128, tokens/s   4000 (2000-4000)   4000
batch of 1, tokens/s                    250      -
batch of 4, tokens/s                    500      -
start to first token, s    0.80 (0.80-1.00)   0.80
load, s                                0.20   0.20
memory, MB                              150      -
peak memory, MB                         400      -
weights, MB                             100    100
KV cache, MB                           2.00   2.00
read per token at 32, MB                132      -
read per token at 256, MB               356    356
memory bandwidth, GB/s     50.0 (25.0-50.0)   50.0
share of it at 32, %                   66.0      -
share of it at 256, %                   142    142
overhead per step, µs         100 (100-500)    400
CPU after a step, ms                   40.0   40.0
CPU when idle, %                       0.00   0.00
mine has no room for a prompt of 512 and a token."""


class TestAnswers:
    def test_the_table_has_a_line_for_each_figure_and_a_column_for_each_model(self) -> None:
        one = replace(ROUND, decode=ROUND.decode[1:], batch=(), memory_bytes=None, peak_bytes=None)
        other = replace(BENCHMARK, model="other", left_out=(), rounds=(one,))
        assert bench_table([BENCHMARK, other]) == TABLE

    @pytest.mark.slow
    def test_people_get_a_table_and_are_told_where_it_holds(self, edgegen: Edgegen, model: str) -> None:
        done = edgegen("bench", "-m", "stories", "-m", model, "-m", "stories", *SMALL)
        assert (done.returncode, done.stderr) == (0, b"")
        head, *lines, left_out, other, nothing, machine = done.stdout.decode().splitlines()
        assert head.split() == ["stories", model]
        labels = [line.split("  ")[0] for line in lines]
        assert labels[:5] == [
            "decode at 8, tokens/s",
            "prefill of 4, tokens/s",
            "prefill of 16, tokens/s",
            "batch of 1, tokens/s",
            "batch of 2, tokens/s",
        ]
        assert labels[-1] == "CPU when idle, %"
        assert (left_out, other) == (
            "stories has no room for 32 tokens after 600.",
            f"{model} has no room for 32 tokens after 600.",
        )
        assert nothing == ""
        assert ", 1 thread, " in machine
        assert "; edgegen " in machine
        assert ", onnxruntime " in machine
        assert ", kernels: " in machine

    def test_json_has_figures_and_every_single_measurement(
        self, edgegen: Edgegen, model: str, int8_bundle: Bundle
    ) -> None:
        done = edgegen("bench", "-m", model, *SMALL, "--kv", "int8", "--prefill-chunk", "8", "--json")
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.count(b"\n") == 1
        record = json.loads(done.stdout)
        assert set(record) == {"edgegen", "machine", "options", "results"}
        assert set(record["machine"]) == {"processor", "system", "python", "kernels"}
        assert record["options"] == {
            "prefill": [4, 16],
            "contexts": [8, 600],
            "batches": [1, 2],
            "repeats": 2,
            "threads": 1,
            "kv": "int8",
            "prefill_chunk": 8,
            "kernels": "auto",
        }
        (result,) = record["results"]
        assert (result["model"], result["threads"], result["kv"]) == (model, 1, "int8")
        assert result["left_out"] == ["32 tokens after 600"]
        assert result["weights_bytes"] == int8_bundle.file("weights.data").stat().st_size
        assert result["kv_bytes"] == 17 * int8_bundle.variant_with("int8").kv.bytes_per_token
        (decode,) = result["decode"]
        assert decode["context"] == 8
        read = bytes_read(int8_bundle.file(int8_bundle.variant_with("int8").decode).read_bytes())
        assert decode["bytes_per_token"] == read + 8 * result["kv_bytes_per_token"]
        for spread in ("tokens_per_second", "overhead_seconds", "bandwidth_share"):
            assert 0 < decode[spread]["low"] <= decode[spread]["median"] <= decode[spread]["high"]
        assert [one["tokens"] for one in result["prefill"]] == [4, 16]
        assert [(one["rows"], one["context"]) for one in result["batch"]] == [(1, 8), (2, 8)]
        assert len(result["rounds"]) == 2
        for each in result["rounds"]:
            assert len(each["decode"][0]["step_seconds"]) == 32
            assert result["load_seconds"]["low"] <= each["load_seconds"] <= result["load_seconds"]["high"]

    @needs_posix("signals for one process")
    def test_an_interrupt_ends_it_at_once(self, model: str) -> None:
        command = [*COMMAND, "bench", "-m", model, "--repeats", "1000"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        while subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, check=False).returncode:
            time.sleep(0.05)  # until it has started a process to measure in
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out, errors.strip()) == (130, b"", b"")


class TestPlot:
    def test_is_a_png(self, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib", reason="the picture is drawn by matplotlib, which is not installed")
        path = tmp_path / "plot.png"
        assert check_plot(path) == []
        plot_decode([BENCHMARK, BENCHMARK], path)
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        with pytest.raises(EdgegenError, match="was not written"):
            plot_decode([BENCHMARK], tmp_path / "nowhere" / "plot.png")

    def test_is_drawn_beside_the_table(
        self, capsys: pytest.CaptureFixture[str], int8_bundle: Bundle, tmp_path: Path
    ) -> None:
        pytest.importorskip("matplotlib", reason="the picture is drawn by matplotlib, which is not installed")
        assert run(["bench", "-m", str(int8_bundle.path), *SMALL, "--plot", str(tmp_path / "plot.png")]) == 0
        assert "decode at 8" in capsys.readouterr().out
        assert (tmp_path / "plot.png").stat().st_size > 1000

    @pytest.mark.skipif(find_spec("matplotlib") is not None, reason="matplotlib is installed")
    def test_without_matplotlib_the_extra_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["bench", "--plot", "plot.png"]) == 2
        assert 'a plot needs matplotlib: run `pip install "edgegen[plot]"`' in capsys.readouterr().err


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "messages"),
        [
            (["--prefill", "many"], ["prefill: whole numbers with commas between them expected, found 'many'"]),
            (["--context", "1,,2"], ["context: whole numbers with commas between them expected, found '1,,2'"]),
            (["--batch", ""], ["batch: whole numbers with commas between them expected, found ''"]),
            (["--context", "-32"], ["context: must be at least 1, found -32"]),
            (
                [
                    *("-m", "storys", "-m", "nowhere", "--prefill", "0,8", "--batch", "-1,x", "--repeats", "0"),
                    *("--threads", "0", "--plot", "none/plot.pdf"),
                ],
                [
                    "batch: whole numbers with commas between them expected, found '-1,x'",
                    "prefill: must be at least 1, found 0",
                    "repeats: must be at least 1, found 0",
                    "threads: must be between 1 and 1024, found 0",
                    "the plot is a PNG picture: give it a name that ends with .png, not 'plot.pdf'",
                    "the plot none/plot.pdf cannot be written: its folder does not exist",
                    "no bundle named or at 'storys' (did you mean 'stories'?)",
                    "no bundle named or at 'nowhere'",
                ],
            ),
        ],
    )
    def test_come_all_at_once_before_anything_is_measured(
        self, capsys: pytest.CaptureFixture[str], arguments: list[str], messages: list[str]
    ) -> None:
        assert run(["bench", *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        found = [line for line in err.removeprefix("edgegen: error: ").splitlines() if "matplotlib" not in line]
        if len(messages) > 1:
            assert found.pop(0).endswith(" problems:")
        for line, message in zip(found, messages, strict=True):
            assert line.removeprefix("  - ").startswith(message)

    def test_bundles_that_are_not_there_are_a_failure_each(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["bench", "-m", "storys", "-m", "nowhere"]) == 1
        err = capsys.readouterr().err
        assert err.startswith("edgegen: error: 2 problems:\n  - no bundle named or at 'storys'")
        assert "\n  - no bundle named or at 'nowhere'" in err

    def test_a_kind_of_keys_and_values_that_a_bundle_lacks(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        bundle = write_fake_bundle(tmp_path / "fake")
        assert run(["bench", "-m", str(bundle.path), "--kv", "int8", "--threads", "-1"]) == 2
        err = capsys.readouterr().err
        assert "threads: must be between 1 and 1024, found -1" in err
        assert "has no variant with a KV cache in int8" in err

    def test_a_file_that_is_damaged(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        bundle = write_fake_bundle(tmp_path / "fake")
        bundle.file("weights.data").write_bytes(b"")
        assert run(["bench", "-m", str(bundle.path)]) == 1
        assert "weights.data: 0 bytes, but the manifest says" in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    code = "from edgegen.cli import run; assert run(['bench', '--help']) == 0; import sys"
    heavy = "assert not {'numpy', 'onnxruntime', 'tokenizers', 'matplotlib'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", f"{code}; {heavy}"], check=True, capture_output=True)
