"""Source: where a checkpoint came from, as a bundle records it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of a checkpoint: a local folder's name, or a hub id with the commit it was fetched at."""

    kind: Literal["folder", "hub"]
    id: str
    revision: str | None = None
