"""``edgegen rm``: delete a bundle from the store."""

from pathlib import Path

import click

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import BundleStore
from edgegen.cli.flag import complete_bundle
from edgegen.cli.printable import printable
from edgegen.errors import BundleError


@click.command("rm")
@click.argument("names", nargs=-1, required=True, shell_complete=complete_bundle)
def command(names: tuple[str, ...]) -> None:
    """Delete the bundles NAMES from the store. Bundles elsewhere are folders: delete them as such."""
    store = BundleStore()
    for name in names:
        store.require(name)
    for name in names:
        sha256 = _hash(store.require(name))
        click.echo(f"removed {store.remove(name)}", err=True)
        for entry in store:
            wanted = entry.bundle.manifest.base if entry.bundle and not entry.bundle.base else None
            if wanted is not None and wanted.sha256 == sha256:
                click.echo(f"{printable(entry.name)} is an adapter of it, and does not run without it", err=True)


def _hash(folder: Path) -> str | None:
    """The hash of a bundle; None of one that cannot be read."""
    try:
        return Bundle.open(folder).sha256
    except BundleError:
        return None
