"""``edgegen bench``: measure throughput, latency and memory of bundles on this machine."""

import json
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import edgegen
from edgegen.benchmark import Benchmark, BenchmarkOptions, Spread, run_benchmark
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.cli.bench_plot import check_plot, plot_decode
from edgegen.cli.bench_table import bench_table
from edgegen.cli.check import Check
from edgegen.cli.flag import F
from edgegen.cli.grouped_help import GroupedCommand, in_group
from edgegen.cli.option_flags import given_engine_options, option_flags
from edgegen.cli.progress_bar import progress_bar
from edgegen.errors import UsageError
from edgegen.model.kernels import describe_kernels
from edgegen.system import processor

_DEFAULTS = BenchmarkOptions()
_TESTS = in_group("Tests")


def _numbers(flag: str, default: Sequence[int], text: str) -> Callable[[F], F]:
    """A flag for several numbers to test with."""
    listed = ",".join(map(str, default))
    return click.option(flag, metavar="N,…", default=listed, show_default=True, cls=_TESTS, help=text)


@click.command("bench", cls=GroupedCommand)
@click.option(
    "-m",
    "--model",
    "models",
    metavar="BUNDLE",
    multiple=True,
    cls=_TESTS,
    help=f"A name or a path; may be repeated.  [{DEFAULT_MODEL}]",
)
@_numbers("--prefill", _DEFAULTS.prefill, "Lengths of prompts.")
@_numbers("--context", _DEFAULTS.contexts, "Contexts to decode at.")
@_numbers("--batch", _DEFAULTS.batches, "Sequences to decode together.")
@click.option(
    "--repeats",
    type=int,
    metavar="N",
    default=_DEFAULTS.repeats,
    show_default=True,
    cls=_TESTS,
    help="Rounds to measure.",
)
@option_flags("bench")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    cls=in_group("Output"),
    help="Draw tokens/s over context, a PNG.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    cls=in_group("Output"),
    help="Print one JSON object, with every single measurement.",
)
def command(
    models: tuple[str, ...],
    prefill: str,
    context: str,
    batch: str,
    repeats: int,
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
        **given_engine_options(),
    }
    options = check.options({name: value for name, value in numbers.items() if value is not None})
    if plot is not None:
        check.problems += check_plot(plot)
    for name in names:
        check.bundle(name, options)
    check.finish()

    with progress_bar("measuring") as show:
        results = run_benchmark(names, options, on_progress=show)
    if plot is not None:
        plot_decode(results, plot)
    if as_json:
        click.echo(json.dumps(_record(results, options), ensure_ascii=False))
        return
    click.echo(bench_table(results))
    click.echo(f"\n{_machine(results, options)}")


class _Check(Check):
    """Validates numbers, options and bundles."""

    def counts(self, name: str, text: str) -> tuple[int, ...] | None:
        """The numbers of a list."""
        if re.fullmatch(r"\s*-?\d+\s*(,\s*-?\d+\s*)*", text):
            return tuple(map(int, text.split(",")))
        self.problems.append(f"{name}: whole numbers with commas between them expected, found {text!r}")
        return None

    def options(self, params: dict[str, Any]) -> BenchmarkOptions:
        try:
            return BenchmarkOptions(**params)
        except UsageError as error:
            _, *problems = str(error).split("\n  - ")  # a list of them is to be a part of this one
            self.problems += problems or [str(error)]
            return BenchmarkOptions(kv=params.get("kv"))  # by which bundles are looked at

    def bundle(self, name: str, options: BenchmarkOptions) -> None:
        def look() -> None:
            bundle = Bundle.open(BundleStore().resolve(name))
            options.plan(bundle.manifest.model.max_context)
            bundle.variant_with(options.kv)

        self.attempt(look)


def _machine(results: Sequence[Benchmark], options: BenchmarkOptions) -> str:
    """Where the figures hold, in one line."""
    threads = results[0].threads
    return (
        f"{processor()}, {threads} thread{'s' if threads > 1 else ''}, {platform.system()}; "
        f"edgegen {edgegen.__version__}, onnxruntime {results[0].rounds[0].onnxruntime}, "
        f"kernels: {_kernels(options)}"
    )


def _kernels(options: BenchmarkOptions) -> str:
    """Measurements so far."""
    return describe_kernels(wanted=options.kernels == "auto")


def _record(results: Sequence[Benchmark], options: BenchmarkOptions) -> dict[str, Any]:
    return {
        "edgegen": edgegen.__version__,
        "machine": {
            "processor": processor(),
            "system": platform.platform(),
            "kernels": _kernels(options),
            "python": platform.python_version(),
        },
        "options": asdict(options),
        "results": [_result(one) for one in results],
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
