"""``edgegen export``: export a checkpoint to a bundle."""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from edgegen.bundle.checkpoint_place import GGUF, checkpoint_at, without_part
from edgegen.bundle.export_record import CheckpointFiles
from edgegen.bundle.store import BundleStore
from edgegen.cli.flag import Flag, complete_bundle, complete_file
from edgegen.cli.parity_table import parity_table
from edgegen.cli.printable import printable_lines
from edgegen.cli.progress_lines import ProgressLines
from edgegen.cli.remaining_time import RemainingTime
from edgegen.cli.scheme_flags import chosen_scheme, scheme_flags
from edgegen.system import expand_user, share_freed_memory

if TYPE_CHECKING:
    from edgegen.bundle.bundle import Bundle
    from edgegen.evaluation.parity.report import ParityReport
    from edgegen_export.quantize.recipe import Scheme
    from edgegen_export.source.model_source import Via


NAMED_BUDGETS = {"int3": 3.6, "int2": 2.8}
"""Bits per weight of int4's formats and those below, by the flag that asks for them."""


def _only(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The one value of an option, of which click would take the last without a word."""
    if len(values) > 1:
        raise click.BadParameter(f"give one, not {len(values)}: {', '.join(values)}.", context, option)
    return values[0] if values else None


F = TypeVar("F", bound=Callable[..., Any])


def source_flags(command: F) -> F:
    """Give a command the flags of what is taken of a source, and what is said and replaced."""
    flags = (
        click.option(
            "--max-context", type=int, metavar="N", help="Positions to export for.  [those the model was made for]"
        ),
        click.option("--revision", help="Branch, tag or commit of a hub repository."),
        click.option(
            "--gguf-file",
            metavar="NAME",
            help="GGUF file to take, or its quantization (Q4_K_M), where the source holds several.",
        ),
        click.option("--force", is_flag=True, help="Replace the bundle that is already there."),
        click.option("-q", "--quiet", is_flag=True, cls=Flag, help="Say nothing on standard error but errors."),
    )
    for flag in reversed(flags):
        command = flag(command)
    return command


@click.command("export")
@click.argument("source", shell_complete=complete_file)
@scheme_flags
@click.option(
    "--calibration",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Text to calibrate on.  [sampled from the model]",
)
@click.option(
    "--bits-budget",
    type=float,
    metavar="N",
    help="With --int4: bits per weight that matrices may take on average, embedding and scales included: 2.5 at "
    "least; fewer than 4.5 put 3 and 2 bits beside 4 and 8.  [4.7 for each of the layers', 7.25 of the embedding's, "
    "shared by all]",
)
@click.option("--int3", is_flag=True, help="--int4 --bits-budget 3.6, for edgegen's kernels alone.")
@click.option("--int2", is_flag=True, help="--int4 --bits-budget 2.8, for edgegen's kernels alone.")
@click.option(
    "--with-hidden", is_flag=True, help="Graphs that give the last hidden states too: for embeddings (LLM.embed)."
)
@click.option(
    "--no-mtp",
    is_flag=True,
    help="Leave out the multi-token prediction head that some checkpoints have, for speculative decoding.",
)
@click.option(
    "--draft-head",
    metavar="DIR",
    shell_complete=complete_file,
    help="Checkpoint of an EAGLE-3 draft of this model, or of a Gemma 4's assistant, a folder or a hub id: exported "
    "with it, for speculative decoding.",
)
@click.option(
    "--eval-text",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Text to compare the bundle with the checkpoint on; its first 512 tokens.  [a sample text]",
)
@click.option(
    "--parity-plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="PNG to plot the error after each layer in; needs edgegen[plot].",
)
@click.option(
    "--via",
    type=click.Choice(["edgegen", "optimum"]),
    default="edgegen",
    help="What builds the graphs: edgegen (the default), or optimum, which traces the model in torch, for "
    "architectures that edgegen does not know.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder to write.  [NAME-int8 in the store]")
@click.option(
    "--adapter", multiple=True, callback=_only, help="LoRA adapter to merge in: a folder or a hub id, saved by PEFT."
)
@click.option(
    "--keep-adapter",
    metavar="BUNDLE",
    shell_complete=complete_bundle,
    help="Keep the adapter beside BUNDLE, which SOURCE was exported to, instead of merging it.",
)
@source_flags
def command(
    source: str,
    int8: bool,
    int4: bool,
    fp16: bool,
    fp32: bool,
    fast: bool,
    calibration: Path | None,
    bits_budget: float | None,
    int3: bool,
    int2: bool,
    with_hidden: bool,
    no_mtp: bool,
    draft_head: str | None,
    eval_text: Path | None,
    parity_plot: Path | None,
    via: "Via",
    output: Path | None,
    max_context: int | None,
    revision: str | None,
    gguf_file: str | None,
    adapter: str | None,
    keep_adapter: str | None,
    force: bool,
    quiet: bool,
) -> None:
    """Export SOURCE, a checkpoint folder, a GGUF file or a Hugging Face hub id, to a bundle.

    Without -o the bundle goes to the store, under the source's name and the scheme: `edgegen export gpt2 --int8`
    makes `gpt2-int8`, which `edgegen generate -m gpt2-int8` finds. With --adapter, the adapter's name follows the
    source's. The bundle's folder is printed.

    With --keep-adapter the bundle has the adapter alone, and runs with the graphs and weights of BUNDLE.
    """
    if keep_adapter is not None:
        own: dict[str, object] = {
            **{f"--{name}": given for name, given in (("int8", int8), ("int4", int4), ("fp16", fp16), ("fp32", fp32))},
            "--fast": fast,
            "--calibration": calibration,
            "--bits-budget": bits_budget,
            "--int3": int3,
            "--int2": int2,
            "--with-hidden": with_hidden,
            "--no-mtp": no_mtp,
            "--draft-head": draft_head,
            "--via optimum": via == "optimum",
            "--max-context": max_context,
            "--parity-plot": parity_plot,
        }
        _export_kept(
            source,
            keep_adapter,
            adapter,
            [flag for flag, given in own.items() if given],
            output=output,
            eval_text=eval_text,
            revision=revision,
            gguf_file=gguf_file,
            force=force,
            quiet=quiet,
        )
        return
    chosen = chosen_scheme(int8=int8, int4=int4, fp16=fp16, fp32=fp32) or "int8"
    named = chosen
    if asked := [name for name, given in (("int3", int3), ("int2", int2)) if given]:
        others = {"int8": int8, "int4": int4, "fp16": fp16, "fp32": fp32, "bits-budget": bits_budget, "fast": fast}
        asked += [name for name, given in others.items() if given]
        if len(asked) > 1:
            flags = " and ".join(f"--{name}" for name in asked)
            raise click.UsageError(f"{flags} contradict each other: give one.")
        (named,) = asked
        chosen, bits_budget = "int4", NAMED_BUDGETS[named]
    from edgegen_export.parity.plot import check_plot, plot_layers
    from edgegen_export.pipeline import export

    if parity_plot is not None:
        check_plot(parity_plot, traced=via == "optimum")
    names = [source_name(source, gguf_file), *([source_name(adapter)] if adapter else []), named]
    target = output or BundleStore().path("-".join(names))
    plain = not (bits_budget or adapter or draft_head or max_context or gguf_file or via == "optimum")
    files = _files_to_remember(source, target) if plain else None
    begin = time.perf_counter()
    share_freed_memory()
    with _Terminal(quiet) as terminal:
        bundle, report = export(
            source,
            target,
            scheme=chosen,
            fast=fast,
            calibration=calibration,
            bits_budget=bits_budget,
            with_hidden=with_hidden,
            mtp=not no_mtp,
            eval_text=eval_text,
            via=via,
            revision=revision,
            gguf_file=gguf_file,
            adapter=adapter,
            draft_head=draft_head,
            force=force,
            max_context=max_context,
            progress=terminal,
        )
    if files is not None:
        files.remember(bundle, chosen)
    if parity_plot is not None:
        plot_layers(report, bundle.manifest.name, parity_plot)
    if terminal.shown:
        click.echo(_made(bundle, report, time.perf_counter() - begin), err=True)
        click.echo(f"against the checkpoint, on {report.tokens} tokens of {report.text}:", err=True)
        click.echo(parity_table(report), err=True)
    click.echo(str(target))


def _export_kept(
    source: str,
    base: str,
    adapter: str | None,
    of_base: Sequence[str],
    *,
    output: Path | None,
    eval_text: Path | None,
    revision: str | None,
    gguf_file: str | None,
    force: bool,
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
    share_freed_memory()
    with _Terminal(quiet) as terminal:
        bundle, report = export_adapter(
            source,
            beside,
            target,
            adapter,
            eval_text=eval_text,
            revision=revision,
            gguf_file=gguf_file,
            force=force,
            progress=terminal,
        )
    if terminal.shown:
        size = f"{bundle.nbytes / 1e6:.1f} MB beside {beside.manifest.name}"
        click.echo(f"{bundle.manifest.name}: {size}, in {time.perf_counter() - begin:.1f} s", err=True)
        click.echo(f"against the merged checkpoint, on {report.tokens} tokens of {report.text}:", err=True)
        click.echo(parity_table(report), err=True)
    click.echo(str(target))


def export_for_here(
    source: str,
    target: Path,
    scheme: "Scheme",
    *,
    fast: bool = False,
    max_context: int | None = None,
    revision: str | None = None,
    gguf_file: str | None = None,
    force: bool = False,
    quiet: bool = False,
    lines: ProgressLines | None = None,
) -> None:
    """Export ``source`` to a bundle that this machine is to run, with progress on a terminal, or in ``lines``.

    Raises:
        EdgegenError: as ``edgegen_export.pipeline.export``; also where the machine's memory is too small for it.
    """
    from edgegen_export.pipeline import export

    files = None if gguf_file or max_context else _files_to_remember(source, target)
    begin = time.perf_counter()
    share_freed_memory()
    with lines or _Terminal(quiet) as terminal:
        bundle, report = export(
            source,
            target,
            scheme=scheme,
            fast=fast,
            revision=revision,
            gguf_file=gguf_file,
            force=force,
            max_context=max_context,
            runs_here=True,
            progress=terminal,
        )
    if files is not None:
        files.remember(bundle, scheme)
    if terminal.shown:
        click.echo(_made(bundle, report, time.perf_counter() - begin), err=True)
        agreement = f"in {report.preferred.top1_agreement:.1%} of {report.tokens} places of {report.text}"
        click.echo(f"its likeliest next token is the checkpoint's {agreement}", err=True)


def needs_for_here(source: str, target: Path, scheme: "Scheme", *, fast: bool) -> str | None:
    """What exporting a checkpoint on this machine takes, in words; None if it is not known.

    Raises:
        EdgegenError: it would be refused.
    """
    from edgegen_export.pipeline import needs_of

    return needs_of(source, target, scheme, fast=fast)


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
        if self._remaining and self._remaining.has_begun:  # before, such as in a download, nothing is known
            self._bar.bar_format = _BAR
            self._bar.n = self._remaining.share
            self._bar.set_postfix_str(f"~{time_left(self._remaining.seconds)} left", refresh=False)
        self._bar.refresh()


def time_left(seconds: float) -> str:
    """Seconds as on a clock, no finer than an estimate is."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{seconds / 3600:.1f} h"
