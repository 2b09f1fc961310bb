"""Write docs/cli.md from the command line's own help, and docs/options.md from the table of options.

python docs/make_cli.py
"""

import contextlib
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import click

from edgegen.cli import VERBS, app, command_of
from edgegen.cli.option_flags import default_of, flag_of
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions
from edgegen.options.option import Group, Option
from edgegen.options.option_set import options_of
from edgegen.options.table import ENGINE_OPTIONS, GENERATION_OPTIONS
from edgegen_export.options import ExportOptions

PAGE = Path(__file__).with_name("cli.md")
OPTIONS_PAGE = Path(__file__).with_name("options.md")
WIDTH = 100

HEAD = """\
# The command line

This page is made by `python docs/make_cli.py` from `--help`, or `--help-all` where a verb has it; a test compares the
two. What each option takes is in [options](options.md), and which flags an environment variable sets in
[configuration](configuration.md).

Exit codes: 0 done, 1 failed, 2 invalid arguments, 130 interrupted. Results go to standard output, everything else to
standard error. Errors are one line, or one line and a list.
"""

OPTIONS_HEAD = """\
# Options

This page is made by `python docs/make_cli.py` from the options' own fields (`edgegen/options` and
`edgegen_export/options.py`), which also check the values and make the flags; a test compares the two.

Names are the same in Python, in a bundle's `generation_config.json` and in the lines of a batch. `None` leaves an
option out: `llm.generate(prompt, temperature=None)` is `llm.generate(prompt)`.
"""

REQUEST_HEAD = """\
## Options of a request

Keyword arguments of `llm.generate`, `llm.stream`, `llm.chat` and `llm.stream_chat`, and fields of `GenerationOptions`.
Any sampling option turns sampling on; `temperature=0` is greedy.
"""

ENGINE_HEAD = """\
## Options of the engine

Fields of `EngineOptions`, for `LLM.load(…, options=EngineOptions(…))`.
"""

EXPORT_HEAD = """\
## Options of an export

Fields of `ExportOptions`, for `export(source, target, ExportOptions(…))` of `edgegen_export.pipeline`.
"""


def page() -> str:
    """docs/cli.md as it should be."""
    return "\n".join(
        [HEAD, _section("edgegen", app, []), *(_section(f"edgegen {verb}", command_of(verb), [verb]) for verb in VERBS)]
    )


def options_page() -> str:
    """docs/options.md as it should be."""
    groups = [
        f"### {group}\n\n{_table(rows, GenerationOptions())}"
        for group in get_args(Group)
        if (rows := [option for option in GENERATION_OPTIONS if option.group == group])
    ]
    of_engine = _table(ENGINE_OPTIONS, EngineOptions())
    of_export = _table(options_of(ExportOptions), ExportOptions())
    return "\n".join([OPTIONS_HEAD, REQUEST_HEAD, *groups, ENGINE_HEAD, of_engine, EXPORT_HEAD, of_export])


def help_of(arguments: Iterable[str], option: str = "--help") -> str:
    """Return what ``edgegen ARGUMENTS --help`` prints on a terminal of ``WIDTH`` columns."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        app.main([*arguments, option], prog_name="edgegen", standalone_mode=False, terminal_width=WIDTH)
    return said.getvalue()


def _section(title: str, command: click.Command, arguments: list[str]) -> str:
    has_more = any(parameter.name == "help_all" for parameter in command.params)
    return f"## {title}\n\n```text help\n{help_of(arguments, '--help-all' if has_more else '--help').strip()}\n```\n"


def _table(options: Iterable[Option], defaults: object) -> str:
    rows = [_row(option, getattr(defaults, option.name)) for option in options]
    head = ["| option | flag | type | default | what it does |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *rows]) + "\n"


def _row(option: Option, default: object) -> str:
    flags = f"`{flag_of(option)}`" if option.verbs else ""
    without = default_of(option, default) or ("off" if default is False else "on" if default is True else "none")
    about = f"{option.help} {option.note}".strip()
    return f"| `{option.name}` | {flags} | {option.kind.spelled} | {without} | {about} |"


if __name__ == "__main__":
    for path, text in ((PAGE, page()), (OPTIONS_PAGE, options_page())):
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path}\n")
