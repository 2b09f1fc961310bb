"""``edgegen bench``: how fast bundles run on this machine, and in how much memory."""

import json
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import edgegen
from edgegen.benchmark import Benchmark, BenchmarkOptions, Spread, run_benchmark
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import KVDtype
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.cli.bench_plot import check_plot, plot_decode
from edgegen.cli.bench_table import bench_table
from edgegen.cli.check import Check
from edgegen.cli.progress_bar import progress_bar
from edgegen.errors import UsageError
from edgegen.system import processor

_DEFAULTS = BenchmarkOptions()


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


@click.command("bench")
@click.option(
    "-m", "--model", "models", multiple=True, help=f"A bundle's name or path; may be repeated.  [{DEFAULT_MODEL}]"
)
@click.option("--prefill", default=_listed(_DEFAULTS.prefill), show_default=True, help="Lengths of prompts.")
@click.option("--context", default=_listed(_DEFAULTS.contexts), show_default=True, help="Contexts to decode at.")
@click.option("--batch", default=_listed(_DEFAULTS.batches), show_default=True, help="Rows to decode together.")
@click.option("--repeats", type=int, default=_DEFAULTS.repeats, show_default=True, help="Rounds to measure.")
@click.option("--threads", type=int, help="Threads to compute with.  [physical cores]")
@click.option("--kv", type=click.Choice(["float32", "int8"]), help="Keys and values, as in edgegen generate.")
@click.option("--prefill-chunk", type=int, help=f"Most prompt tokens per step.  [{_DEFAULTS.prefill_chunk}]")
@click.option("--fast-prefill", is_flag=True, help="As in edgegen generate.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw tokens/s over context, a PNG.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every single measurement.")
def command(
    models: tuple[str, ...],
    prefill: str,
    context: str,
    batch: str,
    repeats: int,
    threads: int | None,
    kv: KVDtype | None,
    prefill_chunk: int | None,
    fast_prefill: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Measure how fast models run on this machine, in how much memory, and how near that is to the machine's limit.

    The models take turns, each in a fresh process for every round, on random tokens. Figures are medians of the rounds,
    with the least and the greatest in brackets. Lengths are in tokens, with commas between them; those beyond a model's
    context are left out.
    """
    names = tuple(dict.fromkeys(models)) or (DEFAULT_MODEL,)
    check = _Check()
    numbers = {
        "prefill": check.counts("prefill", prefill),
        "contexts": check.counts("context", context),
        "batches": check.counts("batch", batch),
        "repeats": repeats,
        "threads": threads,
        "kv": kv,
        "prefill_chunk": prefill_chunk,
        "fast_prefill": fast_prefill,
    }
    options = check.options({name: value for name, value in numbers.items() if value is not None})
    if plot is not None:
        check.faults += check_plot(plot)
    for name in names:
        check.bundle(name, options)
    check.finish()

    with progress_bar("measuring") as show:
        found = run_benchmark(names, options, on_progress=show)
    if plot is not None:
        plot_decode(found, plot)
    if as_json:
        click.echo(json.dumps(_record(found, options), ensure_ascii=False))
        return
    click.echo(bench_table(found))
    click.echo(f"\n{_machine(found)}")


class _Check(Check):
    """Of numbers, options and bundles."""

    def counts(self, name: str, text: str) -> tuple[int, ...] | None:
        """The numbers of a list."""
        if re.fullmatch(r"\s*-?\d+\s*(,\s*-?\d+\s*)*", text):
            return tuple(map(int, text.split(",")))
        self.faults.append(f"{name}: whole numbers with commas between them expected, found {text!r}")
        return None

    def options(self, given: dict[str, Any]) -> BenchmarkOptions:
        try:
            return BenchmarkOptions(**given)
        except UsageError as error:
            _, *problems = str(error).split("\n  - ")  # a list of them is to be a part of this one
            self.faults += problems or [str(error)]
            return BenchmarkOptions(kv=given.get("kv"))  # by which bundles are looked at

    def bundle(self, name: str, options: BenchmarkOptions) -> None:
        def look() -> None:
            bundle = Bundle.open(BundleStore().resolve(name))
            options.plan(bundle.manifest.model.max_context)
            bundle.variant_with(options.kv, fast_prefill=options.fast_prefill)

        self.attempt(look)


def _machine(found: Sequence[Benchmark]) -> str:
    """Where the figures hold, in one line."""
    threads = found[0].threads
    return (
        f"{processor()}, {threads} thread{'s' if threads > 1 else ''}, {platform.system()}; "
        f"edgegen {edgegen.__version__}, onnxruntime {found[0].rounds[0].onnxruntime}"
    )


def _record(found: Sequence[Benchmark], options: BenchmarkOptions) -> dict[str, Any]:
    return {
        "edgegen": edgegen.__version__,
        "machine": {
            "processor": processor(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "options": asdict(options),
        "results": [_result(one) for one in found],
    }


def _result(one: Benchmark) -> dict[str, Any]:
    return {
        "model": one.model,
        "threads": one.threads,
        "kv": one.kv,
        "decode": [{"context": context, **asdict(speed)} for context, speed in one.decode.items()],
        "prefill": [{"tokens": tokens, "tokens_per_second": asdict(speed)} for tokens, speed in one.prefill.items()],
        "batch": [{"rows": rows, **asdict(speed)} for rows, speed in one.batch.items()],
        "first_token_seconds": _spread(one.first_token_seconds),
        "load_seconds": _spread(one.load_seconds),
        "memory_bytes": _spread(one.memory_bytes),
        "peak_bytes": _spread(one.peak_bytes),
        "weights_bytes": one.weights_bytes,
        "kv_bytes": one.kv_bytes,
        "kv_bytes_per_token": one.kv_bytes_per_token,
        "bandwidth": _spread(one.bandwidth),
        "spin_seconds": _spread(one.spin_seconds),
        "idle_cpu": _spread(one.idle_cpu),
        "left_out": one.left_out,
        "rounds": [asdict(each) for each in one.rounds],
    }


def _spread(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else asdict(spread)
