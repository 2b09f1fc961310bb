"""Catalogue: the small instruct models that ``edgegen pull`` lists by short names, and the sizes of each.

``python docs/make_pulling.py`` computes the sizes from the checkpoints' published configs; nothing was downloaded.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from edgegen.strict_json import decode

FILE = Path(__file__).with_name("catalogue.json")


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of a ``bundle`` on the disk, and of the ``memory`` that running it takes with 4,096 tokens."""

    bundle: int
    memory: int


@dataclass(frozen=True, slots=True)
class Offer:
    """A model of the catalogue.

    ``hub``: its id on the hub. ``config``: the checkpoint whose published config has its shapes. ``gated``: the hub
    wants its terms accepted first. ``has_head_twice``: its file holds the tied head besides the embeddings.
    ``download``: bytes of its weights, two for each parameter.
    """

    name: str
    hub: str
    config: str
    licence: str
    gated: bool
    has_head_twice: bool
    parameters: int
    download: int
    int8: Size
    int4: Size


@cache
def catalogue() -> tuple[Offer, ...]:
    """All of them, the smallest first."""
    problems = list[str]()
    raw: Any = json.loads(FILE.read_text("utf-8"))
    offers: tuple[Offer, ...] = decode(tuple[Offer, ...], raw["models"], "models", problems)
    assert not problems, problems
    return offers


def find_offer(name: str) -> Offer | None:
    """The model of that name, in which ``:`` may stand for ``-`` as in ollama's, or of that hub id."""
    asked = name.lower()
    wanted = asked.removesuffix(":latest").replace(":", "-")
    return next((offer for offer in catalogue() if wanted == offer.name or asked == offer.hub.lower()), None)
