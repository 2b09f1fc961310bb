"""The pages of the command line and of the options are current, and no page names an option that does not exist."""

import re
from pathlib import Path

import click
import pytest

from docs.make_cli import OPTIONS_PAGE, PAGE, options_page, page
from edgegen.cli import VERBS, app, command_of
from tests.docs.markdown import PAGES, blocks, prose

OTHER_PROGRAM = re.compile(r"(\$ )?([A-Z_]+=\S+ )*(python|pip|npm|sudo|podman|aider|codex|llm) ")
INLINE = re.compile(r"`([^`]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")


def test_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run python docs/make_cli.py"


def test_page_of_options_is_current() -> None:
    assert OPTIONS_PAGE.read_text("utf-8") == options_page(), "run python docs/make_cli.py"


def test_every_verb_and_option_is_documented() -> None:
    text = PAGE.read_text("utf-8")
    assert [verb for verb in VERBS if f"## edgegen {verb}\n" not in text] == []
    assert sorted(_options() - set(OPTION.findall(text))) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_options_named_on_a_page_exist(path: Path) -> None:
    code = [line for block in blocks(path) for line in block.code.split("\n")]
    said = [INLINE.sub(_own, line) for _, line in prose(path)]
    # The options of other programs are checked where their commands are.
    text = [line for line in [*code, *said] if not OTHER_PROGRAM.match(line)]
    named = {option for line in text for option in OPTION.findall(line)}
    assert sorted(named - _options()) == []


def _own(inline: re.Match[str]) -> str:
    """Inline code, or nothing where it is another program's command."""
    return "" if OTHER_PROGRAM.match(inline[1]) else inline[0]


def _options() -> set[str]:
    """The long options of all verbs."""
    commands: list[click.Command] = [app, *(command_of(verb) for verb in VERBS)]
    parameters = [parameter for command in commands for parameter in command.params]
    spelled = {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}
    return {name for name in spelled if name.startswith("--")} | {"--help"}
