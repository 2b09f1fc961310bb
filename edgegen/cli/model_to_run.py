"""The bundle that a command runs: ``-m`` may be a checkpoint or a model of the hub, which becomes a bundle once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
from click.core import ParameterSource

from edgegen.bundle.checkpoint_place import checkpoint_at
from edgegen.bundle.hub_name import is_hub_address
from edgegen.bundle.store import BundleStore
from edgegen.cli.flag import F
from edgegen.cli.grouped_help import HelpGroup, in_group
from edgegen.cli.scheme_flags import Scheme, given_flags, given_scheme, hub_flag, making_flag
from edgegen.errors import BundleNotFoundError, UsageError
from edgegen.system import expand_user, use_one_blas_thread

MODEL_HELP = "Bundle, GGUF file, checkpoint."


@dataclass(frozen=True, slots=True)
class Making:
    """How a bundle is made of what is none yet; ``scheme``: None is any that is there, and int8 of what is not.

    ``yes``: without a question.
    """

    scheme: "Scheme | None" = None
    fast: bool = False
    yes: bool = False


def making_flags(group: HelpGroup) -> Callable[[F], F]:
    """Gives a command ``-hf``, and the flags of models that are no bundles yet, for :func:`given_making`."""
    rare = in_group(group, is_common=False)
    flags = {
        "--int8": "Export or pull the model in 8 bits, where it is no bundle yet (the default).",
        "--int4": "In 4 bits.",
        "--fp16": "In 16-bit floats on disk.",
        "--fp32": "In 32-bit floats.",
        "--fast": "Round weights plainly: seconds, not minutes.",
    }
    options = [
        hub_flag(rare),
        *(making_flag(flag, about=text, kind=rare) for flag, text in flags.items()),
        making_flag("-y", "--yes", about="Export a GGUF file or a checkpoint folder without asking.", kind=rare),
    ]

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def given_making() -> Making:
    """How the running command's flags say that bundles are made.

    Raises:
        UsageError: they ask for several schemes.
    """
    return Making(given_scheme(), fast="fast" in given_flags(), yes="yes" in given_flags())


def model_given(model: str, hub_names: tuple[str, ...]) -> str:
    """The bundle, by name or path, that the running command's ``-m`` or ``-hf`` means; it is there then.

    Raises:
        EdgegenError: as :func:`models_given`.
    """
    if len(hub_names) > 1 or (hub_names and _is_written("model")):
        raise UsageError("several models are given, and this command runs one: give -m or -hf, once.")
    first, *_ = models_given((model,), hub_names, parameter="model")
    return first


def models_given(models: tuple[str, ...], hub_names: tuple[str, ...], *, parameter: str) -> tuple[str, ...]:
    """The bundles, by names or paths, that the running command's ``-m`` and ``-hf`` mean; they are there then.

    ``parameter``: the name of ``-m``, which counts beside ``-hf`` only if it was written on the command line.

    Raises:
        EdgegenError: one is not there, and cannot be made.
    """
    making = given_making()
    local = models if _is_written(parameter) or not hub_names else ()
    found = [_named(name, making) for name in local]
    return (*found, *(_pulled(name, making) for name in hub_names))


def _is_written(parameter: str) -> bool:
    """Whether the running command's line has this parameter; a default or a variable does not count."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def _named(name: str, making: Making) -> str:
    """As :func:`bundle_to_run`, of ``-m``, where a name of the hub has the hub's address before it."""
    try:
        BundleStore().resolve(name)
    except BundleNotFoundError:
        if (place := checkpoint_at(name)) is not None:
            return _exported(place, name, making)
        if is_hub_address(name):
            return _pulled(name, making)
        raise
    return _as_it_is(name, making)


def bundle_to_run(name: str, making: Making) -> str:
    """The bundle of ``name``, by name or path, which is there then: it may be a checkpoint or a model to be pulled.

    Raises:
        EdgegenError: it is not there, and cannot be made.
    """
    path = expand_user(Path(name))
    if making.scheme is None or path.exists():
        try:
            BundleStore().resolve(name)
        except BundleNotFoundError:
            if (place := checkpoint_at(name)) is not None:
                return _exported(place, name, making)
            if path.exists():
                raise
        else:
            return _as_it_is(name, making)
    from edgegen.cli.making import pulled
    from edgegen.cli.pull import to_pull

    return pulled(to_pull(name), making.scheme, fast=making.fast)


def _exported(place: Path, name: str, making: Making) -> str:
    from edgegen.cli.making import exported  # what exports need is imported where there may be one

    return exported(place, name, making.scheme, fast=making.fast, yes=making.yes)


def _pulled(name: str, making: Making) -> str:
    """The bundle of a model of the hub, never of a name of the list."""
    from edgegen.bundle.hub_name import HubReference
    from edgegen.cli.making import pulled

    return pulled(HubReference.of(name), making.scheme, fast=making.fast)


def _as_it_is(name: str, making: Making) -> str:
    """A bundle's name or path; nothing is exported: NumPy multiplies no matrices, and its threads only cost time."""
    if making.scheme or making.fast:
        flag = f"--{making.scheme}" if making.scheme else "--fast"
        raise UsageError(f"{flag} is for models that are exported first, and {name} is a bundle: leave it out.")
    use_one_blas_thread()
    return name
