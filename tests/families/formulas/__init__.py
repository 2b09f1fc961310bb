"""Families that transformers does not have: a file each, with random checkpoints and formulas in NumPy."""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from tests.families.formulas.formulas import Formulas

_MODULES = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))

FORMULAS: Mapping[str, Formulas] = {
    module.FORMULAS.base["model_type"]: module.FORMULAS for module in _MODULES if hasattr(module, "FORMULAS")
}
"""By the values of ``model_type``."""

__all__ = ["FORMULAS", "Formulas"]
