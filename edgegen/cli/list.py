"""``edgegen list``: list the bundles of the store and the embedded one."""

import json

import click

from edgegen.bundle.store import BundleStore
from edgegen.cli.printable import printable, printable_lines


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(as_json: bool) -> None:
    """List the bundles you can name with -m: the embedded one and those in the store."""
    entries = list(BundleStore())
    if as_json:
        for entry in entries:
            size = entry.bundle.nbytes if entry.bundle else None
            scheme = entry.bundle.manifest.quantization.scheme if entry.bundle else None
            sha256 = entry.bundle.sha256 if entry.bundle else None
            click.echo(
                json.dumps(
                    {
                        "name": entry.name,
                        "path": str(entry.path),
                        "scheme": scheme,
                        "bytes": size,
                        "sha256": sha256,
                        "problem": entry.problem,
                    }
                )
            )
        return
    width = max([len(printable(entry.name)) for entry in entries], default=0)
    for entry in entries:
        if entry.bundle is None:
            click.echo(f"{printable(entry.name):<{width}}  unreadable: {printable_lines(entry.problem or '')}")
            continue
        manifest = entry.bundle.manifest
        click.echo(
            f"{printable(entry.name):<{width}}  {manifest.quantization.scheme:<5}  "
            f"{manifest.model.parameters / 1e6:8.1f}M  {entry.bundle.nbytes / 1e6:8.1f} MB  "
            f"{printable(manifest.source.id)}"
        )
