"""Trial: the divergence that storing all matrices of a model together costs, measured before anything is written."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen.system import trim_memory
from edgegen_export.calibration.sensitivity import Sensitivity
from edgegen_export.files.scratch import Scratch
from edgegen_export.graph.fused import fused_weight, parts
from edgegen_export.graph.layerwise_model import LayerwiseModel
from edgegen_export.quantize.blockwise import Blocks, rounded_plainly
from edgegen_export.quantize.recipe import FLOATS
from edgegen_export.tensors.lazy import LazyTensor

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
LayerMatrices = Sequence[Collection[str]]
"""Of each layer, the matrices by fused name."""
Known = Callable[[str, MatrixFormat], Blocks | None]
"""A matrix by its (fused) module, in codes that are known; None where it is rounded plainly."""


def none_known(name: str, form: MatrixFormat) -> Blocks | None:
    """All matrices are rounded plainly."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A model as it is to be stored: ``tensors``, which ``reference`` runs, and the formats of ``recipe``; the
    ``matrices`` of its layers; ``ids`` [b, t] to judge it on; ``scratch``: where hidden states are kept."""

    tensors: Mapping[str, LazyTensor]
    reference: LayerwiseModel
    matrices: LayerMatrices
    ids: Ids
    recipe: Quantization
    tied_head: bool
    scratch: Scratch = field(default_factory=Scratch)

    @property
    def tables(self) -> list[str]:
        """The modules whose rows are looked up."""
        return [name for name in ("embed", "embed_per_layer", "positions") if f"{name}.weight" in self.tensors]

    @property
    def head(self) -> str:
        """The module of the head's matrix."""
        return "embed" if self.tied_head else "head"

    @property
    def forms(self) -> dict[str, MatrixFormat]:
        """By (fused) module, the format that the recipe has for each matrix."""
        return {name: self.recipe.format_of(name) for name in (*self.tables, *chain(*self.matrices), self.head)}

    def weight(self, name: str) -> LazyTensor:
        """A matrix by its (fused) module."""
        return fused_weight(self.tensors, parts(name))

    def divergence(
        self, forms: Mapping[str, MatrixFormat], exact: Floats | None = None, known: Known = none_known
    ) -> tuple[float, Floats]:
        """Mean KL in nats from the unquantized model, of that with all matrices stored as in ``forms``; and the states
        of the unquantized model after the last layer. ``exact``: these, where they are known. What is no matrix of
        layers, table or head stays in floats: experts do."""
        trim_memory()
        reference, tokens = self.reference, self.ids.shape[1]
        probe, everything = Sensitivity(reference, self.ids, self.scratch), ("", self.recipe.linear)
        probe.branch_tables(everything, {name: known(name, forms[name]) or forms[name] for name in self.tables})
        for layer, of_layer in enumerate(self.matrices):
            if exact is None:
                with reference.layer(layer, tokens) as run:
                    probe.advance_exact(run)
                del run  # and its weights, before there are others
            wanted = {name: forms[name] for name in of_layer if forms[name] != FLOATS}
            blocks = {
                name: known(name, form) or rounded_plainly(self.weight(name), form) for name, form in wanted.items()
            }
            with reference.layer(layer, tokens, blocks=blocks, kernels=True) as run:
                probe.advance_changed(run)
            del run, blocks
        probe.exact = probe.exact if exact is None else exact
        probe.branch_head(everything, known(self.head, forms[self.head]) or forms[self.head])
        return probe.divergences()[everything], probe.exact
