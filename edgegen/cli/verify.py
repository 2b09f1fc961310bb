"""``edgegen verify``: a bundle's files against its manifest."""

import click

from edgegen.bundle import Bundle
from edgegen.store import DEFAULT_MODEL, BundleStore


@click.command("verify")
@click.argument("bundle", default=DEFAULT_MODEL)
def command(bundle: str) -> None:
    """Read every file of BUNDLE (a name or a path) and compare it with size and SHA-256 in the manifest."""
    opened = Bundle.open(BundleStore().resolve(bundle))
    opened.verify()
    click.echo(
        f"{opened.path}: {len(opened.manifest.files)} files, {opened.nbytes / 1e6:.1f} MB, all as the manifest says"
    )
