"""``edgegen verify``: check a bundle's files against its manifest, and its outputs against its parity report."""

from dataclasses import replace

import click

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.cli.flag import Flag, complete_bundle
from edgegen.cli.parity_table import parity_table
from edgegen.cli.progress_bar import progress_bar
from edgegen.errors import VerificationError, one_or_list
from edgegen.options.engine import EngineOptions


@click.command("verify")
@click.argument("bundle", default=DEFAULT_MODEL, shell_complete=complete_bundle)
@click.option("--parity", is_flag=True, help="Besides, measure the parity report again, and compare.")
@click.option("--expect-sha256", cls=Flag, metavar="HASH", help="Fail unless the bundle has this hash.")
def command(bundle: str, parity: bool, expect_sha256: str | None) -> None:
    """Read every file of BUNDLE (a name or a path) and compare it with size and SHA-256 in the manifest, and the
    manifest with its own.

    With --parity, run its graphs over the text that the report was made on, and compare them with what the unquantized
    model said then. It fails when the bundle is meaningfully worse here than it was when it was exported.
    """
    opened = Bundle.open(BundleStore().resolve(bundle))
    if expect_sha256 is not None:
        opened.expect(EngineOptions(expect_sha256=expect_sha256).expect_sha256 or "")
    opened.verify()
    click.echo(
        f"{opened.path}: {len(opened.manifest.files)} files, {opened.nbytes / 1e6:.1f} MB, all as the manifest says"
    )
    if opened.base is not None:
        click.echo(f"its base {opened.base.path}: {len(opened.base.manifest.files)} files, as its manifest says")
    if opened.manifest_digest.stated is None:
        click.echo("its edgegen.json has no hash of its own: an earlier edgegen wrote it. Export the model again.")
    click.echo(f"sha256 {opened.sha256}")
    if parity:
        _measure_again(opened)


def _measure_again(bundle: Bundle) -> None:
    """Measure the parity of a bundle on this machine, and print it beside the stored report.

    Raises:
        VerificationError: it is worse than its report says.
    """
    from edgegen.evaluation.parity.verify import recheck

    with progress_bar() as bar:
        done = recheck(bundle, bar)
    measured = replace(done.stored, variants=done.found, layer_errors={})  # layers are measured at an export only
    click.echo(f"against the checkpoint, on {measured.tokens} tokens of {measured.text}:")
    click.echo(parity_table(measured))
    for name, reason in done.skipped.items():
        click.echo(f"{name} was not measured: {reason}")
    if done.worse:
        raise VerificationError(
            f"{bundle.path} is worse on this machine than when it was exported: {one_or_list(done.worse)}\n"
            "Export it again here, or with another scheme."
        )
    if done.differences:
        click.echo(f"within tolerance of the stored report, but not the same: {one_or_list(done.differences)}")
    else:
        click.echo("the stored report, to the last digit")
