"""``edgegen generate``: where the prompt comes from, what is printed where, how it ends."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.cli import run, write_any_character
from edgegen.cli.generate import read_prompt
from edgegen.errors import UsageError
from edgegen.generation.session import Session
from edgegen.llm import LLM
from edgegen.model.kernels import describe_kernels
from edgegen.options.generation import GenerationOptions
from edgegen.options.table import GENERATION_OPTIONS
from tests.cli.conftest import COMMAND, SLOW_COMMAND, Edgegen, feed
from tests.systems import needs_posix
from tests.waiting import PATIENCE_S, until

EIGHT = ("-n", "8", "--seed", "3")


@pytest.fixture
def answer(int8_bundle: Bundle) -> str:
    """The model's answer to "Zoë"."""
    return LLM.load(int8_bundle.path).generate("Zoë", max_new_tokens=8, seed=3).text


class TestPrompts:
    def test_as_an_argument(self, edgegen: Edgegen, model: str, answer: str) -> None:
        done = edgegen("generate", "-m", model, "Zoë", *EIGHT)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode().removesuffix("\n") == answer.removesuffix("\n")

    def test_from_a_file(self, edgegen: Edgegen, model: str, answer: str, tmp_path: Path) -> None:
        (tmp_path / "prompt.txt").write_text("Zoë", "utf-8")
        done = edgegen("generate", "-m", model, "-f", str(tmp_path / "prompt.txt"), *EIGHT)
        assert done.stdout.decode().removesuffix("\n") == answer.removesuffix("\n")

    @pytest.mark.parametrize("source", [(), ("-",), ("-f", "-")], ids=["pipe", "dash", "file dash"])
    def test_from_standard_input_less_the_newline_that_ends_it(
        self, edgegen: Edgegen, model: str, answer: str, source: tuple[str, ...]
    ) -> None:
        done = edgegen("generate", "-m", model, *source, *EIGHT, stdin="Zoë\n".encode())
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode().removesuffix("\n") == answer.removesuffix("\n")

    def test_that_begins_with_a_dash_goes_behind_two(self, edgegen: Edgegen, model: str) -> None:
        done = edgegen("generate", "-m", model, "-n", "2", "--echo", "--", "--5 apples")
        assert done.returncode == 0
        assert done.stdout.startswith(b"--5 apples")

    def test_given_twice_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="given twice"):
            read_prompt("a", "b")
        with pytest.raises(UsageError, match="given twice"):
            read_prompt("-", "-")

    def test_of_a_file_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"cannot read the prompt file nowhere\.txt: No such file"):
            read_prompt(None, "nowhere.txt")
        with pytest.raises(UsageError, match="cannot read the prompt file"):
            read_prompt(None, str(tmp_path))

    def test_of_a_file_keeps_its_newlines(self, tmp_path: Path) -> None:
        (tmp_path / "prompt").write_bytes(b"two\r\n\n")
        assert read_prompt(None, str(tmp_path / "prompt")) == "two\r\n\n"

    def test_of_a_file_has_no_byte_order_mark(self, tmp_path: Path) -> None:
        (tmp_path / "prompt").write_bytes(b"\xef\xbb\xbfOnce")
        assert read_prompt(None, str(tmp_path / "prompt")) == "Once"

    def test_that_is_not_utf8_is_refused_in_one_sentence(self, edgegen: Edgegen, model: str, tmp_path: Path) -> None:
        (tmp_path / "latin").write_bytes(b"Zo\xeb")
        cases: list[tuple[tuple[str | bytes, ...], bytes, str]] = [
            (("-f", str(tmp_path / "latin")), b"", f"in {tmp_path / 'latin'} is not UTF-8 text: byte 2 is 0xeb."),
            (("-",), b"Zo\xeb", "in standard input is not UTF-8 text: byte 2 is 0xeb."),
        ]
        if sys.platform != "win32":  # where a command line is text
            cases.append(((b"Zo\xeb",), b"", "on the command line is not UTF-8 text."))
        for arguments, stdin, where in cases:
            done = edgegen("generate", "-m", model, *arguments, stdin=stdin)
            assert (done.returncode, done.stdout) == (2, b"")
            assert done.stderr.decode() == f"edgegen: error: the prompt {where}\n"

    @needs_posix("pseudo-terminals of this kind")
    def test_none_at_a_terminal_is_refused_in_one_sentence(self) -> None:
        import pty

        master, slave = pty.openpty()
        try:
            done = subprocess.run([*COMMAND, "generate"], stdin=slave, capture_output=True, check=False, timeout=300)
        finally:
            os.close(master)
            os.close(slave)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr == b"edgegen: error: no prompt: give it as an argument, with -f FILE, or through a pipe.\n"

    @needs_posix("sh")
    def test_none_and_standard_input_closed_is_an_empty_one(self, model: str) -> None:
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, "generate", "-m", model, "-n", "2"],
            capture_output=True,
            check=False,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (0, b"")


class TestJson:
    def test_is_one_object_with_the_whole_answer(self, edgegen: Edgegen, model: str, answer: str) -> None:
        done = edgegen("generate", "-m", model, "Zoë", *EIGHT, "--json")
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.count(b"\n") == 1
        record = json.loads(done.stdout)
        ended = {"finish_reason", "stopped_by", "matched"}
        assert set(record) == {"text", "token_ids", *ended, "seed", "kernels", "timings"}
        assert record["kernels"] == describe_kernels()
        assert (record["text"], record["finish_reason"], record["seed"]) == (answer, "length", 3)
        assert len(record["token_ids"]) == 8
        timings = record["timings"]
        counts = {"prompt_tokens", "cached_tokens", "decode_tokens"}
        assert set(timings) == counts | {"prompt_seconds", "decode_seconds", "load_seconds"}
        assert (timings["prompt_tokens"], timings["decode_tokens"]) == (4, 7)
        assert all(timings[key] > 0 for key in timings if key != "cached_tokens")

    def test_has_the_prompt_where_it_is_to_be_echoed(self, edgegen: Edgegen, model: str) -> None:
        done = edgegen("generate", "-m", model, "Zoë", "-n", "1", "--json", "--echo")
        assert json.loads(done.stdout)["prompt"] == "Zoë"

    def test_says_what_ended_it(self, edgegen: Edgegen, model: str) -> None:
        plain: dict[str, Any] = json.loads(edgegen("generate", "-m", model, "Zoë", *EIGHT, "--json").stdout)
        eos = str(plain["token_ids"][2])
        ended = json.loads(edgegen("generate", "-m", model, "Zoë", *EIGHT, "--json", "--eos-token-id", eos).stdout)
        assert (ended["finish_reason"], ended["matched"]) == ("stop", int(eos))


class TestOutput:
    def test_the_prompt_comes_first_where_it_is_to_be_echoed(self, edgegen: Edgegen, model: str, answer: str) -> None:
        done = edgegen("generate", "-m", model, "Zoë", *EIGHT, "--echo")
        assert done.stdout.decode().removesuffix("\n") == "Zoë" + answer.removesuffix("\n")

    def test_ends_in_one_newline(self, edgegen: Edgegen, model: str) -> None:
        for count in ("1", "5"):
            out = edgegen("generate", "-m", model, "a", "-n", count).stdout
            assert out.endswith(b"\n")
            assert out == b"\n" or not out.endswith(b"\n\n")

    def test_statistics_go_to_standard_error(self, edgegen: Edgegen, model: str, answer: str) -> None:
        done = edgegen("generate", "-m", model, "Zoë", *EIGHT, "--stats")
        assert done.stdout.decode().removesuffix("\n") == answer.removesuffix("\n")
        (line,) = done.stderr.decode().splitlines()
        for part in ("load ", "prompt 4 tokens in ", "8 new tokens", "tok/s", "ended by length", "seed 3"):
            assert part in line
        assert f"kernels {describe_kernels()}" in line.split(" · ")

    def test_statistics_name_stock_operators_where_they_were_asked_for(self, edgegen: Edgegen, model: str) -> None:
        done = edgegen("generate", "-m", model, "Zoë", "-n", "2", "--kernels", "stock", "--stats", "--json")
        assert json.loads(done.stdout)["kernels"] == "stock"
        assert "kernels stock" in done.stderr.decode()

    def test_a_reader_that_has_enough_is_no_error(self, model: str) -> None:
        command = [*COMMAND, "generate", "-m", model, "Once", "-n", "400", "--eos-token-id", "9"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(3)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 0
        process.stderr.close()

    @needs_posix("/dev/full")
    @pytest.mark.parametrize("arguments", [("generate", "a", "-n", "2"), ("list",), ("--version",)])
    def test_a_full_disk_is_one_sentence(self, model: str, arguments: tuple[str, ...]) -> None:
        options = ["-m", model] if arguments[0] == "generate" else []
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*COMMAND, *arguments, *options],
                stdout=full,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=300,
            )
        if arguments != ("list",):  # without a bundle it prints nothing
            assert (done.returncode, done.stderr) == (1, b"edgegen: error: No space left on device\n")

    @needs_posix("sh")
    def test_closed_standard_output_is_no_crash(self, model: str) -> None:
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "generate", "-m", model, "a", "-n", "2"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (0, b"")

    @pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-16"])
    def test_pipes_are_utf_8_whatever_the_locale_says(self, edgegen: Edgegen, model: str, encoding: str) -> None:
        flags = ("-m", model, "日本", "-n", "1", "--echo")
        done = edgegen("generate", *flags, "--json", PYTHONIOENCODING=encoding)
        assert (done.returncode, done.stderr) == (0, b"")
        assert json.loads(done.stdout.decode("utf-8"))["prompt"] == "日本"
        plain = edgegen("generate", *flags, PYTHONIOENCODING=encoding)
        assert plain.stdout.startswith("日本".encode())
        wrong = edgegen("generate", "-m", "日本", "a", PYTHONIOENCODING=encoding)
        assert "日本" in wrong.stderr.decode("utf-8")

    def test_a_character_the_terminal_lacks_is_no_crash(self) -> None:
        class Terminal(io.TextIOWrapper):
            def isatty(self) -> bool:
                return True

        terminal = Terminal(io.BytesIO(), encoding="ascii")
        write_any_character(terminal)
        terminal.write("Zoë")
        terminal.seek(0)
        assert (terminal.encoding, terminal.read()) == ("ascii", "Zo?")


def wait_for(process: subprocess.Popen[bytes], count: int) -> bytes:
    assert process.stdout is not None
    return process.stdout.read(count)


@needs_posix("named pipes")
@pytest.mark.parametrize("mode", ["text", "json"])
def test_ctrl_c_ends_it_at_once_with_what_it_has_said(int8_bundle: Bundle, mode: str, tmp_path: Path) -> None:
    options = ["-n", "400", "--eos-token-id", "259"] + ["--json"] * (mode == "json")
    os.mkfifo(tmp_path / "prompt")
    command = [*SLOW_COMMAND, "generate", "-m", str(int8_bundle.path), "-f", str(tmp_path / "prompt"), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stderr is not None
    feed(tmp_path / "prompt", "Once upon a time")
    said = process.stdout.read(5) if mode == "text" else b""  # flushed as it is made: it comes before the end
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert errors == b"\n"
    if mode == "text":
        whole = LLM.load(int8_bundle.path).generate("Once upon a time", max_new_tokens=400, eos_token_id=259).text
        assert whole.encode().startswith(said + rest)
        assert len(said + rest) < len(whole.encode())
    else:
        assert rest == b""


def test_a_single_answer_where_several_were_asked_for_is_printed(edgegen: Edgegen, model: str) -> None:
    """A choice of one leaves a beam search but one answer."""
    arguments = ("generate", "-m", model, "Zoë", "--choice", "ab", "--num-beams", "3", "--num-return-sequences", "2")
    done = edgegen(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ab\n", b"")
    assert [choice["text"] for choice in json.loads(edgegen(*arguments, "--json").stdout)["choices"]] == ["ab"]


class TestInProcess:
    """The same program without a new interpreter: for what needs neither signals nor streams of its own."""

    @pytest.fixture(autouse=True)
    def terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--temperature", "-1"], "temperature: must be between 0 and 1e+30, found -1.0"),
            (["-n", "0"], "max_new_tokens: must be at least 1, found 0"),
            (["--top-p", "2"], "top_p: must be between 0 and 1, found 2.0"),
            (["--no-do-sample", "--top-k", "3"], "do_sample=False contradicts top_k: leave one or the other out"),
            (["--stop-strings", ""], "stop_strings: an empty string would stop at once"),
            (["--threads", "0"], "threads: must be between 1 and 1024, found 0"),
            (["--prefill-chunk", "1"], "prefill_chunk: must be at least 2, found 1"),
        ],
    )
    def test_wrong_values_are_told_before_a_model_is_looked_for(
        self, capsys: pytest.CaptureFixture[str], options: list[str], message: str
    ) -> None:
        assert run(["generate", "-m", "nowhere", "a", *options]) == 2
        out, err = capsys.readouterr()
        assert (out, err) == ("", f"edgegen: error: {message}\n")

    def test_a_model_that_is_not_there_is_told_with_what_to_do(
        self, capsys: pytest.CaptureFixture[str], model: str
    ) -> None:
        assert run(["generate", "-m", "tiny-int4", "a"]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("edgegen: error: no bundle named or at 'tiny-int4' (did you mean 'tiny-int8'?); ")
        assert err.count("\n") == 1

    def test_a_prompt_too_long_is_told_in_one_sentence(self, capsys: pytest.CaptureFixture[str], model: str) -> None:
        assert run(["generate", "-m", model, "x" * 600]) == 2
        assert capsys.readouterr().err == (
            "edgegen: error: the prompt has 600 tokens, but this model's context is 512: shorten it.\n"
        )

    def test_every_option_does_what_the_python_one_does(
        self, capsys: pytest.CaptureFixture[str], model: str, int8_bundle: Bundle
    ) -> None:
        llm = LLM.load(int8_bundle.path)
        for options, overrides in [
            (["--temperature", "1.5", "--seed", "9"], {"temperature": 1.5, "seed": 9}),
            (["--top-k", "3", "--seed", "9"], {"top_k": 3, "seed": 9}),
            (["--top-p", "0.5", "--seed", "9"], {"top_p": 0.5, "seed": 9}),
            (["--do-sample", "--seed", "9"], {"seed": 9}),
            (["--temperature", "0"], {}),
            (["--no-do-sample"], {}),
            (["--threads", "1", "--prefill-chunk", "2"], {}),
            (["--kv", "float32"], {}),
        ]:
            values: dict[str, Any] = {"max_new_tokens": 12, "eos_token_id": [7, 9], **overrides}
            eos = ["--eos-token-id", "7", "--eos-token-id", "9"]
            assert run(["generate", "-m", model, "Zoë", "-n", "12", "--json", *eos, *options]) == 0
            assert tuple(json.loads(capsys.readouterr().out)["token_ids"]) == llm.generate("Zoë", **values).token_ids


@pytest.mark.skipif(
    DEFAULT_MODEL not in [entry.name for entry in BundleStore(Path("nowhere"))],
    reason="this checkout has no embedded model",
)
def test_without_a_model_the_embedded_one_speaks(edgegen: Edgegen) -> None:
    done = edgegen("generate", "Once upon a time", "-n", "20")
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.split()) > 5


class TestSamplingFlags:
    """Each is an option of :class:`GenerationOptions`, under its name."""

    def test_options_in_effect_are_printed_and_nothing_is_generated(self, edgegen: Edgegen, model: str) -> None:
        given = ("--min-p", "0.1", "--dry-multiplier", "0.8", "--logit-bias", "5=-2", "--logit-bias", "7=inf")
        done = edgegen("generate", "-m", model, "--print-options", *given[:-2])
        assert (done.returncode, done.stderr) == (0, b"")
        shown = json.loads(done.stdout)
        assert (shown["min_p"], shown["dry_multiplier"], shown["do_sample"]) == (0.1, 0.8, True)
        assert shown["logit_bias"] == {"5": -2.0}

    def test_a_token_forbidden_by_its_bias_is_json_too(self, edgegen: Edgegen, model: str) -> None:
        done = edgegen("generate", "-m", model, "--print-options", "--logit-bias", "5=-inf")
        shown = json.loads(done.stdout, parse_constant=pytest.fail)
        assert shown["logit_bias"] == {"5": "-inf"}

    def test_flags_reach_the_choice_of_tokens(self, edgegen: Edgegen, model: str) -> None:
        done = edgegen("generate", "-m", model, "-n", "6", "--temperature", "0", "--logit-bias", "65=100", "Zoë")
        assert done.stdout == b"AAAAAA\n"
        done = edgegen(
            "generate",
            "-m",
            model,
            "-n",
            "6",
            "--temperature",
            "0",
            "--logit-bias",
            "65=100",
            "--logit-bias",
            "66=99",
            "--no-repeat-ngram-size",
            "1",
            "Zoë",
        )
        assert done.stdout.startswith(b"AB")

    @pytest.mark.parametrize("bias", ["5", "a=1", "5=b", "=", "5=1=2"])
    def test_a_bias_that_is_none_is_refused(self, edgegen: Edgegen, model: str, bias: str) -> None:
        done = edgegen("generate", "-m", model, "--logit-bias", bias, "Zoë")
        assert done.returncode == 2
        assert f"{bias!r} is no ID=BIAS".encode() in done.stderr

    def test_everything_wrong_is_told_before_the_model_is_loaded(self, edgegen: Edgegen) -> None:
        done = edgegen("generate", "-m", "nowhere", "--min-p", "2", "--typical-p", "0", "Zoë")
        assert done.returncode == 2
        assert b"min_p: must be between 0 and 1" in done.stderr
        assert b"typical_p: must be above 0" in done.stderr


class TestStoppingFlags:
    """Each is an option of :class:`GenerationOptions`, under its name."""

    def test_are_options_in_effect(self, edgegen: Edgegen, model: str) -> None:
        ids = ("--stop-token-ids", "5", "--stop-token-ids", "6")
        limits = ("--max-length", "50", "--max-time", "2.5")
        given = (*ids, *limits, "--stop-regex", "a|b", "--include-stop-str-in-output")
        done = edgegen("generate", "-m", model, "--print-options", *given)
        assert (done.returncode, done.stderr) == (0, b"")
        shown = json.loads(done.stdout)
        assert (shown["stop_token_ids"], shown["max_length"], shown["max_time"]) == ([5, 6], 50, 2.5)
        assert (shown["stop_regex"], shown["include_stop_str_in_output"], shown["do_sample"]) == ("a|b", True, False)

    def test_are_off_where_nothing_is_said(self, edgegen: Edgegen, model: str) -> None:
        shown = json.loads(edgegen("generate", "-m", model, "--print-options").stdout)
        plain = json.loads(json.dumps(GenerationOptions().to_json()))
        for option in GENERATION_OPTIONS:
            own = option.name == "eos_token_id" or option.caller_only  # the bundle has its own
            if option.group == "Stopping" and not own:
                assert shown[option.name] == plain[option.name]

    def test_everything_wrong_is_told_before_the_model_is_loaded(self, edgegen: Edgegen) -> None:
        done = edgegen(
            "generate", "-m", "nowhere", "--stop-regex", "a(", "--max-time", "-1", "--max-length", "0", "Zoë"
        )
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.decode() == (
            "edgegen: error: 3 problems:\n"
            "  - max_length: must be at least 1, found 0\n"
            "  - max_time: must be above 0, found -1.0\n"
            "  - stop_regex: 'a(' is no regular expression: missing ), unterminated subpattern at position 1\n"
        )


class TestChat:
    def test_a_model_without_a_template_says_so_and_answers(self, edgegen: Edgegen, model: str) -> None:
        done = edgegen("generate", "-m", model, "--chat", "-s", "Be brief.", "-n", "8", "--temperature", "0", "Hi")
        assert done.returncode == 0
        assert done.stderr == b"edgegen: note: this model has no chat template: a plain transcript is used.\n"
        plain = edgegen("generate", "-m", model, "-n", "8", "--temperature", "0", "Be brief.\n\nUser: Hi\nAssistant:")
        assert plain.stdout.strip() == done.stdout.strip()

    @pytest.mark.parametrize(
        ("flags", "said"),
        [
            (("--think",), "--think is for conversations: add --chat."),
            (("--no-think",), "--no-think is for conversations: add --chat."),
            (("--max-think", "9"), "--max-think is for conversations: add --chat."),
            (("--chat", "--think"), "thinking: True cannot be had, as this model does not think aloud: leave it out."),
            (("--chat", "--reasoning-effort", "low"), "reasoning_effort: 'low' cannot be had, as this model does not"),
            (("--chat", "--max-think", "9"), "max_thinking_tokens: 9 limits nothing, as this model does not think"),
        ],
    )
    def test_thinking_needs_a_conversation_and_a_model_that_thinks(
        self, edgegen: Edgegen, model: str, flags: tuple[str, ...], said: str
    ) -> None:
        done = edgegen("generate", "-m", model, *flags, "-n", "2", "Hi")
        assert (done.returncode, done.stdout) == (2, b"")
        assert said in done.stderr.decode()

    def test_a_system_message_needs_a_conversation(self, edgegen: Edgegen, model: str) -> None:
        done = edgegen("generate", "-m", model, "-s", "Be brief.", "Hi")
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"-s is for conversations: add --chat." in done.stderr


class TestConstraints:
    def test_each_flag_says_what_the_text_is(self, edgegen: Edgegen, model: str, tmp_path: Path) -> None:
        (tmp_path / "schema.json").write_text('{"enum": ["ab", "cd"]}', encoding="utf-8-sig")
        (tmp_path / "grammar.lark").write_text('start: "ef" | "gh"')
        ways: list[tuple[tuple[str, ...], set[bytes]]] = [
            (("--json-schema", str(tmp_path / "schema.json")), {b'"ab"\n', b'"cd"\n'}),
            (("--grammar", str(tmp_path / "grammar.lark")), {b"ef\n", b"gh\n"}),
            (("--regex", "i[jk]"), {b"ij\n", b"ik\n"}),
            (("--choice", "lm", "--choice", "no"), {b"lm\n", b"no\n"}),
        ]
        for arguments, allowed in ways:
            done = edgegen("generate", "-m", model, "--seed", "3", *arguments, "Hi")
            assert done.stderr == b""
            assert done.stdout in allowed

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("--regex", "a", "--choice", "b"), b"--regex and --choice each say what the text must be"),
            (("--json-schema", "nowhere.json"), b"cannot read nowhere.json"),
            (("--regex", "("), b"regular expression"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, edgegen: Edgegen, model: str, arguments: tuple[str, ...], reason: bytes
    ) -> None:
        done = edgegen("generate", "-m", model, *arguments, "Hi")
        assert (done.returncode, done.stdout) == (2, b"")
        assert reason in done.stderr

    def test_a_schema_that_is_no_json_is_refused(self, edgegen: Edgegen, model: str, tmp_path: Path) -> None:
        (tmp_path / "schema.json").write_text("{")
        done = edgegen("generate", "-m", model, "--json-schema", str(tmp_path / "schema.json"), "Hi")
        assert done.returncode == 2
        assert b"schema.json is not JSON" in done.stderr


class TestSessions:
    """``--session FILE``: the text is there afterwards, and goes on from there."""

    def test_an_answer_goes_on_where_it_stopped(self, edgegen: Edgegen, tmp_path: Path) -> None:
        def say(*words: str) -> Any:
            done = edgegen("generate", "--kv", "int8", "--json", *words)
            assert (done.returncode, done.stderr) == (0, b"")
            return json.loads(done.stdout)

        file = str(tmp_path / "story.session")
        whole = say("--seed", "3", "-n", "24", "Once upon a time")
        begun = say("--seed", "3", "-n", "9", "--session", file, "Once upon a time")
        rest = say("-n", "15", "--session", file)  # standard input is empty
        assert begun["text"] + rest["text"] == whole["text"]
        assert rest["seed"] == 3
        assert say("-n", "4", "--session", file, " The end.")["timings"]["cached_tokens"] > 24
        told = edgegen("generate", "--kv", "int8", "-n", "4", "--session", file, "--stats", " Really.").stderr
        assert re.search(rb"prompt ([0-9]+) tokens, [0-9]+ of them known before, in ", told)

    def test_a_conversation_goes_on(self, edgegen: Edgegen, tmp_path: Path) -> None:
        file = str(tmp_path / "chat.session")
        roles = ["system", "user", "assistant", "user", "assistant"]
        for words in (("-s", "Be kind.", "Hello"), ("And you?",)):
            assert edgegen("generate", "--chat", "-n", "5", "--session", file, *words).returncode == 0
        assert [message["role"] for message in Session.load(file).messages] == roles
        for flags, told in ((("--chat", "-s", "Be rude."), "leave out -s"), ((), "holds a conversation: add --chat")):
            refused = edgegen("generate", *flags, "-n", "5", "--session", file, "Well")
            assert (refused.returncode, refused.stdout) == (2, b"")
            assert told in refused.stderr.decode()
        assert [message["role"] for message in Session.load(file).messages] == roles

    def test_a_text_is_no_conversation(self, edgegen: Edgegen, tmp_path: Path) -> None:
        file = str(tmp_path / "text.session")
        assert edgegen("generate", "-n", "5", "--session", file, "Hello").returncode == 0
        refused = edgegen("generate", "--chat", "--session", file, "Hello")
        assert refused.returncode == 2
        assert "holds a text and no conversation: leave out --chat" in refused.stderr.decode()

    def test_a_file_that_is_none_is_refused_and_left_alone(self, edgegen: Edgegen, tmp_path: Path) -> None:
        file = tmp_path / "notes.txt"
        file.write_text("mine")
        refused = edgegen("generate", "-n", "5", "--session", str(file), "Hello")
        assert refused.returncode == 1
        assert "is no session, or a damaged one" in refused.stderr.decode()
        assert file.read_text() == "mine"
        assert edgegen("generate", "--session", str(tmp_path), "Hello").returncode == 2
        nowhere = edgegen("generate", "--session", str(tmp_path / "no" / "a.session"), "Hello")
        assert (nowhere.returncode, nowhere.stdout) == (2, b"")
        assert "make it first" in nowhere.stderr.decode()

    @needs_posix("named pipes")
    def test_two_at_once(self, edgegen: Edgegen, tmp_path: Path) -> None:
        file = tmp_path / "story.session"
        os.mkfifo(tmp_path / "prompt")
        command = [*COMMAND, "generate", "-n", "5", "--session", str(file), "-f", str(tmp_path / "prompt")]
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        writes = [-1]

        def is_read() -> bool:
            """Whether the command reads, and so has the session; it must not have ended."""
            assert first.poll() is None
            with suppress(OSError):
                if writes[0] < 0:
                    writes[0] = os.open(tmp_path / "prompt", os.O_WRONLY | os.O_NONBLOCK)
            return writes[0] >= 0

        assert until(is_read)
        with os.fdopen(writes[0], "w") as prompt:
            second = edgegen("generate", "-n", "5", "--session", str(file), "Hello")
            prompt.write("Once upon a time")
        assert (first.communicate(timeout=300)[1], first.returncode) == (b"", 0)
        assert (second.returncode, second.stdout) == (2, b"")
        assert b"another process continues the session" in second.stderr
        assert [path.name for path in tmp_path.glob("story*")] == ["story.session"]

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
    def test_a_folder_that_cannot_be_written(self, edgegen: Edgegen, tmp_path: Path) -> None:
        (tmp_path / "sealed").mkdir(mode=0o500)
        refused = edgegen("generate", "--session", str(tmp_path / "sealed" / "a.session"), "Hello")
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert b"the session cannot be saved to" in refused.stderr


class TestSpeculation:
    REPEATING = ("--logit-bias", "65=100", "--temperature", "0", "-n", "30")

    def test_proposals_change_no_text_and_are_counted(self, edgegen: Edgegen, model: str) -> None:
        plain = edgegen("generate", "-m", model, *self.REPEATING, "Zoë")
        speculative = edgegen(
            "generate", "-m", model, *self.REPEATING, "--prompt-lookup-num-tokens", "6", "--stats", "Zoë"
        )
        assert speculative.stdout == plain.stdout == b"A" * 30 + b"\n"
        found = re.search(rb"([0-9]+) of ([0-9]+) proposed tokens accepted", speculative.stderr)
        assert found
        assert int(found[1]) == int(found[2]) > 15

    def test_json_says_what_was_proposed_where_something_was(self, edgegen: Edgegen, model: str) -> None:
        lookup = ("--prompt-lookup-num-tokens", "6", "--max-matching-ngram-size", "3")
        done = edgegen("generate", "-m", model, *self.REPEATING, *lookup, "--json", "Zoë")
        said = json.loads(done.stdout)["speculation"]
        assert set(said) == {"runs", "proposed", "accepted"}
        assert said["proposed"] == said["accepted"] >= said["runs"] > 0

    def test_a_draft_model_helps(self, edgegen: Edgegen, model: str) -> None:
        done = edgegen("generate", "-m", model, *self.REPEATING, "--draft", model, "--num-assistant-tokens", "2", "Zoë")
        assert (done.returncode, done.stdout) == (0, b"A" * 30 + b"\n")

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("--draft", DEFAULT_MODEL), b"token 0 is not the same in both"),
            (("--draft", "nowhere"), b"nowhere"),
            (("--num-assistant-tokens", "2"), b"num_assistant_tokens is for a draft model or a multi-token prediction"),
            (("--speculate", "mtp"), b"has no multi-token prediction head"),
            (("--speculate", "draft"), b"speculate: 'draft' takes a draft model"),
            (("--speculate", "off", "--draft", DEFAULT_MODEL), b"draft: of no use with speculate='off'"),
            (("--speculate", "off", "--prompt-lookup-num-tokens", "3"), b"loaded with speculate='off'"),
            (("--speculate", "mpt"), b"'mpt' is not one of 'auto', 'off', 'mtp'"),
            (
                ("--prompt-lookup-num-tokens", "2", "--num-beams", "2"),
                b"speculative decoding does not go with num_beams",
            ),
            (("--max-matching-ngram-size", "2"), b"give prompt_lookup_num_tokens with it"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, edgegen: Edgegen, model: str, arguments: tuple[str, ...], reason: bytes
    ) -> None:
        done = edgegen("generate", "-m", model, *arguments, "Hi")
        assert done.stdout == b""
        assert done.returncode in (1, 2)
        assert reason in done.stderr


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_no_escape_sequence_of_a_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: str, terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert run(["generate", "-m", model, "--echo", "--regex", "\x1b\\[2J", "Once\x9b"]) == 0
    assert capsys.readouterr().out == ("Once\ufffd␛[2J\n" if terminal else "Once\x9b\x1b[2J\n")
