"""Write docs/cli.md from the command line's own help.

python docs/make_cli.py
"""

import contextlib
import io
import sys
from collections.abc import Iterable
from pathlib import Path

from edgegen.cli import VERBS, app

PAGE = Path(__file__).with_name("cli.md")
WIDTH = 100

HEAD = """\
# The command line

This page is made by `python docs/make_cli.py` from `--help`; a test compares the two.

Exit codes: 0 done, 1 it failed, 2 the command cannot be right, 130 interrupted. Results go to standard output,
everything else to standard error. Errors are one line, or one line and a list.
"""


def page() -> str:
    """The page as it should be."""
    sections = [HEAD, _section("edgegen", []), *(_section(f"edgegen {verb}", [verb]) for verb in VERBS)]
    return "\n".join(sections)


def help_of(arguments: Iterable[str]) -> str:
    """What ``edgegen ARGUMENTS --help`` prints on a terminal of ``WIDTH`` columns."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        app.main([*arguments, "--help"], prog_name="edgegen", standalone_mode=False, terminal_width=WIDTH)
    return said.getvalue()


def _section(title: str, arguments: list[str]) -> str:
    return f"## {title}\n\n```text help\n{help_of(arguments).strip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
