"""AltUp: several residual streams."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgegen_export.architecture.components.component import Component, Modules, Norms, Pair, Shapes, Tensors
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.tensors.lazy import LazyTensor


@dataclass(frozen=True, slots=True)
class AltUp(Component):
    """Several residual streams (Baykal et al. 2023, arXiv:2301.13310): a layer computes the ``active`` one, and
    predicts and corrects all. ``m(x) = tanh(router(norm(x)) / d)`` gives one number per stream, for x of width d.

    Before the layer: ``p[j] = x[j] + Σ P[j, i] · x[i]`` with ``P = predict(m(x[active]))``. It makes y of
    ``p[active]``. After it: ``x[j] = p[j] + (1 + C[j]) · (y - p[active])`` with ``C = correct(m(y))``, a matrix whose
    numbers are within ``clip``.

    The first stream is the token embedding, and the others are projections of it with its magnitude. In the end
    projections of the others with the magnitude of the first are averaged with it. What a layer makes of an embedding
    of its own, of ``x[active]`` times a vector if ``scaled``, is added to all streams but the first.
    """

    streams: int
    active: int = 0
    scaled: bool = True
    clip: float | None = None

    begins_with_tokens: ClassVar[bool] = True

    @property
    def first(self) -> Modules:
        """The matrices that make all streams but the first of the token embedding."""
        return tuple(f"altup_in.{k}" for k in range(self.streams - 1))

    @property
    def last(self) -> Modules:
        """The matrices that project all streams but the first after the last layer."""
        return tuple(f"altup_out.{k}" for k in range(self.streams - 1))

    @property
    def products_around(self) -> tuple[Modules, ...]:
        return (self.first, *((name,) for name in self.last))

    @property
    def spare(self) -> Modules:
        return () if self.scaled else ("altup.scale.weight",)

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        return (Pair("altup.scale", ("per_layer.gate",)),) if self.scaled else ()

    def carries(self, hidden: int) -> Mapping[str, int]:
        return {f"stream {k}": hidden for k in range(1, self.streams)}

    def numbers(self, hidden: int) -> Shapes:
        """The router and the coefficients, and the vector of the active stream."""
        return {
            "altup.router.weight": (self.streams, hidden),
            "altup.predict.weight": (self.streams**2, self.streams),
            "altup.correct.weight": (self.streams, self.streams),
            **({"altup.scale.weight": (hidden,)} if self.scaled else {}),
        }

    def norms(self, norm: Norm, hidden: int) -> Norms:
        return {"altup.norm": (norm, (hidden,))}

    def around(self, hidden: int, layers: int) -> Shapes:
        return dict.fromkeys((*self.first, *self.last), (hidden, hidden))

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The division by the width in the router, the limit in the numbers of the correction."""
        router, correct = f"{layer}altup.router.weight", f"{layer}altup.correct.weight"
        tensors[router] = tensors[router].affine(1 / hidden)
        if self.clip is not None:
            clipped = np.clip(tensors[correct].read(), -self.clip, self.clip)
            tensors[correct] = LazyTensor.from_array(clipped.astype(np.float32))
