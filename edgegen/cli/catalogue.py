"""The catalogue as ``edgegen pull`` prints it: a table that fits the terminal."""

from edgegen.bundle.catalogue import Offer, catalogue
from edgegen.cli.printable import aligned


def table(width: int) -> list[str]:
    """The catalogue in lines, with as many columns as fit ``width``; sizes are in GB."""
    rows = [_HEADS, *map(_row, catalogue())]
    for kept in _COLUMNS[:-1]:
        lines = aligned([[row[n] for n in kept] for row in rows], _WORDS)
        if max(map(len, lines)) <= width:
            return lines
    return aligned([[row[n] for n in _COLUMNS[-1]] for row in rows], _WORDS)


_HEADS = ("name", "params", "download", "int8", "memory", "int4", "memory", "licence")
_COLUMNS = ((0, 1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3, 4, 5, 6), (0, 1, 2, 3, 4), (0, 2, 4))
_WORDS = (0, 7)
"""Columns of names and licences; the others are numbers."""


def _row(offer: Offer) -> tuple[str, ...]:
    sizes = (offer.download, offer.int8.bundle, offer.int8.memory, offer.int4.bundle, offer.int4.memory)
    licence = offer.licence + (" *" if offer.gated else "")
    return (offer.name, count(offer.parameters), *map(gigabytes, sizes), licence)


def gigabytes(nbytes: int) -> str:
    """Bytes as GB with two digits after the point."""
    return f"{nbytes / 1e9:.2f}"


def count(parameters: int) -> str:
    """Parameters in three digits or so: ``135M``, ``1.24B``, ``5.4M``."""
    if parameters >= 999_500_000:
        return f"{parameters / 1e9:.2f}B"
    return f"{parameters / 1e6:.0f}M" if parameters >= 9_950_000 else f"{parameters / 1e6:.1f}M"
