"""BaseNames: what a family calls the modules that an adapter changes in a way of their own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BaseNames:
    """Names without their prefix; ``inputs_first``: modules whose matrices are stored as [in, out], ``{i}`` for the
    layer. ``prefixes``: what may stand before every name.
    """

    embedding: str
    head: str
    inputs_first: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ("",)

    def bare(self, name: str) -> str:
        """``name`` without its prefix."""
        return without_prefix(name, self.prefixes)

    def is_inputs_first(self, module: str) -> bool:
        """Whether the family stores the weight of ``module`` as [in, out]."""
        return re.sub(r"\.\d+\.", ".{i}.", self.bare(module)) in self.inputs_first


def without_prefix(name: str, prefixes: Sequence[str]) -> str:
    """``name`` without the longest of ``prefixes`` that it begins with."""
    return name[max((len(prefix) for prefix in prefixes if name.startswith(prefix)), default=0) :]
