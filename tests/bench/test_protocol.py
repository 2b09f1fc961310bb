"""The protocol of adapters with a fake peer, in this process and as a command."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.compare.environments import ROOT
from bench.compare.memory import memory
from bench.compare.peers.protocol import MISSING, Generation, Ids, Logits, Model, Protocol, measure
from tests.bench.fake_peer import VOCAB, CountingModel, CountingPeer

pytestmark = pytest.mark.slow

PROTOCOL = Protocol("", 1, VOCAB, 64, (4, 9), 12, 2, 3, 5, started=0.0)
LOADING = ["--threads", "1", "--context", "64"]


def lines(peer: CountingPeer, protocol: Protocol) -> dict[str, dict[str, Any]]:
    return {line["metric"]: line for line in measure(peer, Path(), protocol)}


def test_a_generation_is_the_first_ids_and_the_steps_each_with_its_time() -> None:
    generation = CountingModel(batches=True).generate(np.array([[3, 5], [9, 96]]), 4)
    assert generation.ids.tolist() == [[6, 7, 8, 9], [0, 1, 2, 3]]
    assert len(generation.seconds) == 4


def test_everything_is_measured_and_the_batch_last() -> None:
    """Its memory is no part of the peak."""
    measured = lines(CountingPeer(), PROTOCOL)
    assert {"import_s", "load_s", "cold_s", "prefill_s", "decode_s@4", "decode_s@9", "batch_s"} <= measured.keys()
    assert [*measured][-1] == "batch_s"
    for metric, repeats in (("prefill_s", 2), ("decode_s@4", 3), ("batch_s", 3)):
        assert len(measured[metric]["all"]) == repeats


@pytest.mark.skipif(memory() is None, reason="only Linux tells what a process has to itself")
def test_memory_is_read_before_the_libraries_and_after_loading() -> None:
    measured = lines(LoadingPeer(), PROTOCOL)
    assert [*measured].index("bare_private_bytes") < [*measured].index("import_s")
    assert [*measured].index("loaded_private_bytes") < [*measured].index("cold_s")
    grown = measured["loaded_private_bytes"]["value"] - measured["bare_private_bytes"]["value"]
    assert 60e6 < grown < 90e6
    assert measured["loaded_kv_bytes"]["value"] == 0


def test_a_peer_that_takes_one_prompt_at_a_time_has_no_batch() -> None:
    protocol = Protocol("alone", 1, VOCAB, 64, (4, 9), 12, 2, 3, 5, started=0.0)
    assert "batch_s" not in lines(CountingPeer(), protocol)


def test_a_batch_of_one_is_none_and_prompts_of_contexts_are_timed() -> None:
    measured = lines(CountingPeer(), replace(PROTOCOL, rows=1))
    assert "batch_s" not in measured
    assert {"prompt_s@4", "prompt_s@9"} <= measured.keys()


class LoadingPeer(CountingPeer):
    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        model = CountingModel(batches=True)
        model.weights = np.ones(64 << 20, np.uint8)
        return model


class EndsEarly(Model):
    def generate(self, prompts: Ids, tokens: int) -> Generation:
        return Generation(np.zeros((len(prompts), min(tokens, 2)), np.int64), [0.0] * min(tokens, 2))

    def logits(self, ids: Ids) -> Logits:
        raise NotImplementedError


class EndingPeer(CountingPeer):
    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        return EndsEarly()


def test_a_text_that_ends_early_is_a_failure() -> None:
    with pytest.raises(RuntimeError, match=r"4 tokens for 1 prompts wanted, \(1, 2\) came"):
        lines(EndingPeer(), PROTOCOL)


class LiesAboutTime(CountingModel):
    def generate(self, prompts: Ids, tokens: int) -> Generation:
        return Generation(super().generate(prompts, tokens).ids, [1e3] * tokens)


class LyingPeer(CountingPeer):
    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        return LiesAboutTime(batches=True)


def test_times_that_a_peer_takes_itself_are_held_against_the_clock() -> None:
    """A unit that is not what its documentation says shows here."""
    with pytest.raises(RuntimeError, match=r"s have passed, of which its own times make 1e\+03"):
        lines(LyingPeer(), PROTOCOL)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tests.bench.fake_peer", *arguments]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)


def test_as_a_command_it_says_nothing_else_on_standard_output(tmp_path: Path) -> None:
    assert json.loads(command("check").stdout) == {"versions": {"numpy": np.__version__}}
    assert json.loads(command("footprint").stdout)["bytes"] > 1_000_000

    command("prepare", str(Path("some") / "checkpoint"), str(tmp_path))
    assert (tmp_path / "model.txt").read_text() == "checkpoint"

    np.savez(tmp_path / "prompts.npz", allow_pickle=False, a=np.array([7, 8]))
    command("logits", str(tmp_path), *LOADING, str(tmp_path / "prompts.npz"), str(tmp_path / "logits.npz"))
    with np.load(tmp_path / "logits.npz") as answers:
        assert answers["a"].argmax() == 9
        assert answers["a-next"].tolist() == [9]

    sizes = ["--vocab", str(VOCAB), "--contexts", "4", "--prefill", "6", "--repeats", "1", "--steps", "2"]
    done = command("measure", str(tmp_path), *LOADING, *sizes, "--rows", "2", "--started", "0")
    assert "a library may say what it likes" in done.stderr
    assert {"load_s", "decode_s@4"} <= {json.loads(line)["metric"] for line in done.stdout.splitlines()}


def test_missing_packages_are_told_apart_from_failures() -> None:
    code = "from tests.bench.fake_peer import *; run(CountingPeer({'no_such_package': 'no-such-package'}))"
    done = subprocess.run([sys.executable, "-c", code, "check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == MISSING
    assert json.loads(done.stdout) == {"missing": ["no_such_package"]}
