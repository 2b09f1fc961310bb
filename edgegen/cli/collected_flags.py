"""CollectedFlags: flags that a command takes together, not as parameters one by one."""

from typing import Any

import click


class CollectedFlags:
    """What was given of some flags, kept in click's context under ``key``."""

    def __init__(self, key: str) -> None:
        self._key = key

    def collect(self, context: click.Context, parameter: click.Parameter, value: Any) -> None:
        """A flag's callback: note its value, if it was given."""
        if value is not None and value != ():
            context.meta.setdefault(self._key, {})[parameter.name] = value

    def given(self) -> dict[str, Any]:
        """The flags of the running command that were given, by parameter name."""
        return dict(click.get_current_context().meta.get(self._key, {}))
