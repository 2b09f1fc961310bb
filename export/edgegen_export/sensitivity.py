"""Sensitivity: how much quantized matrices change what a model predicts, each alone or together, measured at once.

Next to the unquantized model's hidden states over a short probe run those of as many models as there are changes to
judge; every layer is opened once for all. What is quantized runs as it does in the bundle, its inputs rounded too.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgegen.manifest import MatrixFormat
from edgegen_export.quantize.blockwise import Blocks
from edgegen_export.quantize.recipe import FLOATS
from edgegen_export.reference import LayerRun, LayerwiseReference, Stored

Floats = NDArray[np.float32]
Change = tuple[str, MatrixFormat]
"""A matrix by its (fused) module, and how it is stored."""

_LOGITS = 4 << 20
"""Logits that are looked at per model: fewer positions, the larger the vocabulary."""


class Sensitivity:
    """The hidden states [b, t, d] of ids [b, t] in the model as it is (``exact``), and in one for each change."""

    def __init__(self, reference: LayerwiseReference, ids: NDArray[np.int64]) -> None:
        self._reference = reference
        self._ids = ids
        self.exact = reference.embed(ids)
        self.before = self.exact
        """``exact`` before the layer that was run last."""
        self._changed: dict[Change, Floats] = {}
        self._heads: dict[Change, Stored] = {}

    def advance(self, run: LayerRun, changed: LayerRun | None = None) -> None:
        """Take all models through a layer; those that were changed before it through ``changed``, if they have it."""
        self.before, self.exact = self.exact, run(self.exact)
        self._changed = {change: (changed or run)(x) for change, x in self._changed.items()}

    def branch(self, change: Change, run: LayerRun) -> None:
        """The model of which the layer that was run last is as in ``run``."""
        self._changed[change] = run(self.before)

    def branch_embedding(self, change: Change, stored: Stored) -> None:
        """The model whose token embedding is ``stored`` so; before any layer is run."""
        self._changed[change] = self._reference.embed(self._ids, stored=stored)

    def branch_head(self, change: Change, stored: Stored) -> None:
        """The model whose head is ``stored`` so, besides what it was branched for; behind the last layer."""
        self._changed.setdefault(change, self.exact)
        self._heads[change] = stored

    def divergences(self) -> dict[Change, float]:
        """Mean KL in nats from the model as it is, by change."""
        expected = self._log_probabilities(self.exact, FLOATS)
        probabilities, result = np.exp(expected), dict[Change, float]()
        for change, x in self._changed.items():
            difference = expected - self._log_probabilities(x, self._heads.get(change, FLOATS))
            result[change] = float(np.einsum("pv,pv->", probabilities, difference)) / len(expected)
        return result

    def _log_probabilities(self, states: Floats, head: Stored) -> NDArray[np.float64]:
        """[positions, vocab] at evenly spread positions."""
        hidden = self._reference.final(states)
        hidden = hidden.reshape(-1, hidden.shape[-1])
        vocab_size = self._reference.vocab_size
        wanted = max(1, min(len(hidden), _LOGITS // vocab_size))
        logits = self._reference.logits(hidden[:: len(hidden) // wanted], head).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def embedding_costs(
    reference: LayerwiseReference, ids: NDArray[np.int64], blocks: Mapping[Change, Blocks], *, tied_head: bool
) -> dict[Change, float]:
    """The divergence on ids [b, t] for each way in which ``blocks`` store the token embedding ("embed") or the head."""
    probe = Sensitivity(reference, ids)
    for change, stored in blocks.items():
        if change[0] == "embed":
            probe.branch_embedding(change, stored)
    for layer in range(reference.num_layers):
        with reference.layer(layer, ids.shape[1]) as run:
            probe.advance(run)
    for change, stored in blocks.items():
        if change[0] == "head" or tied_head:
            probe.branch_head(change, stored)
    return probe.divergences()
