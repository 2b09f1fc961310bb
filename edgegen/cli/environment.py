"""``EDGEGEN_`` variables: warns of misspelt ones, and names those that an error comes from."""

import os
import re
from collections.abc import Callable, Iterable

import click

from edgegen.cli.flag import PREFIX, Flag, variables_read
from edgegen.errors import EdgegenError

API_KEY = "EDGEGEN_API_KEY"
"""The variable of a server's key, which is no flag: other users can read a command line."""

HOME = "EDGEGEN_HOME"
"""The variable of the folder of everything that edgegen keeps."""

_NEAR = 0.75
"""How alike two names are, from 0 to 1, for one to be taken for the other misspelt."""


def variables_of(command: click.Command) -> dict[str, Flag]:
    """The flags of a command by their variables."""
    flags = [option for option in command.params if isinstance(option, Flag)]
    return {flag.variable: flag for flag in flags if flag.variable}


def misspelt(command: click.Command, others: Callable[[], Iterable[click.Command]]) -> dict[str, str]:
    """The variables that are set and unknown, and near to one of ``command``: what each may mean.

    ``others`` gives the other commands, whose variables are known too; it is only called in doubt.
    """
    known = [*variables_of(command), HOME, API_KEY]
    near = dict[str, str]()
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in known and (meant := _nearest(name, known)):
            near[name] = meant
    if near:
        elsewhere = {name for other in others() for name in variables_of(other)}
        near = {name: meant for name, meant in near.items() if name not in elsewhere}
    return near


def warn_of_misspelt(command: click.Command, others: Callable[[], Iterable[click.Command]]) -> None:
    """Warn of each such variable on standard error."""
    for name, meant in misspelt(command, others).items():
        click.echo(f"edgegen: warning: {name} is no variable of edgegen (did you mean {meant!r}?)", err=True)


def name_variables(ctx: click.Context, error: EdgegenError) -> None:
    """Add a note to an error about values that variables gave: the message knows their options only."""
    said = str(error)
    for variable, (flag, text) in variables_read(ctx).items():
        flags = "|".join(re.escape(name) for name in (*flag.opts, *flag.secondary_opts))
        # An option's name that is a word, such as model, is the option's only before its value or what is wrong.
        name = re.escape(flag.name or "") + ("" if "_" in (flag.name or "") else "(?=[:=])")
        if re.search(rf"(?<![\w-])({flags}|{name})(?![\w-])", said) or repr(text) in said:
            error.add_note(f"{variable} is {text!r} in the environment; {max(flag.opts, key=len)} overrides it")


def _nearest(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    found = get_close_matches(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known], 1, _NEAR)
    return PREFIX + found[0] if found else None
