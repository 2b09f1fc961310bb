"""Tiny configurations of every family: a base case each, and one variant for each thing its config class can say."""

from importlib import import_module
from pkgutil import iter_modules

from tests.families.cases.case import CONTEXT, Also, Case, variants

_MODULES = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))

CASES: list[Case] = [case for module in _MODULES for case in getattr(module, "CASES", ())]

FAMILIES = tuple(dict.fromkeys(case.family for case in CASES))
"""The values of ``model_type``; each has a module of its own here."""

BASES = {case.family: case for case in CASES if case.name == "base"}


def cases_also(what: Also) -> list[Case]:
    """Return the cases that tests of few cases take."""
    return [case for case in CASES if what in case.also]


__all__ = ["BASES", "CASES", "CONTEXT", "FAMILIES", "Also", "Case", "cases_also", "variants"]
