"""PassStart, PassMessages: what a further pass over layers starts from, and what it hears of earlier ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from edgegen_export.architecture.components.block_residual import kept_stream
from edgegen_export.architecture.components.component import SECOND_STREAM, Component, Modules, Norms, Shapes, Tensors
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


HEARERS = ("q", "k", "v", "mlp")
"""Parts that have a message of their own: queries, keys, values and the MLP."""
MESSAGE_QUERIES = "messages.queries"


@dataclass(frozen=True, slots=True)
class PassMessages(Component):
    """Queries, keys, values and the MLP of a :class:`BlockResidual` each take ``(1 - tanh(forget(h))) · x +
    tanh(gain(h)) · m`` with ``h = down(norm(x), norm(m))`` of ``rank`` numbers, where the message m is what a trained
    query attends to of the last pass: of its blocks' sums but the first, and of its result.

    ``heard``: these kept streams; none in the first pass, which has the tensors and hears nothing. ``start``: with this
    layer a further pass begins, with the stream of this number; what the last pass has made of it is kept. ``keeps``:
    further passes begin with what this layer takes, which is kept as it is behind the sum of the block.
    """

    rank: int
    heard: tuple[int, ...] = ()
    start: int | None = None
    keeps: bool = False

    @property
    def products(self) -> tuple[Modules, ...]:
        def of_hearer(name: str) -> tuple[Modules, Modules]:
            return (f"messages.{name}.down",), (f"messages.{name}.forget", f"messages.{name}.gain")

        return tuple(modules for name in HEARERS for modules in of_hearer(name)) if self.heard else ()

    def carries(self, hidden: int) -> Mapping[str, int]:
        return {kept_stream(k): hidden for k in self.heard}

    def matrices(self, hidden: int) -> Shapes:
        shapes = {"down": (self.rank, 2 * hidden), "forget": (hidden, self.rank), "gain": (hidden, self.rank)}
        return {f"messages.{name}.{matrix}": shape for name in HEARERS for matrix, shape in shapes.items()}

    def numbers(self, hidden: int) -> Shapes:
        return {MESSAGE_QUERIES: (len(HEARERS), hidden)}

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The root in the queries."""
        name = f"{layer}{MESSAGE_QUERIES}"
        tensors[name] = tensors[name].affine(hidden**-0.5)
