"""``-m FILE.gguf``, ``-m CHECKPOINT_FOLDER`` and ``-hf OWNER/NAME:QUANT``: what is no bundle yet becomes one, once."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.export_record import CheckpointFiles
from edgegen.errors import BundleNotFoundError
from edgegen.llm import LLM
from tests.cli.conftest import COMMAND, SEARCH, Edgegen
from tests.export.checkpoint.gguf_bytes import LETTERS, gguf_bytes, write_whole_llama
from tests.export.checkpoint.layouts import write_gpt2
from tests.root import ROOT
from tests.standin_hub import StandInHub
from tests.waiting import PATIENCE_S

TOKENIZER = ROOT / "models/stories/tokenizer.json"
ASK = ("abc", "-n", "5", "--temperature", "0")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """A GGUF file with a tokenizer, in the folder that commands run in once ``edgegen`` is used."""
    return write_whole_llama(tmp_path / "model.gguf", LETTERS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint's folder."""
    return write_gpt2(tmp_path / "tiny", layout="original", vocab_size=2048, tokenizer=TOKENIZER)


def bundles(home: Path) -> list[str]:
    """The names of the store."""
    root = home / "bundles"
    return sorted(path.name for path in root.iterdir() if not path.name.startswith(".")) if root.is_dir() else []


@pytest.mark.slow
class TestOnce:
    def test_a_gguf_file_is_exported_once_and_found_again(
        self, edgegen: Edgegen, gguf: Path, edgegen_home: Path
    ) -> None:
        first = edgegen("generate", "-m", str(gguf), "--fast", "--yes", *ASK)
        assert first.returncode == 0, first.stderr
        assert f"edgegen: exporting {gguf} to model-int8, once.\n".encode() in first.stderr
        again = edgegen("generate", "-m", str(gguf), *ASK)
        assert (again.returncode, again.stdout) == (0, first.stdout)
        assert again.stderr.decode() == f"edgegen: {gguf} was exported before: this is model-int8.\n"
        run = edgegen("run", str(gguf), *ASK)
        assert (run.returncode, run.stdout) == (0, first.stdout)
        talked = edgegen("chat", "-m", str(gguf), "--completion", *ASK[1:], stdin=b"abc\n")
        assert (talked.returncode, talked.stdout) == (0, first.stdout)
        assert bundles(edgegen_home) == ["model-int8"]

    def test_a_folder_in_other_bits_is_another_bundle(self, edgegen: Edgegen, folder: Path, edgegen_home: Path) -> None:
        for scheme in ("int8", "int4", "fp32"):
            done = edgegen("run", str(folder), ASK[0], "--fast", f"--{scheme}", "-y", *ASK[1:])
            assert done.returncode == 0, done.stderr
        assert bundles(edgegen_home) == ["tiny-fp32", "tiny-int4", "tiny-int8"]
        found = edgegen("generate", "-m", str(folder), "--int4", *ASK)
        assert b"this is tiny-int4." in found.stderr
        found = edgegen("generate", "-m", str(folder), *ASK)
        assert b"this is tiny-int8." in found.stderr

    def test_what_export_has_made_is_found(self, edgegen: Edgegen, folder: Path, edgegen_home: Path) -> None:
        assert edgegen("export", str(folder), "--fast").returncode == 0
        done = edgegen("generate", "-m", str(folder), *ASK)
        assert (done.returncode, bundles(edgegen_home)) == (0, ["tiny-int8"])

    def test_a_moved_or_touched_file_is_the_same_and_a_changed_one_is_not(
        self, edgegen: Edgegen, gguf: Path, edgegen_home: Path
    ) -> None:
        assert edgegen("generate", "-m", str(gguf), "--fast", "--yes", *ASK).returncode == 0
        os.utime(gguf, ns=(1, 1))
        assert b"this is model-int8." in edgegen("generate", "-m", str(gguf), *ASK).stderr
        moved = gguf.rename(gguf.with_name("moved.gguf"))
        assert b"this is model-int8." in edgegen("generate", "-m", str(moved), *ASK).stderr

        write_whole_llama(moved, LETTERS, seed=1)
        refused = edgegen("generate", "-m", str(moved), *ASK)
        assert refused.returncode == 2
        assert b"has changed since it was exported; run `edgegen export " in refused.stderr
        anew = edgegen("generate", "-m", str(moved), "--fast", "--yes", *ASK)
        assert anew.returncode == 0, anew.stderr
        assert bundles(edgegen_home) == ["model-int8"]  # which is that of this place
        assert edgegen("verify", "model-int8").returncode == 0

    def test_a_file_that_changed_where_it_was_replaces_its_own_bundle_alone(
        self, edgegen: Edgegen, gguf: Path, edgegen_home: Path
    ) -> None:
        assert edgegen("generate", "-m", str(gguf), "--fast", "--yes", *ASK).returncode == 0
        before = Bundle.open(edgegen_home / "bundles/model-int8").digest
        write_whole_llama(gguf, LETTERS, seed=1)
        assert edgegen("generate", "-m", str(gguf), "--fast", "--yes", *ASK).returncode == 0
        assert bundles(edgegen_home) == ["model-int8"]
        assert Bundle.open(edgegen_home / "bundles/model-int8").digest != before

    def test_another_file_of_the_same_name_gets_a_name_of_its_own(
        self, edgegen: Edgegen, gguf: Path, edgegen_home: Path, tmp_path: Path
    ) -> None:
        assert edgegen("generate", "-m", str(gguf), "--fast", "--yes", *ASK).returncode == 0
        (tmp_path / "other").mkdir()
        other = write_gpt2(tmp_path / "other/model", layout="original", vocab_size=2048, tokenizer=TOKENIZER)
        done = edgegen("generate", "-m", str(other), "--fast", "--yes", *ASK)
        assert done.returncode == 0, done.stderr
        assert bundles(edgegen_home) == ["model-int8", "model-int8-2"]
        assert b"this is model-int8-2." in edgegen("generate", "-m", str(other), *ASK).stderr

    def test_a_bundle_that_was_replaced_by_hand_is_not_taken_for_the_files(
        self, edgegen: Edgegen, gguf: Path, folder: Path, edgegen_home: Path
    ) -> None:
        assert edgegen("generate", "-m", str(gguf), "--fast", "--yes", *ASK).returncode == 0
        target = str(edgegen_home / "bundles/model-int8")
        assert edgegen("export", str(folder), "--fast", "--force", "-o", target).returncode == 0
        assert edgegen("generate", "-m", str(gguf), *ASK).returncode == 2

    def test_two_processes_at_once_export_once(self, gguf: Path, edgegen_home: Path) -> None:
        command = [*COMMAND, "generate", "-m", str(gguf), "--yes", *ASK]
        both = [
            subprocess.Popen(command, env=os.environ | SEARCH, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(2)
        ]
        said = [process.communicate(timeout=PATIENCE_S) for process in both]
        assert [process.returncode for process in both] == [0, 0], said
        assert said[0][0] == said[1][0]
        assert bundles(edgegen_home) == ["model-int8"]
        assert [path.name for path in (edgegen_home / "bundles/model-int8").glob("v*")] == ["v1"]
        assert not [path for path in (edgegen_home / "bundles").iterdir() if path.name.endswith(".lock")]

    def test_a_damaged_record_costs_another_export_and_no_more(
        self, edgegen: Edgegen, gguf: Path, edgegen_home: Path
    ) -> None:
        assert edgegen("generate", "-m", str(gguf), "--fast", "--yes", *ASK).returncode == 0
        (record,) = (edgegen_home / "exported").iterdir()
        for text in ("{", "[]", json.dumps({"bundle": "model-int8"}), ""):
            record.write_text(text)
            assert edgegen("generate", "-m", str(gguf), *ASK).returncode == 2
        done = edgegen("generate", "-m", str(gguf), "--fast", "--yes", *ASK)
        assert (done.returncode, bundles(edgegen_home)) == (0, ["model-int8", "model-int8-2"])


class TestAsked:
    def test_without_a_terminal_it_is_one_sentence_with_the_command(
        self, edgegen: Edgegen, gguf: Path, folder: Path, edgegen_home: Path
    ) -> None:
        for verb in (("generate", "-m"), ("chat", "-m"), ("run",), ("run", "-m"), ("serve", "--port", "0", "-m")):
            for place in (gguf, folder):
                done = edgegen(*verb, str(place), "--int4")
                assert (done.returncode, done.stdout) == (2, b"")
                assert done.stderr.decode() == (
                    f"edgegen: error: {place} is no bundle yet: run `edgegen export {place} --int4` first, or add "
                    "--yes, which does that once.\n"
                )
        assert bundles(edgegen_home) == []

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind")
    @pytest.mark.parametrize("answer", ["y", "n"])
    def test_a_terminal_is_asked_with_what_it_takes(self, folder: Path, edgegen_home: Path, answer: str) -> None:
        import pty
        import termios

        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, 200))
        command = [*COMMAND, "generate", "-m", str(folder), "--fast", *ASK]
        process = subprocess.Popen(command, env=os.environ | SEARCH, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        seen = b""
        while b"[Y/n]" not in seen:
            seen += os.read(master, 65536)
        assert f"Export {folder} to tiny-int8, once: about 1 second, ".encode() in seen
        assert b" of memory and " in seen
        os.write(master, f"{answer}\n".encode())
        with suppress(OSError):  # Linux says so that the other end has closed
            while piece := os.read(master, 65536):
                seen += piece
        os.close(master)
        assert process.wait(PATIENCE_S) == (0 if answer == "y" else 1)
        assert bundles(edgegen_home) == (["tiny-int8"] if answer == "y" else [])
        assert (b"edgegen: nothing was exported." in seen) == (answer == "n")


class TestRefused:
    def test_flags_of_an_export_do_not_go_with_a_bundle(self, edgegen: Edgegen, model: str) -> None:
        for flag in ("--int4", "--fast"):
            done = edgegen("generate", "-m", model, flag, *ASK)
            assert done.returncode == 2
            assert f"{flag} is for models that are exported first, and {model} is a bundle" in done.stderr.decode()
        two = edgegen("generate", "-m", model, "--int4", "--int8", *ASK)
        assert b"--int8 and --int4 contradict each other" in two.stderr

    def test_an_adapter_a_tower_and_a_part_that_is_missing(
        self, edgegen: Edgegen, tmp_path: Path, gguf: Path, edgegen_home: Path
    ) -> None:
        adapter = tmp_path / "adapter"
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
        (adapter / "adapter_model.safetensors").write_bytes(b"")
        tower = tmp_path / "mmproj-model.gguf"
        tower.write_bytes(gguf_bytes({"general.architecture": "clip", "general.type": "mmproj"}))
        part = shutil.copy(gguf, tmp_path / "big-00001-of-00003.gguf")
        for place, said in (
            (adapter, "adapter"),
            (tower, "it holds a tower for pictures or sound, not a language model"),
            (part, "is one of 3 parts; missing beside it: big-00002-of-00003.gguf, big-00003-of-00003.gguf"),
        ):
            done = edgegen("generate", "-m", str(place), "--yes", *ASK)
            assert done.returncode == 1
            assert said in done.stderr.decode()
        assert bundles(edgegen_home) == []

    def test_a_file_that_is_none_of_ours_or_is_not_there(
        self, edgegen: Edgegen, folder: Path, gguf: Path, tmp_path: Path
    ) -> None:
        weights = folder / "model.safetensors"
        assert weights.is_file()
        for place, said in (
            (
                weights,
                f"is a file that edgegen does not run: give a GGUF file, or the folder of a checkpoint, {folder}",
            ),
            (gguf.with_name("modl.gguf"), "there is no file "),
            (gguf.with_name("modl.gguf"), "(did you mean 'model.gguf'?)"),
            (tmp_path / "cwd", "is a folder, but no bundle: it has no edgegen.json."),
        ):
            done = edgegen("generate", "-m", str(place), "--yes", *ASK)
            assert done.returncode == 1
            assert said in done.stderr.decode()

    def test_other_verbs_name_the_command(self, edgegen: Edgegen, gguf: Path, folder: Path) -> None:
        for place in (gguf, folder):
            for arguments in (
                ("score", "-m", str(place), "-f", str(TOKENIZER)),
                ("info", str(place)),
                ("bench", "-m", str(place)),
            ):
                done = edgegen(*arguments)
                assert done.returncode == 1
                assert f"run `edgegen export {place}` first" in done.stderr.decode()

    def test_python_names_the_command(self, gguf: Path, edgegen_home: Path) -> None:
        with pytest.raises(BundleNotFoundError, match="is a GGUF file, not a bundle: run `edgegen export "):
            LLM.load(gguf)
        with pytest.raises(
            BundleNotFoundError, match=r"is a model of the hub: run `edgegen pull hf\.co/org/name:Q4_0`"
        ):
            LLM.load("hf.co/org/name:Q4_0")

    def test_a_model_is_given_once(self, edgegen: Edgegen, gguf: Path) -> None:
        for arguments in (
            ("run", str(gguf), "-hf", "org/name", "prompt", "more"),
            ("generate", "-m", str(gguf), "-hf", "org/name", "prompt"),
            ("chat", "-hf", "org/name", "-hf", "org/other"),
            ("pull", "org/name", "-hf", "org/name"),
            ("run",),
        ):
            assert edgegen(*arguments).returncode == 2


@pytest.mark.unit
class TestFiles:
    def test_all_parts_of_a_split_file_count(self, tmp_path: Path) -> None:
        for n in (1, 2):
            (tmp_path / f"x-0000{n}-of-00002.gguf").write_bytes(bytes([n]))
        whole = CheckpointFiles(tmp_path / "x-00001-of-00002.gguf")
        assert whole.sizes == [1, 1]
        before = whole.content
        (tmp_path / "x-00002-of-00002.gguf").write_bytes(b"3")
        assert not whole.unchanged
        assert CheckpointFiles(tmp_path / "x-00001-of-00002.gguf").content != before

    def test_a_folder_counts_what_an_export_reads(self, tmp_path: Path) -> None:
        for name in ("config.json", "model.safetensors", "tokenizer.json", "pytorch_model.bin", "README.md"):
            (tmp_path / name).write_text(name)
        (tmp_path / "checkpoint-500").mkdir()
        (tmp_path / "checkpoint-500/config.json").write_text("{}")
        assert sorted(CheckpointFiles(tmp_path).stamps) == ["config.json", "model.safetensors", "tokenizer.json"]


@pytest.fixture
def hub(tmp_path: Path, gguf: Path) -> Iterator[StandInHub]:
    """A hub with a repository of GGUF files, and one of safetensors."""
    several = tmp_path / "several"
    several.mkdir()
    for name in ("m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-UD-Q4_K_XL.gguf"):
        shutil.copy(gguf, several / name)
    (several / "mmproj-F16.gguf").write_bytes(b"GGUF")
    others = tmp_path / "others"
    others.mkdir()
    for name in ("m-Q8_0.gguf", "m-Q6_K.gguf"):
        shutil.copy(gguf, others / name)
    tiny = write_gpt2(tmp_path / "safe", layout="original", vocab_size=2048, tokenizer=TOKENIZER)
    with StandInHub({"org/m-GGUF": several, "org/others": others, "org/safe": tiny}) as standin:
        yield standin


@pytest.mark.slow
class TestHub:
    @pytest.fixture
    def ask(self, hub: StandInHub, tmp_path: Path, edgegen_home: Path) -> Edgegen:
        environment = hub.environment(tmp_path / "hf") | SEARCH | {"EDGEGEN_HOME": str(edgegen_home)}
        environment.pop("HF_HUB_OFFLINE", None)

        def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
            command = [*COMMAND, *arguments]
            return subprocess.run(command, env=environment, input=stdin, capture_output=True, timeout=300, check=False)

        return run

    def test_a_quantization_chooses_the_file_on_every_verb(
        self, ask: Edgegen, hub: StandInHub, edgegen_home: Path
    ) -> None:
        first = ask("run", "hf.co/org/m-GGUF:Q8_0", ASK[0], "--fast", *ASK[1:])
        assert first.returncode == 0, first.stderr
        assert "org/m-GGUF/m-Q8_0.gguf" in hub.downloads
        asked = len(hub.requests)
        for arguments in (
            ("generate", "-m", "hf.co/org/m-GGUF:q8_0", *ASK),
            ("generate", "-hf", "org/m-GGUF:Q8_0", *ASK),
            ("run", "-hf", "org/m-GGUF:Q8_0", *ASK),
        ):
            done = ask(*arguments)
            assert (done.returncode, done.stdout) == (0, first.stdout), done.stderr
        talked = ask("chat", "--hf-repo", "org/m-GGUF:Q8_0", "--completion", *ASK[1:], stdin=b"abc\n")
        assert (talked.returncode, talked.stdout) == (0, first.stdout)
        pulled = ask("pull", "-hf", "org/m-GGUF:Q8_0")
        assert pulled.stdout.decode() == f"{edgegen_home / 'bundles/m-GGUF-Q8_0-int8'}\n"
        assert len(hub.requests) == asked  # nothing is asked for what is there

    def test_without_one_q4_k_m_is_taken_and_said_and_int4_is_a_scheme(
        self, ask: Edgegen, hub: StandInHub, edgegen_home: Path
    ) -> None:
        done = ask("pull", "hf.co/org/m-GGUF:int4", "--fast")
        assert done.returncode == 0, done.stderr
        assert b"edgegen: of org/m-GGUF, m-Q4_K_M.gguf is taken; another is named by" in done.stderr
        assert [name for name in hub.downloads if name.endswith(".gguf")] == ["org/m-GGUF/m-Q4_K_M.gguf"]
        assert bundles(edgegen_home) == ["m-GGUF-int4"]

    def test_what_the_repository_does_not_have(self, ask: Edgegen, edgegen_home: Path) -> None:
        for name, said in (
            ("org/m-GGUF:Q5_K_S", "org/m-GGUF has no GGUF file in 'Q5_K_S'; it holds m-Q4_K_M.gguf, m-Q8_0.gguf, "),
            ("org/m-GGUF:Q4_K", "has no GGUF file in 'Q4_K'"),
            ("org/m-GGUF:F16", "has no GGUF file in 'F16'"),
            ("org/safe:Q4_K_M", "org/safe has no GGUF file, so none in 'Q4_K_M'"),
            ("org/others", "org/others holds 2 GGUF files, choose one with --gguf-file: m-Q6_K.gguf, m-Q8_0.gguf"),
        ):
            done = ask("generate", "-hf", name, *ASK)
            assert (done.returncode, done.stdout) == (1, b"")
            assert said in done.stderr.decode()
        contradicting = ask("pull", "org/safe:int4", "--int8")
        assert (contradicting.returncode, bundles(edgegen_home)) == (2, [])


@pytest.mark.slow
def test_a_server_serves_a_file_by_its_bundles_name(gguf: Path, edgegen_home: Path) -> None:
    command = [*COMMAND, "serve", "-m", str(gguf), "--yes", "--fast", "--port", "0"]
    process = subprocess.Popen(command, env=os.environ | SEARCH, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = list[str]()
    for line in process.stderr:
        lines.append(line)
        if "serving" in line:
            break
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert lines[0] == f"edgegen: exporting {gguf} to model-int8, once.\n"
    assert "serving model-int8" in lines[-1]
