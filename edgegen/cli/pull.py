"""``edgegen pull``: download a model of the hub and make it a bundle of the store."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from edgegen.bundle.manifest import MANIFEST_NAME
from edgegen.bundle.store import BundleStore
from edgegen.cli.catalogue import catalogue, find_offer, table
from edgegen.cli.export import chosen_scheme, export_for_here, scheme_flags, source_flags, source_name
from edgegen.errors import HubError, UsageError, did_you_mean, quoted
from edgegen.system import expand_user

if TYPE_CHECKING:
    from edgegen.cli.export import Scheme

_HUB_PREFIXES = ("https://huggingface.co/", "huggingface.co/", "hf.co/")
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
@scheme_flags
@source_flags
def command(
    name: str | None,
    int8: bool,
    int4: bool,
    fp16: bool,
    fp32: bool,
    fast: bool,
    max_context: int | None,
    revision: str | None,
    gguf_file: str | None,
    force: bool,
    quiet: bool,
) -> None:
    """Download NAME, a name of the list or a Hugging Face hub id, and export it to a bundle of the store.

    Without NAME the list is printed. `edgegen pull smollm2-135m` makes `smollm2-135m-int8`, which `edgegen chat -m
    smollm2-135m-int8` finds. An interrupted download goes on where it was. Disk and memory are checked before weights
    are downloaded. The bundle's folder is printed.
    """
    scheme = chosen_scheme(int8=int8, int4=int4, fp16=fp16, fp32=fp32) or "int8"
    if name is None:
        width = shutil.get_terminal_size().columns
        click.echo("\n".join(table(width)))
        for note in _NOTES.splitlines():
            click.echo(click.wrap_text(note, width))
        return
    source = hub_id(name)
    target = BundleStore().path(pulled_name(name, scheme, gguf_file))
    if is_there(target) and not force:
        if not quiet:
            click.echo(f"edgegen: {target.name} is there already; --force pulls it again.", err=True)
    else:
        with near_names(source):
            export_for_here(
                source,
                target,
                scheme,
                fast=fast,
                max_context=max_context,
                revision=revision,
                gguf_file=gguf_file,
                force=force,
                quiet=quiet,
            )
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


def hub_id(name: str) -> str:
    """The hub id that a name of the list, an id or the address of its page means.

    Raises:
        UsageError: it is none of them.
    """
    if offer := find_offer(name):
        return offer.hub
    path = expand_user(Path(name))
    if path.exists():
        raise UsageError(f"{name} is a file or folder here, and pull downloads: run `edgegen export {name}`.")
    for prefix in _HUB_PREFIXES:
        name = name.removeprefix(prefix)
    owner, _, model = name.rpartition("/")
    if not model or "/" in owner or not all(c.isalnum() or c in "-_." for c in owner + model):
        near = did_you_mean(name.replace(":", "-"), [offer.name for offer in catalogue()])
        raise UsageError(
            f"{quoted(name)} is on no list and no hub id, which is OWNER/NAME{near}; `edgegen pull` prints the list."
        )
    return name


def pulled_name(name: str, scheme: "Scheme", gguf_file: str | None = None) -> str:
    """The bundle that pulling ``name`` makes."""
    offer = find_offer(name)
    return f"{offer.name if offer else source_name(name, gguf_file)}-{scheme}"


def is_there(target: Path) -> bool:
    """Whether the folder is a bundle."""
    return (target / MANIFEST_NAME).is_file()
