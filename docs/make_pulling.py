"""Write the sizes of edgegen/bundle/catalogue.json, and the table of docs/pulling.md from it.

python docs/make_pulling.py
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgegen.bundle.catalogue import FILE, Offer, Size, catalogue
from edgegen.cli.catalogue import count, gigabytes
from edgegen_export.families import FAMILIES
from edgegen_export.files.progress import Silent
from edgegen_export.preflight.estimate import estimate
from edgegen_export.quantize.recipe import Scheme
from edgegen_export.source.family_source import FamilyLoader
from tests.families.real_configs import REAL_CONFIGS

PAGE = Path(__file__).with_name("pulling.md")
BEGIN, END = "<!-- catalogue:begin -->\n", "<!-- catalogue:end -->\n"


def sized(offer: Offer) -> Offer:
    """``offer`` with the sizes that its config gives."""
    config = next(one for one in REAL_CONFIGS if one.checkpoint == offer.config)
    raw = config.read()
    head = raw["vocab_size"] * raw["hidden_size"] if offer.has_head_twice else 0
    sizes = (_size(raw, "int8"), _size(raw, "int4"))
    found = (config.parameters, 2 * (config.parameters + head), *sizes)
    return Offer(offer.name, offer.hub, offer.config, offer.licence, offer.gated, offer.has_head_twice, *found)


def data() -> str:
    """The text of the catalogue's file as it should be."""
    about = json.loads(FILE.read_text("utf-8"))["about"]
    models = [asdict(sized(offer)) for offer in catalogue()]
    return json.dumps({"about": about, "models": models}, indent=1) + "\n"


def page(offers: tuple[Offer, ...]) -> str:
    """docs/pulling.md as it should be."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    head = (
        "| name | hub id | parameters | download, GB | int8: disk | memory | int4: disk | memory | licence |\n"
        "|---|---|---:|---:|---:|---:|---:|---:|---|\n"
    )
    return before + BEGIN + head + "".join(map(_row, offers)) + END + after


def _size(raw: Any, scheme: Scheme) -> Size:
    decoder = FamilyLoader(FAMILIES, None, None, Silent()).decoder(raw)
    assert decoder is not None
    found = estimate(decoder, scheme, fast=False, gflops=1.0)
    return Size(found.bundle, found.running)


def _row(offer: Offer) -> str:
    sizes = (offer.download, offer.int8.bundle, offer.int8.memory, offer.int4.bundle, offer.int4.memory)
    licence = f"{offer.licence}, gated" if offer.gated else offer.licence
    cells = (offer.name, offer.hub, count(offer.parameters), *map(gigabytes, sizes), licence)
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    FILE.write_text(data(), "utf-8")
    PAGE.write_text(page(tuple(map(sized, catalogue()))), "utf-8")
    sys.stdout.write(f"{FILE}\n{PAGE}\n")
