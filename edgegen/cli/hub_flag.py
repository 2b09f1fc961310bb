"""``-hf OWNER/NAME:QUANT``: llama.cpp's flag for a model of the hub."""

from collections.abc import Callable

import click

from edgegen.cli.flag import F


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
