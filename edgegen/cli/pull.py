"""``edgegen pull``: download a model of the hub and make it a bundle of the store."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, cast

import click
from click.shell_completion import CompletionItem

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.catalogue import catalogue, find_offer
from edgegen.bundle.hub_name import HubReference, pulled_name
from edgegen.bundle.manifest import MANIFEST_NAME
from edgegen.bundle.store import BundleStore
from edgegen.cli.catalogue import table
from edgegen.cli.export import ExportOptions, export_for_here, quiet_flag
from edgegen.cli.option_flags import flags_of, given_of
from edgegen.cli.progress_lines import ProgressLines
from edgegen.cli.scheme_flags import Scheme, given_scheme, hub_flag, scheme_flags
from edgegen.errors import HubError, UsageError, did_you_mean
from edgegen.system import expand_user

VERIFYING = "verifying"
"""The stage of ``--progress json`` in which the bundle's files are compared with their hashes."""

_NOTES = """\
GB of the download, of a bundle in int8 and in int4, and of the memory that running it takes with 4096 tokens.
* The hub wants its terms accepted, and a token in HF_TOKEN.
Any other model of a family that edgegen knows: edgegen pull OWNER/NAME."""


def complete_offer(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the list that begin with ``incomplete``."""
    return [
        CompletionItem(offer.name, help=offer.hub) for offer in catalogue() if offer.name.startswith(incomplete.lower())
    ]


@click.command("pull")
@click.argument("name", required=False, shell_complete=complete_offer)
@hub_flag(click.Option)
@scheme_flags
@flags_of("pull", ExportOptions())
@quiet_flag
@click.option(
    "--progress",
    type=click.Choice(["terminal", "json"]),
    default="terminal",
    show_default=True,
    help="How progress is shown on standard error: a bar, if that is a terminal, or JSON lines for programs.",
)
def command(
    name: str | None,
    hub_names: tuple[str, ...],
    quiet: bool,
    progress: Literal["terminal", "json"],
) -> None:
    """Download NAME, a name of the list or a Hugging Face hub id, and export it to a bundle of the store.

    Without NAME the list is printed. NAME may be hf.co/OWNER/NAME:QUANT, where QUANT is the quantization of a GGUF file
    of the repository, or int8 or int4. `edgegen pull smollm2-135m` makes `smollm2-135m-int8`, which `edgegen chat -m
    smollm2-135m-int8` finds. An interrupted download goes on where it was. Disk and memory are checked before weights
    are downloaded. The bundle's folder is printed.
    """
    params = given_of(ExportOptions)
    asked = given_scheme()
    if hub_names:
        if name is not None or len(hub_names) > 1:
            raise UsageError("pull downloads one model: give NAME or -hf, once.")
        name = next(iter(hub_names))
    if name is None:
        width = shutil.get_terminal_size().columns
        click.echo("\n".join(table(width)))
        for note in _NOTES.splitlines():
            click.echo(click.wrap_text(note, width))
        return
    reference = HubReference.of(name) if hub_names else to_pull(name)
    scheme = scheme_of(reference, asked) or "int8"
    gguf_file = params.get("gguf_file")
    if gguf_file and reference.gguf:
        raise UsageError(f"--gguf-file {gguf_file} and {reference.gguf!r} after the colon contradict each other.")
    source, params["gguf_file"] = reference.hub, gguf_file or reference.gguf
    options = ExportOptions(**params, scheme=scheme)
    target = BundleStore().path(pulled_name(source, scheme, options.gguf_file))
    if is_there(target) and not options.force:
        if not quiet:
            click.echo(f"edgegen: {target.name} is there already; --force pulls it again.", err=True)
    else:
        lines = ProgressLines(quiet) if progress == "json" else None
        with near_names(source):
            export_for_here(source, target, options, quiet=quiet, lines=lines)
        if lines is not None:
            lines.stage(VERIFYING)
            Bundle.open(target).verify_once()  # remembered, so that whoever runs it next need not
    click.echo(str(target))


@contextmanager
def near_names(source: str) -> Generator[None]:
    """Add the nearest name of the list to an error of the hub about ``source``."""
    try:
        yield
    except HubError as error:
        if near := did_you_mean(source, [offer.name for offer in catalogue()]):
            error.add_note(f"`edgegen pull` lists models by name{near}")
        raise


def to_pull(name: str) -> HubReference:
    """The model of the hub that is to be pulled.

    Raises:
        UsageError: ``name`` means something on this machine, or nothing on the hub.
    """
    if find_offer(name) is None and expand_user(Path(name)).exists():
        raise UsageError(f"{name} is a file or folder here, and pull downloads: run `edgegen export {name}`.")
    return HubReference.of(name)


def scheme_of(reference: HubReference, asked: "Scheme | None") -> "Scheme | None":
    """The scheme that the name or the flags ask for; None without one.

    Raises:
        UsageError: they ask for two.
    """
    named = cast("Scheme | None", reference.scheme)
    if named and asked and named != asked:
        raise UsageError(f"--{asked} and {named!r} after the colon contradict each other.")
    return named or asked


def is_there(target: Path) -> bool:
    """Whether the folder is a bundle."""
    return (target / MANIFEST_NAME).is_file()
