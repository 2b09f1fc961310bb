"""``edgegen serve``: serve models over HTTP with OpenAI's, Anthropic's, ollama's and llama-server's APIs."""

import os
from contextlib import ExitStack
from dataclasses import replace
from logging import getLogger
from pathlib import Path

import click

from edgegen.bundle.store import DEFAULT_MODEL
from edgegen.cli.environment import API_KEY
from edgegen.cli.grouped_help import GroupedCommand, help_all, in_group
from edgegen.cli.max_memory import max_memory_flag, rest_of, within_memory
from edgegen.cli.model_to_run import MODEL_HELP, making_flags, models_given
from edgegen.cli.option_flags import flags_of, given_engine_options, given_of, option_flags
from edgegen.cli.tuned_options import tuned_engine_options, tuned_for
from edgegen.errors import UsageError
from edgegen.options.engine import EngineOptions
from edgegen.server.http.log import log_to
from edgegen.server.http.options import EVERY_ORIGIN, ServerOptions
from edgegen.system import share_freed_memory

_STDERR = 2
_SERVER = 30_000_000
"""Bytes of a server beside its models: Starlette, uvicorn, the page, and the buffers of some clients."""

_PREFIXES = 0.5
"""KV cache of finished requests, as a share of that of running ones."""

_EVERY_PAGE = (
    "with --allow-origin '*' and no API key, every page that a browser on this machine opens can use the server and "
    "read its answers."
)


@click.command("serve", cls=GroupedCommand)
@click.option(
    "-m",
    "--model",
    "models",
    metavar="BUNDLE",
    multiple=True,
    default=[DEFAULT_MODEL],
    show_default=True,
    cls=in_group("Server"),
    help=f"{MODEL_HELP[:-1]}, loaded at the start; may be repeated, the first is the default.",
)
@making_flags("Server")
@flags_of("serve", ServerOptions())
@option_flags("serve")
@max_memory_flag
@help_all
def command(models: tuple[str, ...], hub_names: tuple[str, ...], max_memory: int | None) -> None:
    """Serve models over HTTP with OpenAI's, Anthropic's, ollama's and llama-server's APIs, until Ctrl-C or SIGTERM.

    Only this machine reaches the server, unless --host says otherwise; then clients need an API key.
    """
    given = given_of(ServerOptions)
    given["keys"] = _keys(given.get("keys"))
    options = ServerOptions(**given)
    if max_memory is not None and options.memory_budget is not None:
        raise UsageError("--max-memory and --memory-budget exclude each other: the first counts the whole process.")
    if options.allow_pull and not options.store:
        raise UsageError("--allow-pull and --no-store exclude each other: what is pulled is a bundle of the store.")
    engine = EngineOptions(**given_engine_options())
    models = models_given(models, hub_names, parameter="models")
    names = [Path(model).name or model for model in models]
    if len(set(names)) < len(names):
        raise UsageError("two bundles have the same name: clients could not tell them apart.")
    if taken := sorted(set(names) & set(options.aliases)):
        raise UsageError(f"--alias {taken[0]}: a model of -m has that name.")
    if options.any_model and len(names) > 1:
        raise UsageError(f"--any-model: {len(names)} models are served, so a name has to say which; give one -m.")
    if engine.expect_sha256 is not None:
        if len(names) > 1:
            raise UsageError(f"--expect-sha256 is the hash of one bundle, and {len(names)} are to be served.")
        if options.allow_pull:
            raise UsageError("--allow-pull and --expect-sha256 exclude each other: no pulled bundle has this hash.")
        options = replace(options, store=False)  # no other bundle has this hash

    memory_budget, options_for = options.memory_budget, tuned_for(engine)
    if max_memory is not None:
        first = tuned_engine_options(models[0], engine)
        batch = engine.max_batch_size
        engine = within_memory(max_memory, models[0], first, batch=batch, beside=_SERVER, prefixes=_PREFIXES)
        memory_budget, options_for = rest_of(max_memory, _SERVER), None

    from edgegen.server.app import create_app
    from edgegen.server.http.last_call import CLOSING_SECONDS, LastCall
    from edgegen.server.http.listening import listening
    from edgegen.server.models.installed_models import InstalledModels
    from edgegen.server.models.pulls import Pulls
    from edgegen.server.runner import run

    share_freed_memory()
    if EVERY_ORIGIN in options.allowed_origins and not options.keys:
        click.echo(f"edgegen: warning: {_EVERY_PAGE}", err=True)
    with ExitStack() as stack:
        last_call = stack.enter_context(LastCall(options.grace_seconds + CLOSING_SECONDS))
        stack.enter_context(log_to(_STDERR, options.log_level, options.log_format))
        listener = stack.enter_context(listening(options))
        named = dict(zip(names, models, strict=True))
        installed = InstalledModels(named, engine, budget=memory_budget, store=options.store, options_for=options_for)
        stack.enter_context(installed)
        loaded = installed.load_given()
        pulls = stack.enter_context(Pulls())
        app = create_app(
            loaded,
            listener.options,
            running=engine.max_batch_size,
            source=installed,
            pulls=pulls if options.allow_pull else None,
        )
        others = len(installed.names()) - len(loaded)
        more = f" ({others} more on demand)" if others else ""
        serving = f"serving {', '.join(loaded)}{more} at {listener.where} (Ctrl-C ends it)"

        def told() -> None:
            if options.log_format == "json":
                getLogger("edgegen.server").info(serving)
            else:
                click.echo(f"edgegen: {serving}", err=True)

        run(app, listener.options, listener.socket, told, pulls.end, last_call)


def _keys(file: str | None) -> tuple[str, ...]:
    """The keys of a file, or else of the environment.

    Raises:
        UsageError: the file cannot be read, or has none.
    """
    if file is None:
        key = os.environ.get(API_KEY, "").strip()
        return (key,) if key else ()
    try:
        lines = [line.strip() for line in Path(file).read_text("utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {file}: {said}.") from None
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise UsageError(f"{file} has no API key: write one a line.")
    return keys
