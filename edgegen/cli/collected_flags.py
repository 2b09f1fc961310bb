"""CollectedFlags: flags that a command takes together, not as parameters one by one."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

Flag = tuple[str, dict[str, Any], str]
"""A flag's parameter name, click's settings for it, and its help."""


class CollectedFlags:
    """What was given of some flags, kept in click's context under ``key``."""

    def __init__(self, key: str) -> None:
        self._key = key

    def add_to(self, command: F, flags: Iterable[Flag]) -> F:
        """Give ``command`` the flags, in the order in which its help is to show them."""
        for name, settings, text in reversed(list(flags)):
            how: dict[str, Any] = {"callback": self.collect, "help": text, "expose_value": False} | settings
            command = click.option(f"--{name.replace('_', '-')}", **how)(command)
        return command

    def collect(self, context: click.Context, parameter: click.Parameter, value: Any) -> None:
        """A flag's callback: note its value, if it was given."""
        if value is not None and value != ():
            context.meta.setdefault(self._key, {})[parameter.name] = value

    def given(self) -> dict[str, Any]:
        """The flags of the running command that were given, by parameter name."""
        return dict(click.get_current_context().meta.get(self._key, {}))
