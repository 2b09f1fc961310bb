"""PassStart: what a further pass over layers starts from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from edgegen_export.architecture.components.component import SECOND_STREAM, Component, Norms, Shapes
from edgegen_export.architecture.components.norm import Norm


@dataclass(frozen=True, slots=True)
class PassStart(Component):
    """Before a layer, with which a pass over layers starts: ``x = norm(x)``, or x as it is unless ``normed``.

    ``second``: a second residual stream y that layers leave alone. Where it ``begins``, ``x, y = x + x, x``, or with a
    trained vector, the ``offset``, ``x, y = x + offset, x``; where it ``stays``, ``x = x + y``; where both ``change``
    places, ``x, y = x + y, x``. A ``copy`` is what layers may read later: ``x, y = x, x``.
    """

    second: Literal["begins", "stays", "change", "copy"] | None = None
    normed: bool = True
    offset: bool = False

    def carries(self, hidden: int) -> Mapping[str, int]:
        return {SECOND_STREAM: hidden} if self.second else {}

    def around(self, hidden: int, layers: int) -> Shapes:
        return {"pass_offset": (hidden,)} if self.offset else {}

    def norms_around(self, norm: Norm, hidden: int) -> Norms:
        return {"pass_norm": (norm, (hidden,))} if self.normed else {}
