"""Command-line flags made from the table of options: a verb's flags, and what was given of them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from edgegen.cli.flag import F, is_from_environment
from edgegen.cli.grouped_help import in_group
from edgegen.errors import OptionError
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions, GenerationOverrides
from edgegen.options.kinds import Biases, Bytes, FilePath, Number, OneOf, Switch, TokenIds
from edgegen.options.option import Option
from edgegen.options.option_set import OptionSet, options_of

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{rest}": base**power
    for power, letter in enumerate("kmgt", 1)
    for rest, base in (("", 1000), ("b", 1000), ("ib", 1024))
}


def byte_count(text: str) -> int:
    """Read a number of bytes with an optional unit, such as 4GB or 1.5GiB.

    Raises:
        BadParameter: ``text`` is no number of bytes.
    """
    found = re.fullmatch(r"(\d{1,18})(\.\d{1,9})? ?([a-z]*)", text.lower())
    unit = _UNITS.get(found[3]) if found else None
    if found is None or unit is None:
        raise click.BadParameter(f"{text!r} is no number of bytes, such as 4GB, 1.5GiB or 1500000000.")
    return int(found[1]) * unit + int(float(found[2] or 0) * unit)


BYTES = click.types.convert_type(byte_count)
"""The type of flags: one for all verbs."""


_OF_CHATS: GenerationOverrides = {"context_overflow": "drop_oldest"}
DEFAULTS: dict[str, GenerationOverrides] = {"chat": _OF_CHATS, "run": _OF_CHATS}
"""The defaults of single verbs, where they are not those of the options."""

_IN_WORDS = {("chat", "max_new_tokens"): "the context"}
"""Defaults of verbs that depend on the bundle."""

_GIVEN = "edgegen.options"


def option_flags(verb: str) -> Callable[[F], F]:
    """Give a command the flags that the table has for ``verb``; what is given of them is collected."""
    return flags_of(verb, GenerationOptions().override(DEFAULTS.get(verb, {})), EngineOptions())


def flags_of(verb: str, *defaults: OptionSet) -> Callable[[F], F]:
    """Give a command the flags for ``verb`` of sets of options; :func:`given_of` has what is given of them."""
    rows = [(option, getattr(values, option.name)) for values in defaults for option in options_of(type(values))]

    def add(command: F) -> F:
        for option, value in reversed(rows):
            if verb in option.verbs:
                words = _IN_WORDS.get((verb, option.name)) or default_of(option, value)
                command = _flag(option, words)(command)
        return command

    return add


def options_of_verb(verb: str, own: GenerationOptions, max_context: int) -> GenerationOptions:
    """A bundle's ``own`` options with the verb's defaults; answers of a chat have no limit but the context, unless the
    bundle has a ``max_length``."""
    unlimited: GenerationOverrides = {"max_new_tokens": max_context}
    return own.override(
        {**DEFAULTS.get(verb, {}), **(unlimited if verb in DEFAULTS and own.max_length is None else {})}
    )


def given_options() -> dict[str, Any]:
    """The generation options that the running command was given, by name; a flag wins over a variable."""
    given = given_of(GenerationOptions)
    flags = {name: value for name, value in given.items() if not is_from_environment(name)}
    return {name: value for name, value in given.items() if name in flags or not _contradicts(name, value, flags)}


def given_engine_options() -> dict[str, Any]:
    """The engine options that the running command was given, by name."""
    return given_of(EngineOptions)


def given_of(options: type[OptionSet]) -> dict[str, Any]:
    """The options of a class that the running command was given, by name."""
    collected = click.get_current_context().meta.get(_GIVEN, {})
    return {
        option.name: _read(option, collected[option.name]) for option in options_of(options) if option.name in collected
    }


def flag_of(option: Option) -> str:
    """The long flag, or both flags of a switch."""
    return option.flag or f"--{option.name.replace('_', '-')}"


def default_of(option: Option, value: object) -> str:
    """Describe what holds without the option; empty where nothing does."""
    return option.default or ("" if value is None or isinstance(value, bool | tuple | dict) else str(value))


def _flag(option: Option, without: str) -> Callable[[F], F]:
    kind = option.kind
    switch = isinstance(kind, Switch)
    settings: dict[str, Any] = {"is_flag": True} if switch and "/" not in flag_of(option) else {}
    if switch and flag_of(option).startswith("--no-"):
        settings["flag_value"] = False
    return click.option(
        *([option.short] if option.short else []),
        flag_of(option),
        option.name,
        cls=in_group(option.group, is_common=option.common),
        type=_type(option),
        default=None,
        multiple=kind.several,
        metavar=option.metavar or ("N" if _type(option) is int else "X" if _type(option) is float else None),
        callback=_collect_biases if isinstance(kind, Biases) else _collect,
        expose_value=False,
        help=f"{option.help}  [{without}]" if without else option.help,
        **settings,
    )


def _type(option: Option) -> Any:
    match option.kind:
        case Bytes():
            return BYTES
        case Number():
            return option.kind.type
        case TokenIds():
            return int
        case FilePath():
            return click.Path(exists=True, dir_okay=False, path_type=Path)
        case OneOf() if isinstance(option.kind.values[-1], str):
            return click.Choice([_spelled(value) for value in option.kind.values])
        case OneOf():
            return int
        case _:
            return None


def _spelled(value: object) -> str:
    return str(value).lower()


def _collect(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Note a flag's value, if it was given."""
    if value is not None and value != ():
        context.meta.setdefault(_GIVEN, {})[parameter.name] = value


def _collect_biases(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> None:
    biases: dict[int, float] = {}
    for text in value:
        token, _, bias = text.partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            raise click.BadParameter(f"{text!r} is no ID=BIAS, such as 42=-1.5", context, parameter) from None
    _collect(context, parameter, biases or None)


def _contradicts(name: str, value: Any, flags: dict[str, Any]) -> bool:
    """Whether flags that are right by themselves do not go with an option that is right by itself."""
    try:
        GenerationOptions().override(flags)
        GenerationOptions().override({name: value})
    except OptionError:
        return False
    try:
        GenerationOptions().override(flags | {name: value})
    except OptionError:
        return True
    return False


def _read(option: Option, value: Any) -> Any:
    """The option's value for a flag's."""
    if isinstance(option.kind, OneOf):
        return next((one for one in option.kind.values if _spelled(one) == value), value)
    return value
