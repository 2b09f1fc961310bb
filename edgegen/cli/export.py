"""``edgegen export``: export a checkpoint to a bundle."""

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NoReturn

import click

from edgegen.bundle.checkpoint_place import GGUF, checkpoint_at, without_part
from edgegen.bundle.export_record import CheckpointFiles
from edgegen.bundle.store import BundleStore
from edgegen.cli.flag import Flag, complete_bundle, complete_file
from edgegen.cli.option_flags import flag_of, flags_of, given_of
from edgegen.cli.parity_table import parity_table
from edgegen.cli.printable import printable_lines
from edgegen.cli.progress_lines import ProgressLines
from edgegen.cli.remaining_time import RemainingTime
from edgegen.cli.scheme_flags import SCHEMES, given_flags, given_scheme, making_flag, scheme_flags
from edgegen.options.kinds import OneOf
from edgegen.options.option_set import options_of
from edgegen.system import expand_user, share_freed_memory
from edgegen_export.options import ExportOptions

if TYPE_CHECKING:
    from edgegen.bundle.bundle import Bundle
    from edgegen.evaluation.parity.report import ParityReport

NAMED_BUDGETS = {"int3": 3.6, "int2": 2.8}
"""Bits per weight of int4's formats and those below, by the flag that asks for them."""

_OF_ADAPTER = ("eval_text", "revision", "gguf_file", "force")
"""The options of an adapter that is kept; the bundle of its base decides the others."""


def _only(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The one value of an option, of which click would take the last without a word."""
    if len(values) > 1:
        raise click.BadParameter(f"give one, not {len(values)}: {', '.join(values)}.", context, option)
    return values[0] if values else None


quiet_flag = click.option("-q", "--quiet", is_flag=True, cls=Flag, help="Say nothing on standard error but errors.")


@click.command("export")
@click.argument("source", shell_complete=complete_file)
@scheme_flags
@making_flag("--int3", about="--int4 --bits-budget 3.6, for edgegen's kernels alone.")
@making_flag("--int2", about="--int4 --bits-budget 2.8, for edgegen's kernels alone.")
@flags_of("export", ExportOptions())
@click.option(
    "--adapter", multiple=True, callback=_only, help="LoRA adapter to merge in: a folder or a hub id, saved by PEFT."
)
@click.option(
    "--keep-adapter",
    metavar="BUNDLE",
    shell_complete=complete_bundle,
    help="Keep the adapter beside BUNDLE, which SOURCE was exported to, instead of merging it.",
)
@click.option(
    "--parity-plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="PNG to plot the error after each layer in; needs edgegen[plot].",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder to write.  [NAME-int8 in the store]")
@quiet_flag
def command(
    source: str,
    adapter: str | None,
    keep_adapter: str | None,
    parity_plot: Path | None,
    output: Path | None,
    quiet: bool,
) -> None:
    """Export SOURCE, a checkpoint folder, a GGUF file or a Hugging Face hub id, to a bundle.

    Without -o the bundle goes to the store, under the source's name and the scheme: `edgegen export gpt2 --int8`
    makes `gpt2-int8`, which `edgegen generate -m gpt2-int8` finds. With --adapter, the adapter's name follows the
    source's. The bundle's folder is printed.

    With --keep-adapter the bundle has the adapter alone, and runs with the graphs and weights of BUNDLE.
    """
    params = given_of(ExportOptions)
    asked = [name for name in (*SCHEMES, *NAMED_BUDGETS) if name in given_flags()]
    if keep_adapter is not None:
        of_base = [*(f"--{name}" for name in asked), *_of_base(params), *(("--parity-plot",) if parity_plot else ())]
        options = ExportOptions(**{name: value for name, value in params.items() if name in _OF_ADAPTER})
        _export_kept(source, keep_adapter, adapter, of_base, options, output=output, quiet=quiet)
        return
    chosen = given_scheme() or "int8"
    named = chosen
    if narrow := [name for name in NAMED_BUDGETS if name in asked]:
        others = [name for name in asked if name not in narrow]
        others += [name for name in ("bits_budget", "fast") if params.get(name)]
        if len(narrow + others) > 1:
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in narrow + others)
            raise click.UsageError(f"{flags} contradict each other: give one.")
        (named,) = narrow
        chosen, params["bits_budget"] = "int4", NAMED_BUDGETS[named]
    options = ExportOptions(**params, scheme=chosen, adapter=adapter)
    from edgegen_export.parity.plot import check_plot, plot_layers
    from edgegen_export.pipeline import export

    if parity_plot is not None:
        check_plot(parity_plot, traced=options.via == "optimum")
    names = [source_name(source, options.gguf_file), *([source_name(adapter)] if adapter else []), named]
    target = output or BundleStore().path("-".join(names))
    changed = options.bits_budget or adapter or options.draft_head or options.max_context or options.gguf_file
    files = None if changed or options.via == "optimum" else _files_to_remember(source, target)
    begin = time.perf_counter()
    share_freed_memory(large=True)
    with _Terminal(quiet) as terminal:
        bundle, report = export(source, target, options, progress=terminal)
    if files is not None:
        files.remember(bundle, chosen)
    if parity_plot is not None:
        plot_layers(report, bundle.manifest.name, parity_plot)
    if terminal.shown:
        click.echo(_made(bundle, report, time.perf_counter() - begin), err=True)
        click.echo(f"against the checkpoint, on {report.tokens} tokens of {report.text}:", err=True)
        click.echo(parity_table(report), err=True)
    click.echo(str(target))


def _of_base(params: Mapping[str, Any]) -> list[str]:
    """The flags that were given of what the bundle of its base decides for an adapter that is kept."""
    defaults = asdict(ExportOptions())
    return [
        f"{flag_of(option)} {params[option.name]}" if isinstance(option.kind, OneOf) else flag_of(option)
        for option in options_of(ExportOptions)
        if option.name not in _OF_ADAPTER and params.get(option.name, defaults[option.name]) != defaults[option.name]
    ]


def _export_kept(
    source: str,
    base: str,
    adapter: str | None,
    of_base: Sequence[str],
    options: ExportOptions,
    *,
    output: Path | None,
    quiet: bool,
) -> None:
    """Export ``adapter`` beside the bundle ``base``; ``of_base``: flags that were given of what that bundle decides.

    Raises:
        UsageError: flags that do not go together.
        EdgegenError: as ``edgegen_export.kept_adapter.export_adapter``.
    """
    if adapter is None:
        raise click.UsageError("--keep-adapter: give the adapter with --adapter.")
    if of_base:
        raise click.UsageError(f"{', '.join(of_base)}: {base} decides that; leave it out with --keep-adapter.")
    from edgegen.bundle.bundle import Bundle
    from edgegen_export.kept_adapter import export_adapter

    beside = Bundle.open(BundleStore().resolve(base))
    target = output or BundleStore().path(f"{beside.path.resolve().name}-{source_name(adapter)}")
    begin = time.perf_counter()
    share_freed_memory(large=True)
    with _Terminal(quiet) as terminal:
        bundle, report = export_adapter(source, beside, target, adapter, options, progress=terminal)
    if terminal.shown:
        size = f"{bundle.nbytes / 1e6:.1f} MB beside {beside.manifest.name}"
        click.echo(f"{bundle.manifest.name}: {size}, in {time.perf_counter() - begin:.1f} s", err=True)
        click.echo(f"against the merged checkpoint, on {report.tokens} tokens of {report.text}:", err=True)
        click.echo(parity_table(report), err=True)
    click.echo(str(target))


def export_for_here(
    source: str,
    target: Path,
    options: ExportOptions,
    *,
    quiet: bool = False,
    lines: ProgressLines | None = None,
) -> None:
    """Export ``source`` to a bundle that this machine is to run, with progress on a terminal, or in ``lines``.

    Raises:
        EdgegenError: as ``edgegen_export.pipeline.export``; also where the machine's memory is too small for it.
    """
    from edgegen_export.pipeline import export

    files = None if options.gguf_file or options.max_context else _files_to_remember(source, target)
    begin = time.perf_counter()
    share_freed_memory()
    with lines or _Terminal(quiet) as terminal:
        bundle, report = export(source, target, replace(options, runs_here=True), progress=terminal)
    if files is not None:
        files.remember(bundle, options.scheme)
    if terminal.shown:
        click.echo(_made(bundle, report, time.perf_counter() - begin), err=True)
        agreement = f"in {report.preferred.top1_agreement:.1%} of {report.tokens} places of {report.text}"
        click.echo(f"its likeliest next token is the checkpoint's {agreement}", err=True)


def needs_for_here(source: str, target: Path, options: ExportOptions) -> str | None:
    """Describe what exporting a checkpoint on this machine takes; None if it is not known.

    Raises:
        EdgegenError: it would be refused.
    """
    from edgegen_export.pipeline import needs_of

    return needs_of(source, target, options)


def _files_to_remember(source: str, target: Path) -> CheckpointFiles | None:
    """The files of a checkpoint on this machine, from which a bundle of the store is made; None for any other."""
    place = checkpoint_at(source)
    if place is None or target.absolute().parent != BundleStore().root.absolute():
        return None
    with suppress(OSError):
        return CheckpointFiles(place)
    return None


def _made(bundle: "Bundle", report: "ParityReport", seconds: float) -> str:
    """A bundle that was written, in a line."""
    size = f"{report.bundle_bytes / 1e6:.1f} MB, {report.weights_bytes / 1e6:.1f} of them weights"
    return f"{bundle.manifest.name}: {size}, in {seconds:.1f} s"


def source_name(source: str, gguf_file: str | None = None, kind: type[PurePath] = PurePath) -> str:
    """The last part of a path or a hub id; that of the GGUF file, without its suffix, where one is named.

    A quantization that is named instead stands at the end.

    ``kind``: how the system writes paths.
    """
    path = expand_user(Path(source))
    name = path.resolve().name if path.exists() else kind(source).name
    if gguf_file and not gguf_file.lower().endswith(GGUF):
        return f"{name}-{gguf_file}"
    file = gguf_file or (name if path.is_file() else "")
    return without_part(kind(file).stem) or name


_BAR = "{desc} {bar} {percentage:3.0f}%{postfix}"


class _Terminal:
    """Progress on standard error: a bar over the whole export on a terminal, only notes and warnings elsewhere."""

    def __init__(self, quiet: bool) -> None:
        from tqdm import tqdm

        self.shown = sys.stderr.isatty() and not quiet
        self._quiet = quiet
        self._remaining: RemainingTime | None = None
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._ticks = threading.Thread(target=self._tick, daemon=True)
        if quiet:
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        self._bar: tqdm[NoReturn] = tqdm(
            total=1, disable=not self.shown, leave=False, dynamic_ncols=True, bar_format="{desc}"
        )

    def __enter__(self) -> "_Terminal":
        if self.shown:
            self._ticks.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed.set()
        if self.shown:
            self._ticks.join()
        self._bar.close()

    def expect(self, seconds: Mapping[str, float]) -> None:
        with self._lock:
            self._remaining = RemainingTime(seconds)

    def stage(self, text: str) -> None:
        with self._lock:
            if self._remaining:
                self._remaining.stage(text)
            self._bar.set_description_str(text, refresh=False)
            self._show()

    def advance(self, done: int, total: int) -> None:
        with self._lock:
            if self._remaining:
                self._remaining.advance(done, total)

    def downloaded(self, file: str, sha256: str, done: int, total: int) -> None:
        """Nothing: huggingface_hub shows a bar of its own."""

    def note(self, text: str) -> None:
        self._say(text)

    def warn(self, text: str) -> None:
        self._say(f"warning: {text}")

    def _say(self, text: str) -> None:
        if not self._quiet:
            with self._lock:
                self._bar.clear()
                click.echo(f"edgegen: {printable_lines(text)}", err=True)  # it may quote a checkpoint

    def _tick(self) -> None:
        """Once a second: a stage may say nothing for long."""
        while not self._closed.wait(1):
            with self._lock:
                self._show()

    def _show(self) -> None:
        if not self.shown:  # tqdm's bar has no format then
            return
        if self._remaining and self._remaining.has_begun:  # before, such as in a download, nothing is known
            # What is left of a small export is so little that a slow moment before the first frame is a share of it.
            self._bar.n = self._remaining.share if self._bar.bar_format == _BAR else 0
            self._bar.bar_format = _BAR
            self._bar.set_postfix_str(f"~{time_left(self._remaining.seconds)} left", refresh=False)
        self._bar.refresh()


def time_left(seconds: float) -> str:
    """Seconds as on a clock, no finer than an estimate is."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{seconds / 3600:.1f} h"
