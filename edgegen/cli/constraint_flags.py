"""The flags of ``edgegen generate`` that say what the text must be."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgegen.cli.collected_flags import CollectedFlags, F, Flag
from edgegen.errors import UsageError

if TYPE_CHECKING:
    from edgegen.constraint import Constraint

_COLLECTED = CollectedFlags("edgegen.constraint_flags")

FLAGS: tuple[Flag, ...] = (
    ("json_schema", {"metavar": "FILE"}, "The text is JSON that this schema accepts."),
    ("regex", {"metavar": "PATTERN"}, "The text matches this regular expression."),
    ("grammar", {"metavar": "FILE"}, "The text keeps to this Lark or GBNF grammar."),
    ("choice", {"metavar": "TEXT", "multiple": True}, "The text is this or another --choice."),
)


def constraint_flags(command: F) -> F:
    """Give ``command`` the flags; what they ask for is :func:`given_constraint`."""
    return _COLLECTED.add_to(command, FLAGS)


def given_constraint() -> "Constraint | None":
    """The constraint that the flags of the running command ask for.

    Raises:
        UsageError: two kinds were given, or a file cannot be read.
        ConstraintError: it is broken.
    """
    given = _COLLECTED.given()
    if not given:
        return None
    if len(given) > 1:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{flags} each say what the text must be: leave all but one out.")
    from edgegen.constraint import Choice, Grammar, JsonSchema, Regex

    ((kind, value),) = given.items()
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
        return Path(path).read_text("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from None
