"""Constrained-output flags of ``edgegen generate`` and ``edgegen batch``: schema, regex, grammar, choices."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgegen.cli.flag import F
from edgegen.cli.grouped_help import in_group
from edgegen.errors import UsageError

if TYPE_CHECKING:
    from edgegen.constraint import Constraint

_GIVEN = "edgegen.constraint"
_IN_GROUP = in_group("Constrained output")


def _collect(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and value != ():
        context.meta.setdefault(_GIVEN, {})[parameter.name] = value


def _flag(name: str, metavar: str, text: str, *, multiple: bool = False) -> Callable[[F], F]:
    return click.option(
        name, cls=_IN_GROUP, metavar=metavar, help=text, multiple=multiple, callback=_collect, expose_value=False
    )


def constraint_flags(command: F) -> F:
    """Give ``command`` the flags; what they ask for is :func:`given_constraint`."""
    command = _flag("--choice", "TEXT", "One of these texts; may be repeated.", multiple=True)(command)
    command = _flag("--grammar", "FILE", "Text of this Lark or GBNF grammar.")(command)
    command = _flag("--regex", "PATTERN", "Text that matches this regular expression.")(command)
    return _flag("--json-schema", "FILE", "JSON that this schema accepts.")(command)


def given_constraint() -> "Constraint | None":
    """The constraint that the flags of the running command ask for.

    Raises:
        UsageError: two kinds were given, or a file cannot be read.
        ConstraintError: it is broken.
    """
    values: dict[str, Any] = click.get_current_context().meta.get(_GIVEN, {})
    if not values:
        return None
    if len(values) > 1:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in values)
        raise UsageError(f"{flags} each say what the text must be: leave all but one out.")
    from edgegen.constraint import Choice, Grammar, JsonSchema, Regex

    ((kind, value),) = values.items()
    match kind:
        case "json_schema":
            return JsonSchema.of(_json(value))
        case "grammar":
            return Grammar(_text(value))
        case "regex":
            return Regex(value)
        case _:
            return Choice.of(list(value))


def _json(path: str) -> Any:
    text = _text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}.") from None


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from None
