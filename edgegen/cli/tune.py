"""``edgegen tune``: measure the fastest threads, prefill chunk and KV cache for a bundle, and keep the choice."""

import json
from dataclasses import asdict
from typing import Any

import click

from edgegen.benchmark.tune import Trial, Tuning, tune
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.cli.flag import complete_bundle
from edgegen.cli.printable import aligned
from edgegen.cli.progress_bar import progress_bar
from edgegen.options.tuned import forget_tuned
from edgegen.system import processor


@click.command("tune")
@click.argument("bundle", default=DEFAULT_MODEL, shell_complete=complete_bundle)
@click.option(
    "--repeats", type=click.IntRange(min=1), metavar="N", default=2, show_default=True, help="Rounds to measure."
)
@click.option("--forget", is_flag=True, help="Remove the choice that is kept for BUNDLE, and measure nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with everything measured.")
def command(bundle: str, repeats: int, forget: bool, as_json: bool) -> None:
    """Measure which threads, prefill chunk and KV cache are fastest for BUNDLE (a name or a path) on this machine.

    The choice is kept in the user's data folder for this bundle and this kind of machine. generate, chat, batch and
    serve use it for what they are not given; `edgegen info` shows it.
    """
    opened = Bundle.open(BundleStore().resolve(bundle))
    if forget:
        said = "forgotten" if forget_tuned(opened) else "nothing is kept for this bundle on this machine"
        click.echo(json.dumps({"forgotten": said == "forgotten"}) if as_json else said)
        return
    with progress_bar("measuring") as show:
        found = tune(opened, repeats=repeats, on_progress=show)
    path = found.chosen.options.write(opened)
    if as_json:
        click.echo(json.dumps(_record(found, str(path)), ensure_ascii=False))
        return
    click.echo(tuning_table(found))
    click.echo(f"\n{processor()}; kept in {path}")


def tuning_table(found: Tuning) -> str:
    """Everything measured, a line each, and which is chosen."""
    heads = ["threads", "chunk", "KV cache", "prefill tok/s", "decode tok/s", f"{found.prompt_tokens} + 64 tokens, s"]
    rows = [heads, *(_cells(trial) for trial in found.trials)]
    marks = ["", *(_mark(trial, found) for trial in found.trials)]
    return "\n".join(line + mark for line, mark in zip(aligned(rows, ()), marks, strict=True))


def _cells(trial: Trial) -> list[str]:
    choice = trial.options
    speeds = [f"{speed:,.0f}" for speed in (trial.prefill_tokens_per_second, trial.decode_tokens_per_second)]
    return [str(choice.threads), str(choice.prefill_chunk), choice.kv, *speeds, f"{trial.seconds:.3f}"]


def _mark(trial: Trial, found: Tuning) -> str:
    names = ["default"] if trial is found.default else []
    return "  ← " + ", ".join([*names, "chosen"]) if trial is found.chosen else "  default" if names else ""


def _record(tuning: Tuning, path: str) -> dict[str, Any]:
    return {
        "path": path,
        "prompt_tokens": tuning.prompt_tokens,
        "chosen": asdict(tuning.chosen.options),
        "default": asdict(tuning.default.options),
        "trials": [asdict(trial) for trial in tuning.trials],
    }
