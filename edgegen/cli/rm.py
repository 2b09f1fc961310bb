"""``edgegen rm``: delete a bundle from the store."""

import click

from edgegen.bundle.store import BundleStore
from edgegen.cli.flag import complete_bundle


@click.command("rm")
@click.argument("names", nargs=-1, required=True, shell_complete=complete_bundle)
def command(names: tuple[str, ...]) -> None:
    """Delete the bundles NAMES from the store. Bundles elsewhere are folders: delete them as such."""
    store = BundleStore()
    for name in names:
        store.require(name)
    for name in names:
        click.echo(f"removed {store.remove(name)}", err=True)
