"""``edgegen score``: what is printed where, what is refused, how it ends."""

import io
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.cli import run
from edgegen.cli.score import perplexity_record, score_record
from edgegen.llm import LLM
from edgegen.sampling.logprobs import TokenLogprob
from edgegen.scoring.scores import Perplexity, Score
from tests.cli.conftest import COMMAND, Edgegen, feed
from tests.systems import needs_posix
from tests.waiting import PATIENCE_S

TEXT = "Zoë asked: “Why?”\n" * 60


@pytest.fixture
def llm(int8_bundle: Bundle) -> LLM:
    return LLM.load(int8_bundle.path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, "utf-8")
    return str(path)


class TestFiles:
    @pytest.mark.parametrize(
        ("options", "how"), [((), {}), (("--window", "100", "--stride", "30"), {"window": 100, "stride": 30})]
    )
    def test_json_is_one_object(
        self, edgegen: Edgegen, model: str, llm: LLM, file: str, options: tuple[str, ...], how: dict[str, Any]
    ) -> None:
        done = edgegen("score", "-m", model, "-f", file, "--json", *options)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.count(b"\n") == 1
        expected = llm.perplexity(TEXT, **how)
        assert json.loads(done.stdout) == {
            "perplexity": pytest.approx(expected.perplexity),
            "nll_per_token": pytest.approx(expected.nll_per_token),
            "tokens": len(TEXT.encode()) - 1,
            "window": expected.window,
            "stride": expected.stride,
        }

    def test_standard_input_is_a_file_as_it_is(self, edgegen: Edgegen, model: str, file: str) -> None:
        piped = edgegen("score", "-m", model, "-f", "-", "--json", stdin=TEXT.encode())
        assert piped.stdout == edgegen("score", "-m", model, "-f", file, "--json").stdout

    def test_people_get_three_lines(self, edgegen: Edgegen, model: str, file: str) -> None:
        done = edgegen("score", "-m", model, "-f", file, "--window", "64")
        assert (done.returncode, done.stderr) == (0, b"")
        record = json.loads(edgegen("score", "-m", model, "-f", file, "--window", "64", "--json").stdout)
        assert done.stdout.decode().splitlines() == [
            f"   perplexity  {record['perplexity']:.6g}",
            f"nll per token  {record['nll_per_token']:.6g} nats",
            f"       tokens  {record['tokens']}, in windows of 64 with stride 32",
        ]

    @needs_posix("named pipes")
    def test_an_interrupt_ends_it_at_once(self, model: str, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "long.txt")
        command = [*COMMAND, "score", "-m", model, "-f", str(tmp_path / "long.txt"), "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        feed(tmp_path / "long.txt", TEXT * 300)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out, errors.strip()) == (130, b"", b"")


class TestContinuations:
    CONTINUATIONS = ("Why?", " not", "é", "Why not?")

    @property
    def flags(self) -> list[str]:
        return [flag for one in self.CONTINUATIONS for flag in ("-c", one)]

    def test_json_has_them_in_the_order_given(self, edgegen: Edgegen, model: str, llm: LLM) -> None:
        done = edgegen("score", "-m", model, "Zoë asked: ", *self.flags, "--json", "--top-logprobs", "2")
        assert (done.returncode, done.stderr) == (0, b"")
        records = json.loads(done.stdout)["scores"]
        assert [record["continuation"] for record in records] == [*self.CONTINUATIONS]
        scores = llm.score("Zoë asked: ", [*self.CONTINUATIONS], top_logprobs=2)
        for record, score in zip(records, scores, strict=True):
            assert list(record) == ["continuation", "logprob", "perplexity", "is_greedy", "token_ids", "logprobs"]
            assert record["logprob"] == pytest.approx(score.logprob)
            assert record["perplexity"] == pytest.approx(math.exp(-score.logprob / len(score.token_ids)))
            assert record["token_ids"] == list(score.token_ids)
            assert record["is_greedy"] == score.is_greedy
            assert [entry["token_id"] for entry in record["logprobs"]] == list(score.token_ids)
            assert all(len(entry["top_logprobs"]) == 2 for entry in record["logprobs"])

    def test_people_get_a_table_the_likeliest_first(self, edgegen: Edgegen, model: str, llm: LLM) -> None:
        done = edgegen("score", "-m", model, "Zoë asked: ", *self.flags)
        assert (done.returncode, done.stderr) == (0, b"")
        head, *rows = done.stdout.decode().splitlines()
        assert head == "log-prob  per token  tokens  greedy  continuation"
        scores = zip(self.CONTINUATIONS, llm.score("Zoë asked: ", [*self.CONTINUATIONS]), strict=True)
        expected = sorted(scores, key=lambda pair: pair[1].logprob, reverse=True)
        assert [row.split(maxsplit=4)[4] for row in rows] == [f'"{one}"' for one, _ in expected]
        for row, (_, score) in zip(rows, expected, strict=True):
            total, mean, tokens, greedy = row.split(maxsplit=4)[:4]
            assert float(total) == pytest.approx(score.logprob, abs=1e-3)
            assert float(mean) == pytest.approx(score.logprob / len(score.token_ids), abs=1e-3)
            assert (int(tokens), greedy) == (len(score.token_ids), "yes" if score.is_greedy else "no")

    def test_the_context_may_be_empty_or_come_through_a_pipe(self, edgegen: Edgegen, model: str) -> None:
        given = edgegen("score", "-m", model, "Zoë", "-c", " a")
        piped = edgegen("score", "-m", model, "-", "-c", " a", stdin="Zoë\n".encode())
        assert piped.stdout == given.stdout != edgegen("score", "-m", model, "", "-c", " a").stdout
        assert given.returncode == 0


class TestRefusals:
    """In process: they need neither signals nor streams of their own."""

    @pytest.fixture(autouse=True)
    def terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "nothing to score: give CONTEXT with continuations (-c), or a file (-f)."),
            (["a"], "nothing to score after CONTEXT: give continuations with -c, or a whole text with -f."),
            (["-c", "a"], 'a continuation needs CONTEXT before it: give it, or "" for none.'),
            (["a", "-f", "b"], "give a file (-f), or CONTEXT with continuations (-c), not both."),
            (["-c", "a", "-f", "b"], "give a file (-f), or CONTEXT with continuations (-c), not both."),
            (["-f", "b", "--top-logprobs", "2"], "--top-logprobs goes with continuations (-c): leave it out."),
            (["a", "-c", "b", "--window", "9"], "--window and --stride go with a file (-f): leave them out."),
            (["a", "-c", "b", "--stride", "9"], "--window and --stride go with a file (-f): leave them out."),
            (
                ["a", "-c", "b", "--top-logprobs", "2"],
                "--top-logprobs is shown with --json only: add it, or leave it out.",
            ),
            (["a", "-c", "b", "--threads", "0"], "threads: must be between 1 and 1024, found 0"),
            (["-f", "nowhere.txt"], "cannot read the text file nowhere.txt: No such file or directory."),
            (["-f", "-"], "standard input is empty: there is nothing to score."),
        ],
    )
    def test_come_before_a_model_is_looked_for(
        self, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
    ) -> None:
        assert run(["score", "-m", "nowhere", *arguments]) == 2
        assert capsys.readouterr() == ("", f"edgegen: error: {message}\n")

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", "{} is empty: there is nothing to score."),
            (b"Zo\xeb", "the text in {} is not UTF-8 text: byte 2 is 0xeb."),
        ],
    )
    def test_of_what_a_file_holds(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, data: bytes, message: str
    ) -> None:
        (tmp_path / "text").write_bytes(data)
        assert run(["score", "-m", "nowhere", "-f", str(tmp_path / "text")]) == 2
        assert capsys.readouterr() == ("", f"edgegen: error: {message.format(tmp_path / 'text')}\n")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["a", "-c", ""], "the continuation is empty: give at least one token to score."),
            (["a", "-c", "x" * 600], "the context and the continuation have 601 tokens together, but this model's "),
            (["a", "-c", "b", "--json", "--top-logprobs", "21"], "top_logprobs: must be between 0 and 20, found 21"),
            (["-f", "FILE", "--window", "513"], "window: must be between 2 and 512, found 513"),
            (["-f", "FILE", "--stride", "512"], "stride: must be between 1 and 511, found 512"),
        ],
    )
    def test_of_what_does_not_suit_the_model(
        self, capsys: pytest.CaptureFixture[str], model: str, file: str, arguments: list[str], message: str
    ) -> None:
        assert run(["score", "-m", model, *(file if part == "FILE" else part for part in arguments)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"edgegen: error: {message}")
        assert err.count("\n") == 1

    def test_a_model_that_is_not_there_is_a_failure(self, capsys: pytest.CaptureFixture[str], file: str) -> None:
        assert run(["score", "-m", "nowhere", "-f", file]) == 1
        assert "no bundle named or at 'nowhere'" in capsys.readouterr().err


def test_what_is_infinite_is_null_in_json() -> None:
    never = Score((1,), (TokenLogprob(1, "x", -math.inf, is_best=False),), is_greedy=False)
    record = json.loads(json.dumps(score_record("x", never), allow_nan=False))
    assert (record["logprob"], record["perplexity"], record["logprobs"][0]["logprob"]) == (None, None, None)
    assert perplexity_record(Perplexity(math.inf, 3, 8, 4))["perplexity"] is None
