"""The supported model families, each as data in its own file of this folder."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.families.wrapped import wrappers


def _families() -> Iterator[Architecture]:
    """The families of each file, in the order of its names; one that other files import is listed once."""
    seen = set[int]()
    for module in iter_modules(__path__):
        if module.ispkg:
            continue
        for value in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, Architecture) and id(value) not in seen:
                seen.add(id(value))
                yield value


_FAMILIES = tuple(_families())

FAMILIES: tuple[Architecture, ...] = (*_FAMILIES, *wrappers(_FAMILIES))
