"""``edgegen config``: show the options in effect, and where each comes from."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import BundleStore
from edgegen.cli import VERBS, command_of
from edgegen.cli.environment import API_KEY, HOME, variables_of, warn_of_misspelt
from edgegen.cli.flag import Flag
from edgegen.cli.option_flags import (
    DEFAULTS,
    default_of,
    given_engine_options,
    given_of,
    given_options,
    options_of_verb,
)
from edgegen.cli.printable import aligned
from edgegen.cli.tuned_options import tuned_for
from edgegen.errors import did_you_mean
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions
from edgegen.options.table import OPTIONS
from edgegen.server.http.options import ServerOptions
from edgegen.system import home_folder, physical_cores

_VERB = "generate"

_TUNED = ("generate", "chat", "batch", "serve")
_TUNED_BUT_KV = ("chat", "batch")
"""The verbs that take what ``edgegen tune`` has found, and those that leave the KV cache's type as it is."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An option of a verb: its value, and where that is from: flag, its variable, ``edgegen tune``, bundle, or default.

    ``implied`` is what another option brings about, such as sampling with a temperature.
    """

    flag: str | None
    variable: str
    value: object
    source: str


def _verbs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    if context.params.get("arguments"):
        return []
    return [CompletionItem(verb, help=text) for verb, text in VERBS.items() if verb.startswith(incomplete)]


@click.command("config", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[VERB] [FLAG]...", shell_complete=_verbs)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(context: click.Context, arguments: tuple[str, ...], as_json: bool) -> None:
    """Show the options that VERB (generate, if left out) would run with, and where each comes from.

    A flag comes before its variable, EDGEGEN_ and its name, then comes the bundle's generation_config.json, then the
    default. FLAGs are those of VERB, such as -m: the model is not loaded.
    """
    verb, flags = _VERB, [*arguments]
    if flags and not flags[0].startswith("-"):
        verb = flags.pop(0)
    if verb not in VERBS:
        raise click.UsageError(f"no such command {verb!r}{did_you_mean(verb, VERBS)}.", context)
    of_verb = command_of(verb)
    warn_of_misspelt(of_verb, lambda: map(command_of, VERBS))
    settings = [*settings_of(of_verb, flags, context)]
    if verb == "serve" and os.environ.get(API_KEY):
        settings.append(Setting(None, API_KEY, "(not shown)", API_KEY))
    store, source = str(BundleStore().root), HOME if os.environ.get(HOME) else "default"
    if as_json:
        home = {"home": str(home_folder()), "bundles": store, "source": source}
        click.echo(json.dumps({"store": home, "verb": verb, "options": [asdict(setting) for setting in settings]}))
        return
    rows = [(setting.flag or setting.variable, _spelled(setting.value), setting.source) for setting in settings]
    click.echo(f"bundles are stored in {store} ({source})")
    for line in aligned(rows, (0, 1, 2)):
        click.echo(line)


def settings_of(command: click.Command, flags: list[str], parent: click.Context) -> Iterator[Setting]:
    """Return what a verb would run with: each of its options that has a variable, in the verb's order.

    Raises:
        click.UsageError: a flag is unknown or malformed.
        OptionError: an option is wrong, or contradicts another.
        BundleError: there is no such bundle, or it cannot be read.
    """
    variables = variables_of(command)
    parser = click.Command(command.name, params=[*variables.values()], add_help_option=False)
    with parser.make_context(command.name, flags, parent=parent) as read:
        asked, engine = given_options(), EngineOptions(**given_engine_options())
        server = asdict(ServerOptions()) | given_of(ServerOptions)
        bundle = _bundle(read.params)
        verbs = DEFAULTS.get(command.name or "", {})
        of_bundle = defaults = GenerationOptions().override(verbs)
        if bundle is not None:
            config = bundle.json(bundle.manifest.generation_config)
            context = bundle.manifest.model.max_context
            own = GenerationOptions.from_config(config, context)
            of_bundle = options_of_verb(command.name or "", own, context)
        effective = of_bundle.override(asked)
        tuned = engine
        if bundle is not None and command.name in _TUNED:
            tuned = tuned_for(engine, keep_kv=command.name in _TUNED_BUT_KV)(bundle)
        for variable, flag in variables.items():
            assert flag.name
            source = _source(read, flag, variable)
            value: Any = read.params.get(flag.name)
            if hasattr(effective, flag.name):
                value = getattr(effective, flag.name)
                before, default = getattr(of_bundle, flag.name), getattr(defaults, flag.name)
                if source == "default" or flag.name not in asked:
                    source = "implied" if value != before else "bundle" if before != default else "default"
            elif hasattr(engine, flag.name):
                value = getattr(engine, flag.name)
                if getattr(tuned, flag.name) != value:
                    value, source = getattr(tuned, flag.name), "tuned"
                if value is None and flag.name == "kv" and bundle is not None:
                    value, source = bundle.variant.kv.dtype, "bundle"
                elif value is None:
                    value = physical_cores() if flag.name == "threads" else default_of(OPTIONS[flag.name], None) or None
            elif flag.name in server:
                value = server[flag.name]
            yield Setting(max(flag.opts, key=len), variable, _as_flag(flag, value), source)


def _source(context: click.Context, flag: Flag, variable: str) -> str:
    match context.get_parameter_source(flag.name or ""):
        case ParameterSource.COMMANDLINE:
            return "flag"
        case ParameterSource.ENVIRONMENT:
            return variable
        case _:
            return "default"


def _bundle(given: dict[str, Any]) -> Bundle | None:
    """The model that a verb would load; of several, the first; None for a verb that loads none."""
    models = given.get("models") or ([given["model"]] if given.get("model") else [])
    return Bundle.open(BundleStore().resolve(models[0])) if models else None


def _as_flag(flag: Flag, value: object) -> object:
    """The value in the flag's sense: ``--no-store`` is on where ``store`` is off, and no keys are no file."""
    if value == () and not flag.multiple:
        return None
    return not value if flag.is_flag and flag.flag_value is False and not flag.secondary_opts else value


def _spelled(value: object) -> str:
    if isinstance(value, dict):
        pairs = cast(dict[object, object], value).items()
        value = [f"{token}={bias}" for token, bias in pairs]  # as --logit-bias takes it, and with -inf
    return json.dumps(value, ensure_ascii=False, default=str)
