"""LearnedPositions: a trained vector for each position."""

from dataclasses import dataclass

from edgegen_export.architecture.components.component import Component, Modules, Shapes


@dataclass(frozen=True, slots=True)
class LearnedPositions(Component):
    """A trained table of ``rows`` positions, added to the token embedding."""

    rows: int

    def around(self, hidden: int, layers: int) -> Shapes:
        return {"positions": (self.rows, hidden)}

    @property
    def products_around(self) -> tuple[Modules, ...]:
        return (("positions",),)
