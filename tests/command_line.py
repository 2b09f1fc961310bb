"""Reads a command line as ``edgegen`` does, and runs nothing."""

from collections.abc import Sequence
from typing import Any

import click

from edgegen.cli import app, command_of
from edgegen.cli.option_flags import given_of
from edgegen.options.option_set import OptionSet


def parameters(verb: str, flags: Sequence[str]) -> dict[str, Any]:
    """Return the parameters that a verb would be called with.

    Raises:
        click.UsageError: a flag is unknown or malformed.
    """
    return _read(verb, flags).params


def given(verb: str, flags: Sequence[str], options: type[OptionSet]) -> dict[str, Any]:
    """The options of a class that a verb would be given."""
    with _read(verb, flags):
        return given_of(options)


def _read(verb: str, flags: Sequence[str]) -> click.Context:
    # Without its parent a command would take --help only, and remember that for later tests.
    parent = click.Context(app, info_name="edgegen", **app.context_settings)
    return command_of(verb).make_context(verb, [*flags], parent=parent)
