"""Variables: what EDGEGEN_ variables set, what wins over them, and what is told of wrong and misspelt ones."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from edgegen import LLM
from edgegen.cli import VERBS, command_of, run
from edgegen.cli.environment import API_KEY, HOME, misspelt, variables_of
from edgegen.cli.flag import WITHOUT_VARIABLE, Flag
from edgegen.options.engine import EngineOptions
from tests.root import ROOT

pytestmark = pytest.mark.unit

Capture = pytest.CaptureFixture[str]
Set = pytest.MonkeyPatch
WITHOUT = {name for names in WITHOUT_VARIABLE.values() for name in names}
PAGE = ROOT / "docs" / "configuration.md"


def options_of(verb: str) -> list[click.Option]:
    options = [option for option in command_of(verb).params if isinstance(option, click.Option)]
    return [option for option in options if not option.is_eager]


def in_effect(capsys: Capture, *arguments: str) -> dict[str, Any]:
    """The options that ``edgegen generate`` would generate with."""
    assert run(["generate", "--print-options", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: Capture, *arguments: str, code: int = 2) -> str:
    assert run(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    return err


class TestNames:
    @pytest.mark.parametrize("verb", VERBS)
    def test_each_flag_has_a_variable_or_a_reason(self, verb: str) -> None:
        flags = variables_of(command_of(verb))
        for option in options_of(verb):
            name = max(option.opts, key=len)
            variable = "EDGEGEN_" + name.removeprefix("--").replace("-", "_").upper()
            assert (variable in flags) != (name in WITHOUT), name
        assert len(flags) == sum(max(option.opts, key=len) not in WITHOUT for option in options_of(verb))

    def test_names_without_a_variable_exist_and_are_documented(self) -> None:
        known = {name for verb in VERBS for option in options_of(verb) for name in option.opts}
        assert sorted(WITHOUT - known) == []
        text = PAGE.read_text("utf-8")
        assert [name for name in sorted(WITHOUT) if f"`{name}`" not in text] == []

    @pytest.mark.parametrize(
        ("verb", "variable", "flag"),
        [
            ("generate", "EDGEGEN_MODEL", "-m"),
            ("bench", "EDGEGEN_MODEL", "-m"),
            ("generate", "EDGEGEN_MAX_NEW_TOKENS", "-n"),
            ("serve", "EDGEGEN_PORT", "--port"),
            ("serve", "EDGEGEN_ALLOW_HOST", "--allow-host"),
            ("chat", "EDGEGEN_CONTEXT_OVERFLOW", "--context-overflow"),
            ("export", "EDGEGEN_QUIET", "-q"),
        ],
    )
    def test_a_variable_has_the_long_name_of_its_flag(self, verb: str, variable: str, flag: str) -> None:
        assert flag in variables_of(command_of(verb))[variable].opts

    def test_a_flag_of_several_verbs_takes_the_same_values_everywhere(self) -> None:
        kinds = dict[str, set[str]]()
        for verb in VERBS:
            for variable, flag in variables_of(command_of(verb)).items():
                kinds.setdefault(variable, set()).add(f"{flag.type!r} {flag.is_flag} {flag.flag_value}")
        assert {variable: kind for variable, kind in kinds.items() if len(kind) > 1} == {}


class TestValues:
    def test_flags_win_over_variables_and_these_over_the_bundle(self, capsys: Capture, monkeypatch: Set) -> None:
        bundle = in_effect(capsys)
        assert (bundle["temperature"], bundle["max_new_tokens"]) == (0.6, 256)
        monkeypatch.setenv("EDGEGEN_TEMPERATURE", "0.3")
        monkeypatch.setenv("EDGEGEN_MAX_NEW_TOKENS", "7")
        assert in_effect(capsys) == bundle | {"temperature": 0.3, "max_new_tokens": 7}
        assert in_effect(capsys, "-n", "9") == bundle | {"temperature": 0.3, "max_new_tokens": 9}

    def test_they_change_an_answer(self, capsys: Capture, monkeypatch: Set) -> None:
        assert run(["generate", "--temperature", "0", "-n", "5", "Once upon a time"]) == 0
        expected = capsys.readouterr().out
        monkeypatch.setenv("EDGEGEN_TEMPERATURE", "0")
        monkeypatch.setenv("EDGEGEN_MAX_NEW_TOKENS", "5")
        assert run(["generate", "Once upon a time"]) == 0
        assert capsys.readouterr().out == expected == ", there was a little\n"

    def test_an_empty_variable_is_none(self, capsys: Capture, monkeypatch: Set) -> None:
        expected = in_effect(capsys)
        for name in ("EDGEGEN_KV", "EDGEGEN_SEED", "EDGEGEN_STOP_STRINGS", "EDGEGEN_DO_SAMPLE"):
            monkeypatch.setenv(name, "")
        assert in_effect(capsys) == expected

    @pytest.mark.parametrize(
        ("name", "text", "option", "value"),
        [
            ("STOP_STRINGS", "END, STOP", "stop_strings", ["END", "STOP"]),
            ("STOP_STRINGS", '["a, b", "\\n\\n"]', "stop_strings", ["a, b", "\n\n"]),
            ("STOP_TOKEN_IDS", "7,9", "stop_token_ids", [7, 9]),
            ("STOP_TOKEN_IDS", "[7, 9]", "stop_token_ids", [7, 9]),
            ("LOGIT_BIAS", "42=-1.5,7=2", "logit_bias", {"42": -1.5, "7": 2.0}),
            ("DO_SAMPLE", "0", "do_sample", False),
            ("DO_SAMPLE", "On", "do_sample", True),
            ("EARLY_STOPPING", "never", "early_stopping", "never"),
        ],
    )
    def test_values_are_read_as_flags_are(
        self, capsys: Capture, monkeypatch: Set, name: str, text: str, option: str, value: object
    ) -> None:
        monkeypatch.setenv(f"EDGEGEN_{name}", text)
        assert in_effect(capsys)[option] == value

    def test_a_flag_that_may_be_repeated_replaces_the_whole_variable(self, capsys: Capture, monkeypatch: Set) -> None:
        monkeypatch.setenv("EDGEGEN_STOP_STRINGS", "END,STOP")
        assert in_effect(capsys, "--stop-strings", "x")["stop_strings"] == ["x"]

    def test_a_flag_wins_over_a_variable_that_it_contradicts(self, capsys: Capture, monkeypatch: Set) -> None:
        monkeypatch.setenv("EDGEGEN_TEMPERATURE", "0.3")
        beams = in_effect(capsys, "--num-beams", "2")
        assert (beams["num_beams"], beams["do_sample"]) == (2, False)
        monkeypatch.setenv("EDGEGEN_NUM_BEAMS", "2")
        sampled = in_effect(capsys, "--temperature", "0.5")
        assert (sampled["num_beams"], sampled["do_sample"], sampled["temperature"]) == (1, True, 0.5)

    def test_a_system_message_is_for_conversations_only(
        self, capsys: Capture, monkeypatch: Set, tmp_path: Path
    ) -> None:
        plain = ["generate", "--temperature", "0", "-n", "5", "Hello"]
        assert run(plain) == 0
        expected = capsys.readouterr().out
        assert run([*plain, "--chat", "-s", "Be brief."]) == 0
        of_chat = capsys.readouterr().out
        monkeypatch.setenv("EDGEGEN_SYSTEM", "Be brief.")
        assert run(plain) == 0
        assert capsys.readouterr().out == expected
        assert run([*plain, "--chat"]) == 0
        assert capsys.readouterr().out == of_chat
        for _ in range(2):  # the second goes on with a conversation that has begun
            assert run([*plain, "--chat", "--session", str(tmp_path / "talk")]) == 0

    def test_python_reads_none(self, monkeypatch: Set) -> None:
        for name, text in (("TEMPERATURE", "0.1"), ("KV", "int8"), ("MODEL", "nowhere")):
            monkeypatch.setenv(f"EDGEGEN_{name}", text)
        assert EngineOptions().kv is None
        with LLM.load() as llm:
            assert llm.generation_options.temperature == 0.6


class TestErrors:
    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("KV", "int5", "Invalid value for EDGEGEN_KV: 'int5' is not one of 'float32', 'int8', 'int4'."),
            ("MAX_NEW_TOKENS", "ten", "Invalid value for EDGEGEN_MAX_NEW_TOKENS: 'ten' is not a valid int"),
            ("LOGIT_BIAS", "x", "Invalid value for EDGEGEN_LOGIT_BIAS: 'x' is no ID=BIAS"),
            ("STOP_TOKEN_IDS", "7,x", "Invalid value for EDGEGEN_STOP_TOKEN_IDS: 'x' is not a valid int"),
            ("STOP_STRINGS", "[END]", "EDGEGEN_STOP_STRINGS: a list in JSON"),
            ("STOP_STRINGS", '{"a": 1}'.replace("{", "[{"), "EDGEGEN_STOP_STRINGS: a list in JSON"),
            ("STATS", "maybe", "EDGEGEN_STATS: 1 or 0, on or off expected, found 'maybe'."),
            ("TEMPERATURE", "-1", "EDGEGEN_TEMPERATURE is '-1' in the environment; --temperature overrides it"),
        ],
    )
    def test_a_wrong_value_is_told_with_the_name_of_the_variable(
        self, capsys: Capture, monkeypatch: Set, name: str, text: str, message: str
    ) -> None:
        monkeypatch.setenv(f"EDGEGEN_{name}", text)
        assert message in refused(capsys, "generate", "-m", "nowhere", "Hello")

    def test_all_wrong_options_are_told_at_once(self, capsys: Capture, monkeypatch: Set) -> None:
        monkeypatch.setenv("EDGEGEN_TEMPERATURE", "-1")
        monkeypatch.setenv("EDGEGEN_TOP_P", "7")
        monkeypatch.setenv("EDGEGEN_KV", "int8")
        err = refused(capsys, "generate", "Hello")
        assert "edgegen: error: 2 problems:" in err
        assert [line for line in err.splitlines() if "note" in line] == [
            "edgegen: note: EDGEGEN_TEMPERATURE is '-1' in the environment; --temperature overrides it",
            "edgegen: note: EDGEGEN_TOP_P is '7' in the environment; --top-p overrides it",
        ]

    def test_variables_that_contradict_each_other(self, capsys: Capture, monkeypatch: Set) -> None:
        monkeypatch.setenv("EDGEGEN_TEMPERATURE", "0.3")
        monkeypatch.setenv("EDGEGEN_NUM_BEAMS", "2")
        assert "EDGEGEN_NUM_BEAMS is '2' in the environment" in refused(capsys, "generate", "Hello")

    def test_a_servers(self, capsys: Capture, monkeypatch: Set) -> None:
        monkeypatch.setenv("EDGEGEN_PORT", "99999")
        err = refused(capsys, "serve")
        assert "port: " in err
        assert "EDGEGEN_PORT is '99999' in the environment; --port overrides it" in err

    def test_a_bundle_that_is_not_there(self, capsys: Capture, monkeypatch: Set) -> None:
        monkeypatch.setenv("EDGEGEN_MODEL", "storis")
        err = refused(capsys, "generate", "Hello", code=1)
        assert "EDGEGEN_MODEL is 'storis' in the environment; --model overrides it" in err

    def test_a_flags_error_names_no_variable(self, capsys: Capture, monkeypatch: Set) -> None:
        monkeypatch.setenv("EDGEGEN_KV", "int8")
        assert "EDGEGEN" not in refused(capsys, "generate", "--temperature", "-1", "Hello")

    def test_a_word_of_a_message_is_no_option(self, capsys: Capture, monkeypatch: Set) -> None:
        monkeypatch.setenv("EDGEGEN_MODEL", "stories")
        monkeypatch.setenv("EDGEGEN_SYSTEM", "Be brief.")
        assert "EDGEGEN" not in refused(capsys, "generate", "a b c d e f g h " * 200)

    def test_a_wrong_value_under_a_flag_does_not_matter(self, capsys: Capture, monkeypatch: Set) -> None:
        monkeypatch.setenv("EDGEGEN_MAX_NEW_TOKENS", "ten")
        assert in_effect(capsys, "-n", "9")["max_new_tokens"] == 9


class TestMisspelt:
    @staticmethod
    def warned(capsys: Capture, *arguments: str) -> Sequence[str]:
        assert run(arguments) == 0
        return capsys.readouterr().err.splitlines()

    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("EDGEGEN_TEMPRATURE", "EDGEGEN_TEMPERATURE"),
            ("EDGEGEN_MAX_NEW_TOKEN", "EDGEGEN_MAX_NEW_TOKENS"),
            ("EDGEGEN_MODELS", "EDGEGEN_MODEL"),
            ("EDGEGEN_API_KEYS", "EDGEGEN_API_KEY"),
        ],
    )
    def test_a_warning_has_the_nearest_name(self, capsys: Capture, monkeypatch: Set, name: str, meant: str) -> None:
        monkeypatch.setenv(name, "1")
        (line,) = self.warned(capsys, "generate", "--print-options")
        assert line == f"edgegen: warning: {name} is no variable of edgegen (did you mean {meant!r}?)"

    def test_config_warns_once_of_the_verbs_variables(self, capsys: Capture, monkeypatch: Set) -> None:
        for name in ("EDGEGEN_API_KEYS", "EDGEGEN_PORTS", "EDGEGEN_TEMPRATURE"):
            monkeypatch.setenv(name, "1")
        assert [line.split()[2] for line in self.warned(capsys, "config", "serve")] == [
            "EDGEGEN_API_KEYS",
            "EDGEGEN_PORTS",
        ]

    def test_variables_of_other_verbs_and_of_others_are_left_alone(self, capsys: Capture, monkeypatch: Set) -> None:
        # EDGEGEN_MAX_TOKENS, of serve, is near to a variable of generate.
        for name in ("EDGEGEN_MAX_TOKENS", "EDGEGEN_PORT", "EDGEGEN_SOMETHING_ELSE"):
            monkeypatch.setenv(name, "1")
        assert self.warned(capsys, "generate", "--print-options") == []

    def test_those_of_tests_are_left_alone(self, monkeypatch: Set) -> None:
        for name in ("EDGEGEN_TEST_DATA", "EDGEGEN_PASSED", HOME, API_KEY):
            monkeypatch.setenv(name, "x")
        assert {verb: misspelt(command_of(verb), list) for verb in VERBS} == {verb: {} for verb in VERBS}

    def test_other_verbs_are_read_in_doubt_only(self, monkeypatch: Set) -> None:
        def others() -> list[click.Command]:
            raise AssertionError("no name is in doubt")

        monkeypatch.setenv("EDGEGEN_KV", "int8")
        assert misspelt(command_of("generate"), others) == {}


def test_a_flag_without_a_long_name_has_no_variable() -> None:
    assert Flag(["-x"]).variable is None
    assert "EDGEGEN_X" not in os.environ
