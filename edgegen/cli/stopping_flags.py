"""The flags that end a text, of ``edgegen generate`` and ``edgegen batch``."""

from typing import Any

from edgegen.cli.collected_flags import CollectedFlags, F, Flag

_COLLECTED = CollectedFlags("edgegen.stopping_flags")

FLAGS: tuple[Flag, ...] = (
    ("stop_strings", {"multiple": True}, "End before this text; may be repeated."),
    ("eos_token_id", {"type": int, "multiple": True}, "End at this token id; may be repeated."),
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


def stopping_flags(command: F) -> F:
    """Give ``command`` the flags; their values are collected for :func:`given_stops`."""
    return _COLLECTED.add_to(command, FLAGS)


def given_stops() -> dict[str, Any]:
    """The flags of the running command that were given, by option."""
    return _COLLECTED.given()
