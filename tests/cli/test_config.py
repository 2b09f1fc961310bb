"""``edgegen config``: the options in effect, and where each comes from."""

import json
from pathlib import Path
from typing import Any

import pytest

from edgegen.cli import VERBS, command_of, run
from edgegen.cli.environment import variables_of

pytestmark = pytest.mark.unit

Capture = pytest.CaptureFixture[str]
Set = pytest.MonkeyPatch


def shown(capsys: Capture, *arguments: str) -> dict[str, Any]:
    assert run(["config", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def sources(capsys: Capture, *arguments: str) -> dict[str, tuple[object, str]]:
    return {row["flag"]: (row["value"], row["source"]) for row in shown(capsys, *arguments)["options"]}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_shows_its_options_with_a_variable(capsys: Capture, verb: str) -> None:
    found = shown(capsys, verb)
    assert found["verb"] == verb
    assert [row["variable"] for row in found["options"]] == [*variables_of(command_of(verb))]


def test_each_source(capsys: Capture, monkeypatch: Set) -> None:
    monkeypatch.setenv("EDGEGEN_TOP_P", "0.5")
    monkeypatch.setenv("EDGEGEN_MIN_P", "0.5")
    monkeypatch.setenv("EDGEGEN_KV", "int8")
    found = sources(capsys, "generate", "-m", "stories", "--min-p", "0.25")
    assert found["--model"] == ("stories", "flag")
    assert found["--min-p"] == (0.25, "flag")
    assert found["--top-p"] == (0.5, "EDGEGEN_TOP_P")
    assert found["--kv"] == ("int8", "EDGEGEN_KV")
    assert found["--temperature"] == (0.6, "bundle")
    assert found["--do-sample"] == (True, "bundle")
    assert found["--max-new-tokens"] == (256, "default")
    assert found["--stats"] == (False, "default")


def test_what_follows_from_another_option_is_implied(capsys: Capture) -> None:
    found = sources(capsys, "--temperature", "0")
    assert found["--temperature"] == (0.0, "flag")
    assert found["--do-sample"] == (False, "implied")


def test_a_variable_that_a_flag_contradicts_is_not_shown(capsys: Capture, monkeypatch: Set) -> None:
    monkeypatch.setenv("EDGEGEN_NUM_BEAMS", "2")
    found = sources(capsys, "--temperature", "0.5")
    assert found["--num-beams"] == (1, "default")


def test_values_are_those_that_generate_prints(capsys: Capture, monkeypatch: Set) -> None:
    monkeypatch.setenv("EDGEGEN_TOP_K", "3")
    found = shown(capsys, "-n", "5")["options"]
    assert run(["generate", "-n", "5", "--print-options"]) == 0
    printed = json.loads(capsys.readouterr().out)
    for row in found:
        name = str(row["variable"]).removeprefix("EDGEGEN_").lower()
        if name in printed:
            assert row["value"] == printed[name], name


def test_a_flag_that_switches_off_is_on_where_its_option_is_off(capsys: Capture, monkeypatch: Set) -> None:
    monkeypatch.setenv("EDGEGEN_NO_AUTOLOAD", "1")
    found = sources(capsys, "serve", "--no-store")
    assert found["--no-store"] == (True, "flag")
    assert found["--no-autoload"] == (True, "EDGEGEN_NO_AUTOLOAD")


def test_the_kv_cache_is_the_bundles(capsys: Capture) -> None:
    assert sources(capsys, "serve")["--kv"] == ("int8", "bundle")
    assert sources(capsys, "eval")["--kv"] == ("the bundle's", "default")


def test_a_chat_drops_the_oldest_turns(capsys: Capture) -> None:
    assert sources(capsys, "chat")["--context-overflow"] == ("drop_oldest", "default")
    assert sources(capsys, "chat", "--context-overflow", "error")["--context-overflow"] == ("error", "flag")
    assert sources(capsys, "generate")["--context-overflow"] == ("error", "default")


def test_the_store_and_the_table(capsys: Capture, monkeypatch: Set, edgegen_home: Path) -> None:
    assert run(["config", "serve", "--port", "1234"]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == f"bundles are stored in {edgegen_home / 'bundles'} (EDGEGEN_HOME)"
    assert ["--port", "1234", "flag"] in [row.split() for row in rows]
    monkeypatch.delenv("EDGEGEN_HOME")
    store = shown(capsys)["store"]
    assert store["source"] == "default"
    assert store["bundles"] == str(Path(store["home"]) / "bundles")


def test_a_key_is_named_and_not_shown(capsys: Capture, monkeypatch: Set) -> None:
    monkeypatch.setenv("EDGEGEN_API_KEY", "hush-hush")
    assert run(["config", "serve"]) == 0
    out = capsys.readouterr().out
    assert "EDGEGEN_API_KEY" in out
    assert "hush-hush" not in out


def test_biases_are_shown_as_the_flag_takes_them(capsys: Capture) -> None:
    assert run(["config", "--logit-bias", "42=-inf"]) == 0
    assert '["42=-inf"]' in capsys.readouterr().out
    assert shown(capsys, "--logit-bias", "42=-inf")["options"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["genrate"], 2, "no such command 'genrate' (did you mean 'generate'?)."),
        (["--portt", "1"], 2, "No such option '--portt'"),
        (["generate", "--port", "1"], 2, "No such option '--port'"),
        (["generate", "--file", "x"], 2, "No such option '--file'"),
        (["generate", "--temperature", "-1"], 2, "temperature: must be between 0 and"),
        (["generate", "-m", "nowhere"], 1, "no bundle named or at 'nowhere'"),
        (["generate", "--kv", "int5"], 2, "'int5' is not one of"),
    ],
)
def test_errors(capsys: Capture, arguments: list[str], code: int, message: str) -> None:
    assert run(["config", *arguments]) == code
    assert message in capsys.readouterr().err


def test_an_error_names_its_variable(capsys: Capture, monkeypatch: Set) -> None:
    monkeypatch.setenv("EDGEGEN_TEMPERATURE", "-1")
    assert run(["config"]) == 2
    assert "EDGEGEN_TEMPERATURE is '-1' in the environment" in capsys.readouterr().err
