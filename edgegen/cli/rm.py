"""``edgegen rm``: delete a bundle from the store."""

from contextlib import suppress

import click

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import BundleStore
from edgegen.cli.flag import complete_bundle
from edgegen.errors import BundleError
from edgegen.model.packed_weights import remove_packed


@click.command("rm")
@click.argument("names", nargs=-1, required=True, shell_complete=complete_bundle)
def command(names: tuple[str, ...]) -> None:
    """Delete the bundles NAMES from the store. Bundles elsewhere are folders: delete them as such."""
    store = BundleStore()
    for name in names:
        store.require(name)
    for name in names:
        with suppress(BundleError):  # one that cannot be read was never run
            remove_packed(Bundle.open(store.require(name)))
        click.echo(f"removed {store.remove(name)}", err=True)
