"""Mixer: what a layer has instead of attention, or beside it, over fixed states."""

from dataclasses import dataclass
from typing import ClassVar

from edgegen_export.architecture.components.component import LINEAR_ATTENTION, Component, Modules, Pair, Shapes


@dataclass(frozen=True, slots=True)
class Mixer(Component):
    """A convolution over the last tokens, and what follows it; all of its matrices but ``out`` are fused.

    ``name``: of its modules in a layer; ``parts``: of the matrices that take what the layer takes; ``trained``: of its
    numbers, one for each head; ``smoothed``: the module that makes what ``out`` takes, where it can be scaled.
    """

    sublayer: ClassVar[str | None] = "attn"
    name: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]
    trained: ClassVar[tuple[str, ...]] = ()
    smoothed: ClassVar[str | None] = "norm"
    operators_since: ClassVar[str] = LINEAR_ATTENTION

    @property
    def inputs(self) -> Modules:
        return tuple(f"{self.name}.{part}" for part in self.parts)

    @property
    def outputs(self) -> Modules:
        return (f"{self.name}.out",)

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        return (Pair(f"{self.name}.{self.smoothed}", self.outputs),) if self.smoothed else ()

    def named(self, sizes: Shapes) -> Shapes:
        """``sizes`` by parts, under the names of the modules."""
        return {f"{self.name}.{part}": shape for part, shape in sizes.items()}
