"""Installed size of a distribution on disk, including its requirements."""

import re
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path


def installed_bytes(names: Iterable[str]) -> int | None:
    """Bytes of the distributions `names` and their requirements; None when one of `names` is missing.

    A requirement that is not installed does not apply here (another system, another Python).
    """
    closure: dict[str, int] = {}
    waiting = [*names]
    for name in waiting:
        if _found(name) is None:
            return None
    while waiting:
        name = _normal(waiting.pop())
        found = None if name in closure else _found(name)
        if found is not None:
            closure[name] = _size(found)
            waiting += [_name(text) for text in found.requires or () if not re.search(r"\bextra\b", text)]
    return sum(closure.values())


def _found(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _size(found: Distribution) -> int:
    paths = (Path(str(found.locate_file(file))) for file in found.files or ())
    return sum(path.stat().st_size for path in paths if path.is_file())


def _name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    assert match, requirement
    return match[0]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
