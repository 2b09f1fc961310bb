"""``--int8``, ``--int4``, ``--fp16`` and ``--fp32``: how the weights of a bundle are stored."""

from typing import Literal

import click

from edgegen.cli.flag import F

Scheme = Literal["int8", "int4", "fp16", "fp32"]
"""How weights are stored."""

SCHEMES: "tuple[Scheme, ...]" = ("int8", "int4", "fp16", "fp32")
"""The one that is made without a flag first."""


def scheme_flags(command: F) -> F:
    """Give a command the flags of how weights are stored; :func:`chosen_scheme` reads them."""
    flags = (
        click.option("--int8", is_flag=True, help="8-bit weight matrices, outliers smoothed (the default)."),
        click.option(
            "--int4",
            is_flag=True,
            help="4-bit weight matrices by GPTQ; what suffers most, the embedding often, in 8 bits.",
        ),
        click.option("--fp16", is_flag=True, help="Weight matrices in 16-bit floats on disk, 32-bit floats in memory."),
        click.option("--fp32", is_flag=True, help="Weights as they are, in 32-bit floats."),
    )
    for flag in reversed(flags):
        command = flag(command)
    return command


def chosen_scheme(*, int8: bool, int4: bool, fp16: bool = False, fp32: bool = False) -> "Scheme | None":
    """The scheme that the flags ask for; None without one.

    Raises:
        UsageError: they ask for several.
    """
    flags: dict[Scheme, bool] = {"int8": int8, "int4": int4, "fp16": fp16, "fp32": fp32}
    asked: list[Scheme] = [scheme for scheme, given in flags.items() if given]
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(f'--{scheme}' for scheme in asked)} contradict each other: give one.")
    return asked[0] if asked else None
