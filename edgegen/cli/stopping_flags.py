"""The flags of ``edgegen generate`` that end a text, beyond the most common ones."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from edgegen.cli.collected_flags import CollectedFlags

_COLLECTED = CollectedFlags("edgegen.stopping_flags")

FLAGS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("stop_token_ids", {"type": int, "multiple": True}, "End at this token id too; may be repeated."),
    ("stop_regex", {"metavar": "PATTERN"}, "End where this regular expression first matches."),
    (
        "include_stop_str_in_output",
        {"is_flag": True, "default": None},
        "Show the stop string, or what the expression matched, too.",
    ),
    ("max_length", {"type": int}, "Most tokens of prompt and answer; the smaller limit counts."),
    ("max_time", {"type": float, "metavar": "SECONDS"}, "End after so many seconds."),
)
"""Option, click's words and help of each."""

F = TypeVar("F", bound=Callable[..., Any])


def stopping_flags(command: F) -> F:
    """Give ``command`` the flags; their values are collected for :func:`given_stops`."""
    for name, settings, text in reversed(FLAGS):
        flag = f"--{name.replace('_', '-')}"
        add = click.option(flag, **settings, expose_value=False, callback=_COLLECTED.collect, help=text)
        command = add(command)
    return command


def given_stops() -> dict[str, Any]:
    """The flags of the running command that were given, by option."""
    return _COLLECTED.given()
