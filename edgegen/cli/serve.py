"""``edgegen serve``: serve models over HTTP with OpenAI's, Anthropic's, ollama's and llama-server's APIs."""

import os
from contextlib import ExitStack
from logging import getLogger
from pathlib import Path
from typing import get_args

import click

from edgegen.bundle.store import DEFAULT_MODEL
from edgegen.cli.byte_count import byte_count
from edgegen.cli.grouped_help import GroupedCommand, help_all, in_group
from edgegen.cli.max_memory import max_memory_flag, rest_of, within_memory
from edgegen.cli.model_to_run import MODEL_HELP, making_flags, models_given
from edgegen.cli.option_flags import given_engine_options, option_flags
from edgegen.cli.tuned_options import tuned_engine_options, tuned_for
from edgegen.errors import UsageError
from edgegen.options.engine import EngineOptions
from edgegen.server.http.log import LogFormat, LogLevel, log_to
from edgegen.system import share_freed_memory

_KEY = "EDGEGEN_API_KEY"
_STDERR = 2
_SERVER = 30_000_000
"""Bytes of a server beside its models: Starlette, uvicorn, the page, and the buffers of some clients."""

_PREFIXES = 0.5
"""KV cache of finished requests, as a share of that of running ones."""

_EVERY_PAGE = (
    "with --allow-origin '*' and no API key, every page that a browser on this machine opens can use the server and "
    "read its answers."
)

_LIMITS = in_group("Server")
_LESS_COMMON = in_group("Server", is_common=False)


@click.command("serve", cls=GroupedCommand)
@click.option(
    "-m",
    "--model",
    "models",
    metavar="BUNDLE",
    multiple=True,
    default=[DEFAULT_MODEL],
    show_default=True,
    cls=_LIMITS,
    help=f"{MODEL_HELP[:-1]}, loaded at the start; may be repeated, the first is the default.",
)
@making_flags("Server")
@click.option(
    "--alias",
    "aliases",
    metavar="NAME",
    multiple=True,
    cls=_LESS_COMMON,
    help="Another name of the first model, such as gpt-4o-mini; may be repeated.",
)
@click.option(
    "--any-model", is_flag=True, cls=_LESS_COMMON, help="The one model of -m answers to every name that is not served."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    cls=_LIMITS,
    help="The address to listen on; a path that ends in .sock is a UNIX socket.",
)
@click.option("--port", type=int, default=8000, show_default=True, cls=_LIMITS, help="The port; 0 is any free one.")
@click.option(
    "--api-key-file",
    metavar="FILE",
    cls=_LIMITS,
    help=f"API keys that clients may use, one a line; or one key in {_KEY}.",
)
@click.option("--insecure", is_flag=True, cls=_LIMITS, help="Listen on other addresses without a key.")
@click.option(
    "--allow-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    cls=_LESS_COMMON,
    help="A name of this machine that clients use; may be repeated.",
)
@click.option(
    "--allow-origin",
    "allowed_origins",
    metavar="ORIGIN",
    multiple=True,
    cls=_LESS_COMMON,
    help="A site whose pages may use the server, such as https://app.example (CORS); may be repeated. '*' lets every "
    "page that a browser here opens use it.",
)
@click.option(
    "--allow-pull",
    is_flag=True,
    cls=_LIMITS,
    help="Clients may have models downloaded into the store, by POST /api/pull.",
)
@click.option(
    "--allow-priority",
    is_flag=True,
    cls=_LESS_COMMON,
    help="Requests may go before others, by a priority below 0. A steady stream of them holds up all others.",
)
@click.option(
    "--memory-budget",
    metavar="BYTES",
    type=byte_count,
    cls=_LIMITS,
    help="Memory of all loaded models, such as 4GB.  [80% of what is free]",
)
@click.option("--no-store", is_flag=True, cls=_LESS_COMMON, help="Serve the models of -m only, none of the store.")
@click.option(
    "--no-autoload", is_flag=True, cls=_LESS_COMMON, help="Load other models only when POST /models/load says so."
)
@click.option(
    "--max-queue", type=int, default=32, show_default=True, cls=_LESS_COMMON, help="Requests that may wait; then 503."
)
@click.option("--max-tokens", type=int, metavar="N", cls=_LESS_COMMON, help="Most tokens of an answer.  [the context]")
@click.option(
    "--request-seconds",
    type=float,
    default=600.0,
    show_default=True,
    cls=_LESS_COMMON,
    help="End a request after this time.",
)
@click.option(
    "--grace-seconds",
    type=float,
    default=30.0,
    show_default=True,
    cls=_LESS_COMMON,
    help="Let requests go on for this time when the server is stopped.",
)
@click.option(
    "--log-level",
    type=click.Choice(get_args(LogLevel)),
    default="info",
    show_default=True,
    cls=_LIMITS,
    help="info has a line for each request.",
)
@click.option(
    "--log-format",
    type=click.Choice(get_args(LogFormat)),
    default="text",
    show_default=True,
    cls=_LESS_COMMON,
    help="Lines of the log: text, or JSON objects.",
)
@option_flags("serve")
@max_memory_flag
@help_all
def command(
    models: tuple[str, ...],
    hub_names: tuple[str, ...],
    aliases: tuple[str, ...],
    any_model: bool,
    host: str,
    port: int,
    api_key_file: str | None,
    insecure: bool,
    allowed_hosts: tuple[str, ...],
    allowed_origins: tuple[str, ...],
    allow_pull: bool,
    allow_priority: bool,
    memory_budget: int | None,
    no_store: bool,
    no_autoload: bool,
    max_queue: int,
    max_tokens: int | None,
    request_seconds: float,
    grace_seconds: float,
    log_level: LogLevel,
    log_format: LogFormat,
    max_memory: int | None,
) -> None:
    """Serve models over HTTP with OpenAI's, Anthropic's, ollama's and llama-server's APIs, until Ctrl-C or SIGTERM.

    Only this machine reaches the server, unless --host says otherwise; then clients need an API key.
    """
    from edgegen.server.http.options import EVERY_ORIGIN, ServerOptions

    options = ServerOptions(
        host,
        port,
        keys=_keys(api_key_file),
        insecure=insecure,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        aliases=aliases,
        any_model=any_model,
        allow_priority=allow_priority,
        max_queue=max_queue,
        max_tokens=max_tokens,
        request_seconds=request_seconds,
        memory_budget=memory_budget,
        autoload=not no_autoload,
        grace_seconds=grace_seconds,
    )
    if max_memory is not None and memory_budget is not None:
        raise UsageError("--max-memory and --memory-budget exclude each other: the first counts the whole process.")
    if allow_pull and no_store:
        raise UsageError("--allow-pull and --no-store exclude each other: what is pulled is a bundle of the store.")
    engine = EngineOptions(**given_engine_options())
    models = models_given(models, hub_names, parameter="models")
    names = [Path(model).name or model for model in models]
    if len(set(names)) < len(names):
        raise UsageError("two bundles have the same name: clients could not tell them apart.")
    if taken := sorted(set(names) & set(aliases)):
        raise UsageError(f"--alias {taken[0]}: a model of -m has that name.")
    if any_model and len(names) > 1:
        raise UsageError(f"--any-model: {len(names)} models are served, so a name has to say which; give one -m.")
    if engine.expect_sha256 is not None:
        if len(names) > 1:
            raise UsageError(f"--expect-sha256 is the hash of one bundle, and {len(names)} are to be served.")
        if allow_pull:
            raise UsageError("--allow-pull and --expect-sha256 exclude each other: no pulled bundle has this hash.")
        no_store = True  # no other bundle has this hash

    options_for = tuned_for(engine)
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
        stack.enter_context(log_to(_STDERR, log_level, log_format))
        found = stack.enter_context(listening(options))
        given = dict(zip(names, models, strict=True))
        installed = InstalledModels(given, engine, budget=memory_budget, store=not no_store, options_for=options_for)
        stack.enter_context(installed)
        loaded = installed.load_given()
        pulls = stack.enter_context(Pulls())
        app = create_app(
            loaded,
            found.options,
            running=engine.max_batch_size,
            source=installed,
            pulls=pulls if allow_pull else None,
        )
        others = len(installed.names()) - len(loaded)
        more = f" ({others} more on demand)" if others else ""
        serving = f"serving {', '.join(loaded)}{more} at {found.where} (Ctrl-C ends it)"

        def told() -> None:
            if log_format == "json":
                getLogger("edgegen.server").info(serving)
            else:
                click.echo(f"edgegen: {serving}", err=True)

        run(app, found.options, found.socket, told, pulls.end, last_call)


def _keys(file: str | None) -> tuple[str, ...]:
    """The keys of a file, or else of the environment.

    Raises:
        UsageError: the file cannot be read, or has none.
    """
    if file is None:
        key = os.environ.get(_KEY, "").strip()
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
