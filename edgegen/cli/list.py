"""``edgegen list``: list the bundles of the store and the embedded one."""

import json

import click

from edgegen.bundle.store import BundleStore, Listed
from edgegen.cli.catalogue import count
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
            base = entry.bundle.manifest.base if entry.bundle else None
            click.echo(
                json.dumps(
                    {
                        "name": entry.name,
                        "path": str(entry.path),
                        "scheme": scheme,
                        "bytes": size,
                        "sha256": sha256,
                        "base": base.sha256 if base else None,
                        "problem": entry.problem,
                    }
                )
            )
        return
    rows = [("name", "scheme", "params", "size", "source"), *(_row(entry) for entry in entries)]
    name, scheme, params, size, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    for row, problem in zip(rows, [None, *(entry.problem for entry in entries)], strict=True):
        facts = f"{row[1]:<{scheme}}  {row[2]:>{params}}  {row[3]:>{size}}  {row[4]}"
        click.echo(f"{row[0]:<{name}}  {facts if problem is None else f'unreadable: {printable_lines(problem)}'}")


def _row(entry: Listed) -> tuple[str, str, str, str, str]:
    """An entry's cells; only the name of one that cannot be read."""
    if entry.bundle is None:
        return printable(entry.name), "", "", "", ""
    manifest = entry.bundle.manifest
    facts = (count(manifest.model.parameters), f"{entry.bundle.nbytes / 1e6:,.1f} MB")
    origin = manifest.source.id
    if manifest.base is not None and manifest.source.adapter is not None:
        origin = f"{manifest.source.adapter.id}, an adapter beside {manifest.base.name}"
        origin += "" if entry.bundle.base else ", which is not there"
    return printable(entry.name), manifest.quantization.scheme, *facts, printable(origin)
