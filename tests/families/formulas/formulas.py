"""Formulas: a family that transformers does not have, as random checkpoints and what they compute."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.families.cases.kept import Kept
from tests.families.random_tensors import Floats


class Written(Protocol):
    def __call__(self, variant: str, folder: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, Floats]]: ...


@dataclass(frozen=True)
class Formulas:
    """A family's random checkpoints by their variants, and the logits [t, vocab] of ids [t].

    Attributes:
        kept: what the layers of the base keep.
        caches: heads and sizes of its KV caches.
        window: tokens of those that are windowed.
        sources: the layers whose keys others read, by these.
    """

    base: Mapping[str, Any]
    variants: Mapping[str, Mapping[str, Any]]
    written: Written
    computed: Callable[[Mapping[str, Any], Mapping[str, Floats], list[int]], Floats]
    kept: Kept
    caches: tuple[tuple[int, int], ...] = ()
    window: int | None = None
    sources: Mapping[int, int] = field(default_factory=dict[int, int])
