"""``--max-memory``: the engine options that keep a command within a limit of memory, and the plan on standard error."""

import click

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import BundleStore
from edgegen.cli.grouped_help import in_group
from edgegen.cli.option_flags import BYTES, given_engine_options
from edgegen.options.engine import EngineOptions
from edgegen.system import LOCAL, Source

max_memory_flag = click.option(
    "--max-memory",
    metavar="BYTES",
    type=BYTES,
    cls=in_group("Speed and memory", is_common=False),
    help="Stay within this memory, such as 1GB: chooses context, KV cache and prefill chunk.",
)


def within_memory(
    limit: int | None,
    model: str,
    options: EngineOptions,
    *,
    batch: int = 1,
    beside: int = 0,
    prefixes: float = 0,
    keep_kv: bool = False,
    source: Source = LOCAL,
) -> EngineOptions:
    """``options``, or those of a plan within ``limit`` bytes, which is printed.

    ``keep_kv``: leave the type of the KV cache as it is; the others are those of :func:`plan_memory`.

    Raises:
        UsageError: the model does not fit.
        BundleError: there is no such bundle, or it cannot be read.
    """
    if limit is None:
        return options
    from edgegen.benchmark.memory_forecast import uncounted_memory
    from edgegen.benchmark.memory_plan import plan_memory

    beside += uncounted_memory(source)
    store = BundleStore()
    bundle = Bundle.open(store.resolve(model))
    draft = None if options.draft is None else Bundle.open(store.resolve(options.draft))
    given = {*given_engine_options(), *(("kv",) if keep_kv else ())}
    plan = plan_memory(bundle, limit, options, given=given, batch=batch, beside=beside, prefixes=prefixes, draft=draft)
    click.echo(f"edgegen: memory: {plan}.", err=True)
    return plan.options


def rest_of(limit: int, beside: int, source: Source = LOCAL) -> int:
    """Bytes for all models of a process, as :func:`within_memory` plans them."""
    from edgegen.benchmark.memory_forecast import PYTHON, uncounted_memory
    from edgegen.benchmark.memory_plan import PLANNED

    return int(limit * PLANNED) - PYTHON - uncounted_memory(source) - beside
