"""``edgegen batch``: answer a file of prompts line by line, resumable."""

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from edgegen.batch.input import InputLine, read_lines
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.chat import ChatTemplate
from edgegen.cli.check import Check
from edgegen.cli.constraint_flags import constraint_flags, given_constraint
from edgegen.cli.flag import complete_file
from edgegen.cli.grouped_help import GroupedCommand, help_all, in_group
from edgegen.cli.max_memory import max_memory_flag, within_memory
from edgegen.cli.option_flags import given_engine_options, given_options, option_flags
from edgegen.cli.thinking_flags import check_thinking, thinking_flag
from edgegen.cli.tuned_options import tuned_engine_options
from edgegen.errors import UsageError
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions, GenerationOverrides
from edgegen.system import expand_user, open_regular

if TYPE_CHECKING:
    from edgegen.batch.output import BatchOutput
    from edgegen.batch.record import Entry
    from edgegen.batch.settings import BatchSettings

_BAR = "{bar:24} {n_fmt}/{total_fmt} lines  {desc}  {remaining} left"
_COUNT = "{n_fmt} lines  {desc}  {elapsed}"


@click.command("batch", cls=GroupedCommand)
@click.argument("prompts", metavar="FILE", shell_complete=complete_file)
@click.option(
    "-m",
    "--model",
    metavar="BUNDLE",
    default=DEFAULT_MODEL,
    show_default=True,
    cls=in_group("Prompt"),
    help="A name or a path.",
)
@option_flags("batch")
@constraint_flags
@click.option(
    "--ray",
    metavar="ADDRESS",
    cls=in_group("Speed and memory"),
    help="Run on a Ray cluster: HOST:PORT, auto, or local for a new one here.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    cls=in_group("Output"),
    help="Where the answers go; - is standard output.",
)
@click.option(
    "--force", is_flag=True, cls=in_group("Output"), help="Replace OUTPUT, and a partial OUTPUT of another batch."
)
@max_memory_flag
@help_all
def command(prompts: str, output: str, model: str, ray: str | None, force: bool, max_memory: int | None) -> int:
    """Answer every line of FILE (- is standard input), in order: resumable, and with continuous batching.

    A line is a JSON object with a "prompt" or "messages", and any generation option beside it, or a request in OpenAI's
    batch format. The options of this command are for lines that do not say otherwise. Every line samples with a seed of
    its own, made of --seed. A line that cannot be answered gets an error in its place; if there are any, the exit code
    is 1 in the end.

    Until the last line is answered, the answers are in OUTPUT.part. The same command goes on there after it was
    interrupted or killed.
    """
    check = Check()
    options = given_options() | {"grammar": check.attempt(given_constraint)}
    overrides = {name: value for name, value in options.items() if value is not None}
    check.attempt(lambda: GenerationOptions().override(cast(GenerationOverrides, overrides)))
    engine = check.attempt(lambda: EngineOptions(**given_engine_options()))
    if ray is not None and max_memory is not None:
        check.problems.append("--max-memory is for this machine: leave it out with --ray, or give --kv-budget.")
    if ray is not None and prompts == "-":
        check.problems.append("--ray reads its lines from a file, in any order: give one.")
    file = check.attempt(lambda: _opened(prompts, output))
    bundle = check.attempt(lambda: Bundle.open(BundleStore().resolve(model)))
    if bundle is not None and engine is not None:
        check.attempt(lambda: bundle.variant_with(engine.kv))
    if bundle is not None and thinking_flag(overrides):
        check.attempt(lambda: check_thinking(ChatTemplate.from_bundle(bundle), overrides))
    check.finish()
    assert file
    assert bundle
    assert engine

    from edgegen.batch.settings import BatchSettings

    # A worker has another working folder, and perhaps another store.
    named = bundle.path != expand_user(Path(model))
    # So may its machine be; and a partial output goes on with the KV cache that it was begun with.
    tuned = engine if ray is not None else tuned_engine_options(model, engine, keep_kv=True)
    tuned = within_memory(max_memory, model, tuned, batch=engine.max_batch_size, keep_kv=True)
    settings = BatchSettings(model if named else str(bundle.path.resolve()), overrides, tuned)
    with file, _output(output, settings.fingerprint(bundle), force=force) as target:
        lines = target.unanswered(read_lines(file))
        settings = replace(settings, created=target.created)
        entries = _entries(ray, Path(prompts), lines, settings, bundle)
        begin, before = perf_counter(), target.answered
        try:
            tokens = _write(entries, target, None if prompts == "-" else Path(prompts))
        except KeyboardInterrupt:
            if output != "-":
                click.echo(f"\nedgegen: {target.answered} lines are answered; the same command goes on.", err=True)
            raise
        target.finish()
        click.echo(_summary(target, target.answered - before, tokens, perf_counter() - begin), err=True)
        return 1 if target.failed else 0


def _opened(prompts: str, output: str) -> BinaryIO:
    """The input.

    Raises:
        UsageError: it cannot be read, or the output would take its place.
    """
    if prompts == "-":
        return os.fdopen(sys.stdin.fileno(), "rb", closefd=False)
    try:
        if output != "-" and Path(output).exists() and Path(prompts).samefile(output):
            raise UsageError(f"{output} is the input: give another output.")
        return open_regular(Path(prompts))
    except OSError as error:
        raise UsageError(f"cannot read {prompts}: {error.strerror}.") from None


def _output(output: str, fingerprint: dict[str, str], *, force: bool) -> "BatchOutput":
    from edgegen.batch.output import FileOutput, StreamOutput

    return StreamOutput(sys.stdout.buffer) if output == "-" else FileOutput(Path(output), fingerprint, force=force)


def _entries(
    ray: str | None, path: Path, lines: Iterator[InputLine], settings: "BatchSettings", bundle: Bundle
) -> "Iterator[Entry]":
    if ray is not None:
        from edgegen.batch.ray import answer_on_ray

        return answer_on_ray(ray, path.resolve(), lines, settings, bundle.digest)
    from edgegen.batch.job import BatchJob
    from edgegen.llm import LLM

    return BatchJob(LLM.load(settings.model, options=settings.engine), settings).answer(lines)


def _write(entries: "Iterator[Entry]", target: "BatchOutput", path: Path | None) -> int:
    """Write all entries; returns how many tokens they have. ``path`` is the input's, if it can be read twice."""
    tokens = 0
    with _bar(path, target.answered) as show:
        for entry in entries:
            target.append(entry)
            tokens += entry.tokens
            show(tokens)
    return tokens


@contextmanager
def _bar(path: Path | None, answered: int) -> Generator[Callable[[int], None]]:
    """Gives a function to call after each line with the number of tokens; on a terminal, it moves a bar."""
    if not sys.stderr.isatty():
        yield lambda tokens: None
        return
    from tqdm import tqdm

    total = None if path is None else _count(path)
    layout: Any = {"bar_format": _COUNT if total is None else _BAR, "leave": False}
    with tqdm(total=total, initial=answered, desc="- tok/s", **layout) as bar:
        begin = perf_counter()

        def show(tokens: int) -> None:
            bar.set_description_str(f"{tokens / (perf_counter() - begin):.0f} tok/s", refresh=False)
            bar.update()

        yield show


def _count(path: Path) -> int:
    with open_regular(path) as file:
        return sum(1 for _ in read_lines(file))


def _summary(target: "BatchOutput", lines: int, tokens: int, seconds: float) -> str:
    before = target.answered - lines
    parts = [
        f"{target.answered} lines" + (f", {before} of them before" if before else ""),
        *([f"{target.failed} failed"] if target.failed else []),
        f"{tokens} tokens in {seconds:.1f} s ({tokens / max(seconds, 1e-9):.0f} tok/s)",
    ]
    return "edgegen: " + " · ".join(parts)
