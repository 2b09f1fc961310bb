"""``edgegen pull`` and ``edgegen run`` over a hub on this machine: progress, resuming, offline, and what is refused."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.catalogue import FILE, catalogue, find_offer
from edgegen.bundle.hub_name import HubReference, pulled_name
from edgegen.cli import run
from edgegen.cli.catalogue import count, table
from edgegen.cli.model_to_run import Making, bundle_to_run
from edgegen.cli.pull import to_pull
from edgegen.errors import UsageError
from tests.cli.conftest import COMMAND
from tests.export.checkpoint.layouts import write_gpt2
from tests.root import ROOT
from tests.runtime.models import write_fake_bundle
from tests.standin_hub import StandInHub
from tests.waiting import PATIENCE_S, until

Capture = pytest.CaptureFixture[str]
NAME = "smollm2-135m"
REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.mark.unit
class TestCatalogue:
    def test_sizes_are_what_the_script_computes(self) -> None:
        from docs.make_pulling import PAGE, data, page

        assert FILE.read_text("utf-8") == data(), "run python docs/make_pulling.py"
        assert PAGE.read_text("utf-8") == page(catalogue()), "run python docs/make_pulling.py"

    def test_a_download_has_two_bytes_for_each_parameter_and_once_more_for_a_head_that_is_stored_twice(self) -> None:
        assert [offer.name for offer in catalogue() if offer.download != 2 * offer.parameters] == ["qwen3-0.6b"]
        assert all(offer.int4.bundle < offer.int8.bundle < offer.download for offer in catalogue())
        assert all(size.bundle < size.memory for offer in catalogue() for size in (offer.int8, offer.int4))

    @pytest.mark.parametrize(
        "name", ["smollm2-135m", "SmolLM2-135M", "smollm2:135m", "smollm2:135m:latest", REPO, REPO.lower()]
    )
    def test_a_model_is_found_by_its_name_ollamas_or_its_id(self, name: str) -> None:
        offer = find_offer(name)
        assert offer is not None
        assert offer.hub == REPO

    @pytest.mark.parametrize(("width", "columns"), [(120, 8), (80, 8), (70, 7), (50, 5), (40, 3), (10, 3)])
    def test_the_table_fits(self, width: int, columns: int) -> None:
        lines = table(width)
        assert len(lines) == len(catalogue()) + 1
        assert len(lines[0].split()) == columns
        assert max(map(len, lines)) <= max(width, 40)

    @pytest.mark.parametrize(
        ("parameters", "text"),
        [(5_394_432, "5.4M"), (134_515_008, "135M"), (999_885_952, "1.00B"), (3_075_098_624, "3.08B"), (9999, "0.0M")],
    )
    def test_counts(self, parameters: int, text: str) -> None:
        assert count(parameters) == text


@pytest.mark.unit
class TestNames:
    @pytest.mark.parametrize(
        ("name", "hub", "bundle"),
        [
            (NAME, REPO, "smollm2-135m-int4"),
            (REPO, REPO, "smollm2-135m-int4"),
            ("gpt2", "gpt2", "gpt2-int4"),
            ("org/Some.Model_1", "org/Some.Model_1", "Some.Model_1-int4"),
            ("hf.co/org/model", "org/model", "model-int4"),
            ("https://huggingface.co/org/model", "org/model", "model-int4"),
        ],
    )
    def test_what_a_name_means(self, name: str, hub: str, bundle: str) -> None:
        assert HubReference.of(name).hub == hub
        assert pulled_name(name, "int4") == bundle

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("qwen2.5:7b", "'qwen2.5:7b' is on no list and no hub id, which is OWNER/NAME"),
            ("smollm2:135mm", "(did you mean 'smollm2-135m'?); `edgegen pull` prints the list."),
            ("a/b/c", "'a/b/c' is on no list"),
            ("org/", "'org/' is on no list"),
        ],
    )
    def test_what_is_no_name_is_told(self, name: str, message: str) -> None:
        with pytest.raises(UsageError) as caught:
            HubReference.of(name)
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("name", "hub", "scheme", "gguf", "bundle"),
        [
            ("hf.co/org/model-GGUF:Q4_K_M", "org/model-GGUF", None, "Q4_K_M", "model-GGUF-Q4_K_M-int8"),
            ("https://hf.co/org/model:iq4_xs", "org/model", None, "IQ4_XS", "model-IQ4_XS-int8"),
            ("org/model:sub/model.Q8_0.gguf", "org/model", None, "sub/model.Q8_0.gguf", "model.Q8_0-int8"),
            ("org/model:m-Q8_0-00001-of-00002.gguf", "org/model", None, "m-Q8_0-00001-of-00002.gguf", "m-Q8_0-int8"),
            ("org/model:latest", "org/model", None, None, "model-int8"),
            ("huggingface.co/org/model:INT4", "org/model", "int4", None, "model-int4"),
            (f"hf.co/{REPO}:fp32", REPO, "fp32", None, "smollm2-135m-fp32"),
        ],
    )
    def test_what_follows_the_colon(
        self, name: str, hub: str, scheme: str | None, gguf: str | None, bundle: str
    ) -> None:
        reference = HubReference.of(name)
        assert (reference.hub, reference.scheme, reference.gguf) == (hub, scheme, gguf)
        assert pulled_name(reference.hub, reference.scheme or "int8", reference.gguf) == bundle

    @pytest.mark.parametrize("name", ["org/model:", "org/model:../x.gguf", "org/model:a b", "org/model:-x"])
    def test_what_cannot_follow_the_colon(self, name: str) -> None:
        with pytest.raises(UsageError, match="what follows the colon is"):
            HubReference.of(name)

    def test_a_folder_is_for_export(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"pull downloads: run `edgegen export "):
            to_pull(str(tmp_path))


@pytest.mark.unit
def test_what_is_there_is_run_in_whatever_scheme(edgegen_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # which the command sets
    write_fake_bundle(edgegen_home / "bundles" / "smollm2-135m-int4")
    for name in ("smollm2-135m", "smollm2:135m", REPO, "smollm2-135m-int4"):
        assert bundle_to_run(name, Making()) == "smollm2-135m-int4"
    assert bundle_to_run("smollm2-135m", Making("int4")) == "smollm2-135m-int4"
    assert bundle_to_run("stories", Making()) == "stories"
    with pytest.raises(
        UsageError, match=f"is no bundle yet: run `edgegen export {ROOT / 'models/stories'} --int8` first"
    ):
        bundle_to_run(str(ROOT / "models/stories"), Making())


def test_pull_alone_prints_the_list(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["pull"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(catalogue()) + 1] == table(80)
    assert max(map(len, lines)) <= 80


@dataclass(frozen=True)
class Hub:
    """The stand-in hub, and a way to run the command line with it."""

    standin: StandInHub
    environment: dict[str, str]
    home: Path

    def edgegen(self, *arguments: str, stdin: str = "", **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*COMMAND, *arguments],
            env=self.environment | more,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    @property
    def bundle(self) -> Path:
        return self.home / "bundles" / f"{NAME}-int8"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """The embedded model's checkpoint, 10.8 MB, under the id of a model of the list."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "export")])
    with StandInHub({REPO: ROOT / "models/stories"}) as standin:
        home = {"PYTHONPATH": path, "EDGEGEN_HOME": str(tmp_path / "home")}
        yield Hub(standin, standin.environment(tmp_path / "hf") | home, tmp_path / "home")


@pytest.mark.slow
def test_a_model_is_pulled_by_its_name_once_and_run(hub: Hub, tmp_path: Path) -> None:
    tokenizer = ROOT / "models/stories/tokenizer.json"
    tiny = write_gpt2(tmp_path / "tiny", layout="original", vocab_size=2048, tokenizer=tokenizer)
    hub.standin.repos[REPO] = tiny
    options = ("-n", "5", "--temperature", "0")
    pulled = hub.edgegen("run", NAME, "Once upon a time", *options)  # calibrated as by export, so without --fast
    assert (pulled.returncode, pulled.stderr) == (0, "")
    assert Bundle.open(hub.bundle).manifest.source.id == REPO
    asked = len(hub.standin.requests)
    again = hub.edgegen("pull", "smollm2:135m")
    assert (again.returncode, again.stdout) == (0, f"{hub.bundle}\n")
    assert again.stderr == f"edgegen: {NAME}-int8 is there already; --force pulls it again.\n"
    for name in (NAME, f"{NAME}-int8"):
        answer = hub.edgegen("run", name, *options, stdin="Once upon a time\n")
        assert (answer.returncode, answer.stdout) == (0, pulled.stdout)
    assert len(hub.standin.requests) == asked  # nothing is asked for what is there


def test_programs_read_the_progress_in_lines_of_json(hub: Hub, tmp_path: Path) -> None:
    tokenizer = ROOT / "models/stories/tokenizer.json"
    tiny = write_gpt2(tmp_path / "tiny", layout="original", vocab_size=2048, tokenizer=tokenizer)
    hub.standin.repos[REPO] = tiny
    done = hub.edgegen("pull", NAME, "--fast", "--progress", "json")
    assert (done.returncode, done.stdout) == (0, f"{hub.bundle}\n")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    stages = [*dict.fromkeys(line["stage"] for line in lines)]
    assert stages[0] == f"opening {REPO}"
    assert stages[-2:] == ["comparing with the checkpoint", "verifying"]
    weights = tiny / "model.safetensors"
    downloaded = [line for line in lines if line.get("file") == weights.name]
    assert {line["sha256"] for line in downloaded} == {hashlib.sha256(weights.read_bytes()).hexdigest()}
    size = weights.stat().st_size
    assert (downloaded[0]["completed"], downloaded[-1]["completed"], downloaded[-1]["total"]) == (0, size, size)
    told = [line for line in lines if line["stage"] == "writing int8 weights" and "total" in line]
    assert told[-1]["completed"] == told[-1]["total"] > 0


def test_errors_stay_lines_of_text_beside_progress_in_json(hub: Hub) -> None:
    done = hub.edgegen("pull", "smollm2-13m", "--progress", "json")
    first, error, note = done.stderr.splitlines()
    assert json.loads(first) == {"stage": "opening smollm2-13m"}
    assert error.startswith("edgegen: error: ")
    assert note.startswith("edgegen: note: ")


def test_without_a_network_it_is_one_sentence(hub: Hub) -> None:
    hub.standin.stop()
    for verb in ("pull", "run"):
        done = hub.edgegen(verb, NAME)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"edgegen: error: {hub.standin.url} cannot be reached and {REPO} is not in the cache: ")
    assert not hub.bundle.exists()


def test_what_the_hub_does_not_have_is_told_with_the_nearest_name(hub: Hub) -> None:
    done = hub.edgegen("pull", "smollm2-13m")
    assert done.returncode == 1
    error, note = done.stderr.splitlines()
    assert "shows no model of that id" in error
    assert note == "edgegen: note: `edgegen pull` lists models by name (did you mean 'smollm2-135m'?)"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind")
def test_a_download_shows_its_progress_and_goes_on_where_it_was_interrupted(hub: Hub) -> None:
    import pty
    import termios

    hub.standin.stalls_after = 10_600_000  # huggingface_hub writes pieces of 10 MiB
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    command = [*COMMAND, "pull", NAME, "--fast"]
    process = subprocess.Popen(command, env=hub.environment, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    assert hub.standin.stalled.wait(PATIENCE_S)
    written = hub.home.parent / "hf"
    assert until(lambda: any(file.stat().st_size for file in written.rglob("*.incomplete")))
    process.send_signal(signal.SIGINT)
    seen = b""
    with suppress(OSError):  # Linux says so that the other end has closed
        while piece := os.read(master, 65536):
            seen += piece
    os.close(master)
    assert process.wait(PATIENCE_S) == 130
    assert b"model.safetensors: " in seen
    assert b"config.json: " not in seen  # small files have no bar
    assert not hub.bundle.exists()

    hub.standin.stalls_after = None
    done = hub.edgegen("pull", NAME, "--fast")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{hub.bundle}\n", "")
    assert hub.standin.ranges == [0, 10 << 20]
    assert hub.edgegen("verify", f"{NAME}-int8").returncode == 0
