"""The default model on emulated Raspberry Pis, with the wheels that pip would take for them: the ids of this machine.

`python -m bench.emulated --work FOLDER --prepare` makes the emulated system, which downloads 110 MB; the variable
`EDGEGEN_EMULATED` names that folder.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.emulated.__main__ import PROMPTS, Way, agreement, export_fp32, prompts_of
from bench.emulated.root import COMMANDS, PI4, PI5, REPOSITORY, Root, RootError, missing_tool, run_here
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from tests.kernels.stock import needs_kernels
from tests.systems import needs_posix

TOKENS = 24


@pytest.fixture(scope="module")
def root() -> Root:
    """The emulated system with this checkout's runtime."""
    folder = os.environ.get("EDGEGEN_EMULATED")
    if reason := missing_tool():
        pytest.skip(reason)
    if not folder or not Root(Path(folder)).is_complete:
        pytest.skip(
            "EDGEGEN_EMULATED names no emulated system: make one by `python -m bench.emulated --work DIR --prepare`"
        )
    found = Root(Path(folder))
    found.take_edgegen()
    return found


@pytest.fixture(scope="module")
def default_model() -> Path:
    return BundleStore().resolve(DEFAULT_MODEL)


@pytest.mark.release  # a process of the emulator takes 10 seconds; one test, since the system can be one Pi at a time
@needs_kernels
def test_raspberry_pis_give_the_bits_of_this_machine(root: Root, default_model: Path) -> None:
    prompts = prompts_of(default_model)[:3]
    task = Way("", str(default_model), None, "auto").task(prompts, 8, TOKENS, 1)
    here = run_here(task)["answers"]
    for board, kernels in ((PI5, "dotprod"), (PI4, "neon")):
        there = root.run(board, task)
        assert there["kernels"] == kernels
        assert [len(answer["ids"]) for answer in there["answers"]] == [TOKENS] * len(prompts)
        assert there["answers"] == here, agreement(here, there["answers"])


@pytest.mark.release  # the whole package is imported in the emulator, twice
@needs_kernels
def test_commands_say_on_raspberry_pis_what_they_say_here(root: Root, default_model: Path, tmp_path: Path) -> None:
    """Both KV caches, an fp32 bundle, a JSON schema (whose library has a wheel of its own), `info` and `doctor`."""
    fp32, schema = export_fp32(tmp_path), tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}}')
    answer = ["generate", PROMPTS[0], "--temperature", "0", "-n", "16", "--json"]
    commands = [
        [*answer, "-m", str(default_model)],
        [*answer, "-m", str(default_model), "--kv", "float32", "--threads", "2"],
        [*answer, "-m", str(default_model), "--json-schema", str(schema)],
        [*answer, "-m", str(fp32)],
        ["info", str(default_model), "--json"],
        ["doctor", "--json"],
    ]
    here = run_commands_here(commands, tmp_path)
    assert [done["code"] for done in here] == [0] * len(commands)
    for board, features in ((PI5, "dotprod"), (PI4, "neon")):
        there = root.run_commands(board, commands, tmp_path)
        assert [(done["code"], done["stderr"]) for done in there] == [(0, "")] * len(commands)
        for one, other in zip(here[:4], there[:4], strict=True):
            assert json.loads(other["stdout"])["text"] == json.loads(one["stdout"])["text"]
        ours, theirs = (json.loads(done[4]["stdout"]) for done in (here, there))
        assert all(ours[key] == theirs[key] for key in ("name", "parameters", "quantization", "variants"))
        assert json.loads(there[5]["stdout"])["kernels"] == features


@pytest.mark.release  # the package is imported in the emulator twice: the benchmark starts a process for each round
@needs_kernels
def test_a_benchmark_runs_on_a_raspberry_pi(root: Root, default_model: Path, tmp_path: Path) -> None:
    lengths = ["--prefill", "4", "--context", "4", "--batch", "1", "--repeats", "1"]
    (done,) = root.run_commands(PI4, [["bench", "-m", str(default_model), *lengths, "--json"]], tmp_path)
    assert (done["code"], done["stderr"]) == (0, "")
    found = json.loads(done["stdout"])
    assert found["machine"]["kernels"] == "neon"
    (model,) = found["results"]
    assert model["decode"][0]["tokens_per_second"]["median"] > 0


def run_commands_here(commands: list[list[str]], home: Path) -> list[dict[str, Any]]:
    variables = os.environ | {"EDGEGEN_HOME": str(home), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, COMMANDS],
        input=json.dumps(commands),
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def answer(ids: list[int], gaps: list[float], digest: str) -> dict[str, object]:
    return {"ids": ids, "gaps": gaps, "digest": digest}


def test_agreement_says_where_ids_part() -> None:
    here = [answer([1, 2], [0.5, 0.25], "a"), answer([1, 3], [0.5, 0.125], "b")]
    assert agreement(here, here) == "2 of 2, all bits"
    assert agreement(here, [here[0], answer([1, 3], [0.4, 0.1], "c")]) == "2 of 2"
    assert agreement(here, [here[0], answer([1, 4], [0.4, 0.1], "c")]) == "1 of 2; first at a gap of 0.12"


@needs_posix("programs that are shell scripts")
def test_a_command_that_fails_is_told_with_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = tmp_path / "apt-get"
    failing.write_text("#!/bin/sh\necho some words >&2\necho E: no network >&2\nexit 100\n")
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("bench.emulated.root.missing_tool", lambda: None)
    with pytest.raises(RootError, match="apt-get fails: E: no network"):
        Root(tmp_path / "work").make()
    assert not Root(tmp_path / "work").is_complete


def test_a_missing_tool_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RootError, match="install qemu-user-static"):
        Root(tmp_path / "work").make()


def test_prompts_are_the_tokenizers(default_model: Path) -> None:
    prompts = prompts_of(default_model)
    assert len({tuple(prompt) for prompt in prompts}) == len(PROMPTS)
