"""Flag: an option of the command line that an ``EDGEGEN_`` variable sets too, and that a shell completes."""

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

PREFIX = "EDGEGEN_"

WITHOUT_VARIABLE: dict[str, tuple[str, ...]] = {
    "what one command reads, writes or overwrites": (
        *("--file", "--session", "--output", "--force", "--plot", "--parity-plot", "--calibration", "--eval-text"),
        "--forget",
        *("--text", "--choices", "--pairs"),
    ),
    "what one request says, or what its answer must be": (
        *("--think", "--reasoning-effort", "--max-think"),
        *("--chat", "--negative-prompt", "--continuation", "--json-schema", "--regex", "--grammar", "--choice"),
    ),
    "what is printed, which a script reads": (
        *("--json", "--echo", "--print-options", "--logprobs", "--top-logprobs", "--progress"),
    ),
    "what one measurement measures": (
        *("--prefill", "--context", "--batch", "--repeats", "--limit", "--window", "--stride", "--parity"),
    ),
    "how a bundle is made, which its command says in full": (
        *("--int8", "--int4", "--int3", "--int2", "--fp16", "--fp32", "--fast", "--bits-budget", "--via"),
        *("--max-context", "--revision"),
        *("--hf-repo", "--yes"),
        *("--gguf-file", "--adapter", "--keep-adapter", "--with-hidden", "--no-mtp", "--draft-head"),
    ),
    "what makes a server less secure": ("--insecure", "--allow-pull"),
}
"""The flags that no variable sets, by the reason."""

_WITHOUT = {name for names in WITHOUT_VARIABLE.values() for name in names}
_READ = "edgegen.environment"

F = TypeVar("F", bound=Callable[..., Any])
"""A command that flags are given to."""


class Flag(click.Option):
    """An option whose variable holds where the flag is left out."""

    @property
    def variable(self) -> str | None:
        """The name of its variable: ``EDGEGEN_MAX_NEW_TOKENS`` for ``--max-new-tokens``; None if it has none."""
        long = max(self.opts, key=len)
        if self.is_eager or long in _WITHOUT or not long.startswith("--"):
            return None
        return PREFIX + long.removeprefix("--").replace("-", "_").upper()

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return os.environ.get(self.variable) or None if self.variable else None

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return the variable's value before its type is checked; several values for a flag that may be repeated."""
        text = self.resolve_envvar_value(ctx)
        if text is None or self.variable is None:
            return None
        ctx.meta.setdefault(_READ, {})[self.variable] = (self, text)
        if self.multiple:
            return _several(self.variable, text)
        if not self.is_flag:
            return text
        on = str(text).strip().lower()
        if on not in _SWITCHES:
            raise click.UsageError(f"{self.variable}: 1 or 0, on or off expected, found {text!r}.", ctx)
        return _SWITCHES[on] if self.secondary_opts else _SWITCHES[on] == bool(self.flag_value)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        if ctx is not None and self.variable and _from_environment(ctx, self.name):
            return self.variable
        return super().get_error_hint(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The values that begin with ``incomplete``: bundles, files, or what its type knows."""
        if self.metavar == "BUNDLE":
            return complete_bundle(ctx, self, incomplete)
        if self.metavar in ("FILE", "DIR"):
            return complete_file(ctx, self, incomplete)
        return super().shell_complete(ctx, incomplete)


_SWITCHES = {
    **dict.fromkeys(("1", "on", "true", "yes"), True),
    **dict.fromkeys(("0", "off", "false", "no"), False),
}


def _several(variable: str, text: str) -> list[str]:
    """The values of a flag that may be repeated: with commas between them, or a list in JSON."""
    if not text.lstrip().startswith("["):
        return [part for piece in text.split(",") if (part := piece.strip())]
    try:
        values: object = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or not all(isinstance(value, str | int) for value in cast(list[object], values)):
        expected = 'a list in JSON, such as ["one", "two"], or values with commas between expected'
        raise click.UsageError(f"{variable}: {expected}, found {text!r}.")
    return [str(value) for value in cast(list[object], values)]


def complete_bundle(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the bundles that begin with ``incomplete``, and folders."""
    from edgegen.bundle.store import BundleStore

    names = [
        CompletionItem(entry.name, help=entry.problem or str(entry.path))
        for entry in BundleStore()
        if entry.name.startswith(incomplete)
    ]
    return names or [CompletionItem(incomplete, type="dir")]


def complete_file(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leaves it to the shell to complete a file's name."""
    return [CompletionItem(incomplete, type="file")]


def is_from_environment(name: str) -> bool:
    """Whether a variable gave the running command its parameter ``name``."""
    return _from_environment(click.get_current_context(), name)


def variables_read(ctx: click.Context) -> dict[str, tuple[Flag, str]]:
    """The variables that the running command has taken values from: their flags and texts."""
    return ctx.meta.get(_READ, {})


def _from_environment(ctx: click.Context, name: str | None) -> bool:
    return name is not None and ctx.get_parameter_source(name) is ParameterSource.ENVIRONMENT
