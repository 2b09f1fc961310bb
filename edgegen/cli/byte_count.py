"""A number of bytes on the command line, with or without a unit: 4GB, 512MiB, 1500000000."""

import re

import click

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{rest}": base**power
    for power, letter in enumerate("kmgt", 1)
    for rest, base in (("", 1000), ("b", 1000), ("ib", 1024))
}


def byte_count(text: str) -> int:
    """Read a number of bytes with an optional unit, such as 4GB or 1.5GiB.

    Raises:
        BadParameter: ``text`` is no number of bytes.
    """
    found = re.fullmatch(r"(\d{1,18})(\.\d{1,9})? ?([a-z]*)", text.lower())
    unit = _UNITS.get(found[3]) if found else None
    if found is None or unit is None:
        raise click.BadParameter(f"{text!r} is no number of bytes, such as 4GB, 1.5GiB or 1500000000.")
    return int(found[1]) * unit + int(float(found[2] or 0) * unit)


BYTES = click.types.convert_type(byte_count)
"""The type of flags: one for all verbs."""
