"""Sensitivity: how much one quantized matrix alone changes what a model predicts, measured for every matrix at once.

Next to the unquantized model's hidden states over a short probe run those of as many models as there are matrices,
each with one of them quantized; every layer is opened once for all.
"""

import numpy as np
from numpy.typing import NDArray

from edgegen_export.reference import LayerRun, LayerwiseReference

Floats = NDArray[np.float32]

_LOGITS = 4 << 20
"""Logits that are looked at per model: fewer positions, the larger the vocabulary."""


class Sensitivity:
    """The hidden states [b, t, d] of ids [b, t] in the model as it is (``exact``), and in one for each matrix."""

    def __init__(self, reference: LayerwiseReference, ids: NDArray[np.int64]) -> None:
        self._reference = reference
        self.exact = reference.embed(ids)
        self.before = self.exact
        """``exact`` before the layer that was run last."""
        self._changed: dict[str, Floats] = {}

    def advance(self, run: LayerRun) -> None:
        """Take all models through a layer."""
        self.before, self.exact = self.exact, run(self.exact)
        self._changed = {name: run(x) for name, x in self._changed.items()}

    def branch(self, name: str, run: LayerRun) -> None:
        """The model whose matrix ``name``, of the layer that was run last, is as in ``run``."""
        self._changed[name] = run(self.before)

    def divergences(self) -> dict[str, float]:
        """Mean KL in nats from the model as it is, by matrix."""
        expected = self._log_probabilities(self.exact)
        probabilities, result = np.exp(expected), dict[str, float]()
        for name, x in self._changed.items():
            difference = expected - self._log_probabilities(x)
            result[name] = float(np.einsum("pv,pv->", probabilities, difference)) / len(expected)
        return result

    def _log_probabilities(self, states: Floats) -> NDArray[np.float64]:
        """[positions, vocab] at evenly spread positions."""
        hidden = self._reference.final(states)
        hidden = hidden.reshape(-1, hidden.shape[-1])
        vocab_size = self._reference.vocab_size
        wanted = max(1, min(len(hidden), _LOGITS // vocab_size))
        logits = self._reference.logits(hidden[:: len(hidden) // wanted]).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
