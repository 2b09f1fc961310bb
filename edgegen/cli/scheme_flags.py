"""Flags of how a bundle is made: ``-hf``, a model of the hub, and ``--int8`` and so on, how its weights are stored."""

from collections.abc import Callable, Set
from typing import Literal

import click

from edgegen.cli.flag import F

Scheme = Literal["int8", "int4", "fp16", "fp32"]
"""How weights are stored."""

SCHEMES: "tuple[Scheme, ...]" = ("int8", "int4", "fp16", "fp32")
"""The one that is made without a flag first."""


_GIVEN = "edgegen.making"
_HELP: "dict[Scheme, str]" = {
    "int8": "8-bit weight matrices, outliers smoothed (the default).",
    "int4": "4-bit weight matrices by GPTQ; what suffers most, the embedding often, in 8 bits.",
    "fp16": "Weight matrices in 16-bit floats on disk, 32-bit floats in memory.",
    "fp32": "Weights as they are, in 32-bit floats.",
}


def scheme_flags(command: F) -> F:
    """Give a command the flags of how weights are stored; :func:`given_scheme` reads them."""
    for scheme in reversed(SCHEMES):
        command = making_flag(f"--{scheme}", about=_HELP[scheme])(command)
    return command


def hub_flag(kind: type[click.Option]) -> Callable[[F], F]:
    """Gives a command the flag, as an option of that class; its values are ``hub_names``."""
    return click.option(
        "-hf",
        "--hf-repo",
        "hub_names",
        metavar="ID:QUANT",
        multiple=True,
        cls=kind,
        help="Model OWNER/NAME of the hub, pulled where it is not there; QUANT: a GGUF file's (Q4_K_M), or int8, int4.",
    )


def making_flag(*names: str, about: str, kind: type[click.Option] = click.Option) -> Callable[[F], F]:
    """A switch of how a bundle is made; :func:`given_flags` has its name where it was given."""
    return click.option(*names, is_flag=True, cls=kind, expose_value=False, callback=_collect, help=about)


def _collect(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.meta.setdefault(_GIVEN, set()).add(parameter.name)


def given_flags() -> Set[str]:
    """The switches of how bundles are made that the running command was given, without their dashes."""
    return click.get_current_context().meta.get(_GIVEN, frozenset())


def given_scheme() -> "Scheme | None":
    """The scheme that the running command's flags ask for; None without one.

    Raises:
        UsageError: they ask for several.
    """
    asked: list[Scheme] = [scheme for scheme in SCHEMES if scheme in given_flags()]
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(f'--{scheme}' for scheme in asked)} contradict each other: give one.")
    return asked[0] if asked else None
