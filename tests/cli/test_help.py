"""Help texts: groups, a short one of at most 45 lines, and every flag of the table of options."""

import re
from typing import Any, get_args

import click
import pytest

from docs.make_cli import help_of
from edgegen.cli import VERBS, command_of, run
from edgegen.cli.option_flags import flag_of
from edgegen.options.option import Group
from edgegen.options.table import OPTIONS

GROUPS = [group for group in get_args(Group) if group not in ("Server", "Export")]
GONE = ["--sessions", "--packed-weights", "--no-packed-weights", "--fast-prefill", "--no-fast-prefill"]


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run(arguments) == 0
    return capsys.readouterr().out.splitlines()


def headings(lines: list[str]) -> list[str]:
    return [line.rstrip(":") for line in lines if re.fullmatch(r"[A-Z][a-z ]+:", line)]


def test_the_short_help_of_generate_has_every_group_in_at_most_45_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "generate", "--help")
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    assert headings(lines) == GROUPS
    assert any("--help-all" in line for line in lines)


@pytest.mark.parametrize("verb", ["generate", "chat", "batch"])
def test_the_whole_help_has_every_option_and_the_short_one_fewer(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    everything, short = shown(capsys, verb, "--help-all"), shown(capsys, verb, "-h")
    assert len(short) < len(everything) / 2
    assert headings(short) == [group for group in headings(everything) if group in headings(short)]
    command: click.Command = command_of(verb)
    for name in {name for option in command.params if isinstance(option, click.Option) for name in option.opts}:
        assert re.search(rf"(?<![\w-]){name}\b", "\n".join(everything)), name


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_the_flags_that_the_table_gives_it(verb: str) -> None:
    command: Any = command_of(verb)
    flags = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    for option in OPTIONS.values():
        if verb in option.verbs:
            assert set(flag_of(option).split("/")) <= flags, option.name
            assert not option.short or option.short in flags
    assert flags.isdisjoint(GONE)


@pytest.mark.parametrize("verb", ["generate", "chat", "batch", "score", "eval", "bench"])
def test_every_flag_of_a_verb_has_a_group(verb: str) -> None:
    assert "Options" not in headings(help_of([verb]).splitlines())


@pytest.mark.parametrize("flag", GONE)
@pytest.mark.parametrize("verb", ["generate", "batch", "bench", "export"])
def test_an_option_of_python_only_is_no_flag(capsys: pytest.CaptureFixture[str], verb: str, flag: str) -> None:
    assert run([verb, flag]) == 2
    assert f"No such option '{flag}'" in capsys.readouterr().err.splitlines()[-1]
