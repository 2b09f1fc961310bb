"""Flags of thinking: which were given, and whether a model can do what they say."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgegen.cli.option_flags import flag_of
from edgegen.errors import UsageError
from edgegen.options.generation import THINKING_OPTIONS
from edgegen.options.table import OPTIONS

if TYPE_CHECKING:
    from edgegen.chat import ChatTemplate


def thinking_flag(given: Mapping[str, Any]) -> str:
    """The first flag of thinking among options that were given; empty without one."""
    for name in THINKING_OPTIONS:
        if (value := given.get(name)) is not None:
            on, _, off = flag_of(OPTIONS[name]).partition("/")
            return off if off and value is False else on
    return ""


def check_thinking(template: "ChatTemplate", options: Mapping[str, Any]) -> None:
    """Tell whether a model can do what the options of thinking say.

    Raises:
        UsageError: it cannot.
    """
    limit = options.get("max_thinking_tokens")
    if limit is not None and template.reasoning() is None:
        raise UsageError(
            f"max_thinking_tokens: {limit} limits nothing, as this model does not think aloud: leave it out."
        )
    template.check_thinking(options.get("thinking"), options.get("reasoning_effort"))
