"""Bundles whose parity report says something else than was measured."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import MANIFEST_NAME, FileEntry
from edgegen.evaluation.parity.report import ParityReport, VariantParity


def replace_parity(folder: Path, variant: str, parity: VariantParity) -> None:
    """Have the manifest and the report of a bundle say that ``variant`` was so near to the checkpoint."""
    bundle = Bundle.open(folder)
    report = ParityReport.read(bundle)
    data = json.dumps(replace(report, variants={**report.variants, variant: parity}).to_json()).encode()
    name = bundle.manifest.parity
    bundle.file(name).write_bytes(data)
    files = {**bundle.manifest.files, name: FileEntry(len(data), hashlib.sha256(data).hexdigest())}
    (folder / MANIFEST_NAME).write_text(replace(bundle.manifest, files=files).to_json(), newline="\n")


def with_costly_int4_kv(folder: Path, mean_kl: float = 0.31) -> str:
    """Have a bundle's report say so of its int4 KV cache; returns what is said where it is chosen."""
    bundle = Bundle.open(folder)
    report, packed = ParityReport.read(bundle), bundle.variant_with("int4").name
    replace_parity(folder, packed, replace(report.variants[packed], mean_kl=mean_kl))
    int8 = report.variants[bundle.variant_with("int8").name].mean_kl
    return (
        f"a KV cache in int4 costs {bundle.manifest.name} much (mean KL {mean_kl:.2g} nats, and {int8:.2g} with int8): "
        "take --kv int8"
    )
