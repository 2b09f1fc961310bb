"""The architectures of GGUF files that can be read, each as data in this folder. Names and defaults are llama.cpp's."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from edgegen_export.checkpoint.gguf.architecture import GgufArchitecture


def by_name(modules: Iterable[ModuleType]) -> dict[str, GgufArchitecture]:
    """The architectures of some files, by ``general.architecture``; ``ValueError`` where two have the same."""
    found = dict[str, GgufArchitecture]()
    for module in modules:
        own: Mapping[str, GgufArchitecture] = getattr(module, "BY_NAME", {})
        if twice := found.keys() & own.keys():
            raise ValueError(f"{module.__name__}: {', '.join(sorted(twice))} is in another file too")
        found |= own
    return found


ARCHITECTURES = by_name(import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
"""``general.architecture`` → how the original's ``config.json`` and tensors are read off the file."""
