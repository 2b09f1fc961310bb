"""``edgegen eval``: the table and the JSON, what is refused before a model is loaded, how it ends."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.cli import run
from edgegen.evaluation.items import read_pairs, read_questions
from edgegen.evaluation.tasks import MinimalPairs, MultipleChoice, Reading
from edgegen.llm import LLM
from tests.cli.conftest import COMMAND, Edgegen, feed
from tests.runtime.models import write_fake_bundle
from tests.systems import needs_posix
from tests.waiting import PATIENCE_S

TEXT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. " * 12
QUESTIONS = [
    {"ctx": "Once upon a", "endings": ["time, there was a cat.", "dog, ran is are."], "label": "0"},
    {"query": "Lily was very", "choices": ["of.", "happy."], "gold": 1},
    {"context": "The dog ran to the", "choices": ["and.", "park.", "was."], "label": 1},
]
PAIRS = [
    {"sentence_good": "She was happy.", "sentence_bad": "She were happy."},
    {"sentence_good": "The boys are here.", "sentence_bad": "The boys is here."},
]
HEAD = ["test", "figure", "bundle", "items", "value", "error", "difference", "error", "verdict"]


def lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The three options and files for them."""
    contents = {"--text": TEXT, "--choices": lines(QUESTIONS), "--pairs": lines(PAIRS)}
    for option, content in contents.items():
        (tmp_path / option.strip("-")).write_text(content, "utf-8")
    return {option: str(tmp_path / option.strip("-")) for option in contents}


@pytest.fixture
def options(files: dict[str, str]) -> list[str]:
    return [part for pair in files.items() for part in pair]


class TestAnswers:
    def test_json_has_what_the_tests_find(self, edgegen: Edgegen, model: str, options: list[str]) -> None:
        done = edgegen("eval", "stories", model, *options, "--json", "--threads", "1")
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.count(b"\n") == 1
        results = json.loads(done.stdout)["results"]
        tests = [
            Reading(TEXT),
            MultipleChoice(read_questions(lines(QUESTIONS), "f").whole()),
            MinimalPairs(read_pairs(lines(PAIRS), "f").whole()),
        ]
        figures = {
            (test.name, figure.name, bundle): figure.estimate
            for bundle in ("stories", model)
            for test in tests
            for figure in test.run(LLM.load(bundle))
        }
        assert len(results) == len(figures) == 10
        for result in results:
            estimate = figures[result["test"], result["figure"], result["bundle"]]
            assert result["value"] == pytest.approx(estimate.mean, rel=1e-3)
            assert result["error"] == pytest.approx(estimate.error, rel=1e-2)
            assert result["items"] == estimate.count
            compared = result["bundle"] == model and result["test"] != "text"  # their tokens differ
            assert (result["difference"] is not None) == compared
        acc = {result["bundle"]: result for result in results if result["figure"] == "acc_norm"}
        difference = acc[model]["difference"]
        assert difference["value"] == pytest.approx(acc[model]["value"] - acc["stories"]["value"])
        assert difference["verdict"] == "noise"

    def test_people_get_a_table_with_the_bundles_of_a_figure_side_by_side(
        self, edgegen: Edgegen, model: str, options: list[str]
    ) -> None:
        done = edgegen("eval", "stories", model, *options)
        assert (done.returncode, done.stderr) == (0, b"")
        head, *rows = done.stdout.decode().splitlines()
        assert head.split() == HEAD
        assert [row.split("  ")[0] for row in rows] == ["text"] * 4 + ["choices"] * 4 + ["pairs"] * 2
        assert ["stories" in row for row in rows] == [True, False] * 5
        assert len({row.index("stories" if "stories" in row else model) for row in rows}) == 1
        assert [row.endswith("other tokens") for row in rows] == [False, True] * 2 + [False] * 6
        assert [row.split()[-1] for row in rows[5::2]] == ["noise"] * 3

    def test_a_bundle_does_not_differ_from_itself(
        self, edgegen: Edgegen, model: str, int8_bundle: Bundle, files: dict[str, str]
    ) -> None:
        done = edgegen("eval", model, str(int8_bundle.path), "--text", files["--text"], "--json")
        differences = [result["difference"] for result in json.loads(done.stdout)["results"]]
        assert differences == [None, {"value": 0.0, "error": 0.0, "verdict": "noise"}] * 2

    def test_the_embedded_model_is_the_default_and_a_limit_counts_from_the_top(
        self, edgegen: Edgegen, files: dict[str, str]
    ) -> None:
        done = edgegen("eval", "--choices", files["--choices"], "--limit", "1", "--json", "--kv", "int8")
        (acc, acc_norm) = json.loads(done.stdout)["results"]
        assert acc == {
            "test": "choices",
            "figure": "acc",
            "bundle": "stories",
            "items": 1,
            "value": 1.0,
            "error": None,
            "difference": None,
        }
        assert acc_norm["value"] == 1.0

    def test_standard_input_is_a_text(self, edgegen: Edgegen, files: dict[str, str]) -> None:
        piped = edgegen("eval", "--text", "-", stdin=TEXT.encode())
        assert piped.returncode == 0
        assert piped.stdout == edgegen("eval", "--text", files["--text"]).stdout

    @needs_posix("named pipes")
    def test_an_interrupt_ends_it_at_once(self, model: str, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "long.txt")
        command = [*COMMAND, "eval", model, "--text", str(tmp_path / "long.txt")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        feed(tmp_path / "long.txt", TEXT * 300)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out, errors.strip()) == (130, b"", b"")


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "messages"),
        [
            ([], ["nothing to test: give a text (--text), questions (--choices) or pairs (--pairs)."]),
            (
                ["--limit", "2"],
                [
                    "nothing to test: give a text (--text), questions (--choices) or pairs (--pairs).",
                    "--limit goes with --choices and --pairs: leave it out.",
                ],
            ),
            (["--text", "nowhere"], ["cannot read the text file nowhere: No such file or directory."]),
            (["--choices", "nowhere"], ["cannot read the choices file nowhere: No such file or directory."]),
            (["--text", "empty"], ["empty is empty: there is nothing to read."]),
            (["--pairs", "empty"], ["empty has no pair: give one JSON object on each line."]),
            (["--choices", "empty"], ["empty has no question: give one JSON object on each line."]),
            (["--pairs", "broken"], ["broken, line 2: not JSON: Expecting value at character 1."]),
            (
                ["--choices", "outside"],
                ["outside, line 1: label or gold: 2 is not one of the 2 choices, which are counted from 0."],
            ),
            (
                ["storys", "--threads", "0", "--text", "nowhere", "--choices", "outside", "--limit", "0"],
                [
                    "threads: must be between 1 and 1024, found 0",
                    "cannot read the text file nowhere: No such file or directory.",
                    "outside, line 1: label or gold: 2 is not one of the 2 choices, which are counted from 0.",
                    "limit: must be at least 1, found 0",
                    "no bundle named or at 'storys' (did you mean 'stories'?)",
                ],
            ),
        ],
    )
    def test_come_all_at_once_before_a_model_is_loaded(
        self,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        arguments: list[str],
        messages: list[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("empty").touch()
        Path("broken").write_text(lines(PAIRS[:1]) + "no object\n")
        Path("outside").write_text(lines([{**QUESTIONS[0], "label": 2}]))
        assert run(["eval", *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        found = err.removeprefix("edgegen: error: ").splitlines()
        if len(messages) > 1:
            assert found.pop(0) == f"{len(messages)} problems:"
        for line, message in zip(found, messages, strict=True):
            assert line.removeprefix("  - ").startswith(message)

    def test_bundles_that_are_not_there_are_a_failure_each(
        self, capsys: pytest.CaptureFixture[str], files: dict[str, str]
    ) -> None:
        assert run(["eval", "storys", "stories", "nowhere", "--text", files["--text"]]) == 1
        err = capsys.readouterr().err
        assert err.startswith("edgegen: error: 2 problems:\n  - no bundle named or at 'storys'")
        assert "\n  - no bundle named or at 'nowhere'" in err

    def test_of_bundles_that_cannot_be_tested(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, files: dict[str, str]
    ) -> None:
        bundle = write_fake_bundle(tmp_path / "fake", tokenizer=False)
        assert run(["eval", str(bundle.path), "--kv", "int8", "--text", files["--text"]]) == 2
        err = capsys.readouterr().err
        assert f"{bundle.path} has no tokenizer, and what it would be tested on is text." in err
        assert f"{bundle.path} has no variant with a KV cache in int8" in err

    def test_what_does_not_fit_a_model_is_told_with_its_line_and_the_bundle(
        self, capsys: pytest.CaptureFixture[str], int8_bundle: Bundle, tmp_path: Path
    ) -> None:
        long = {**PAIRS[0], "sentence_bad": "x" * 600}
        (tmp_path / "pairs").write_text(lines([PAIRS[0], long]))
        assert run(["eval", str(int8_bundle.path), "--pairs", str(tmp_path / "pairs")]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"edgegen: error: pairs with {int8_bundle.path}: line 2: the context and continuation 2 ")
