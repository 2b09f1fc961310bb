"""Sensitivity: the KL divergence that quantized matrices cost, each alone or all together, measured in one pass.

The hidden states of the unquantized model and of some changed models go through the layers side by side, so every layer
is opened once. Quantized matrices run as in the bundle, their inputs rounded too. To take a model per matrix through
all later layers would cost the square of their number. So each matrix is run in its own layer, for the error of the
states after it, and goes on to the logits from a few layers only: there its divergence is measured, and how much
divergence an error of such matrices causes, which between these layers is interpolated. In models of many layers only
the first of a matrix's formats goes on, and the errors of the others are taken to cost as much. A matrix that several
passes use is changed in each of them alone, and costs what all of these cost together.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import MatrixFormat
from edgegen_export.files.scratch import Scratch
from edgegen_export.files.threads import in_threads
from edgegen_export.graph.layerwise_model import HeadSlab, LayerRun, LayerwiseModel, Stored
from edgegen_export.quantize.recipe import FLOATS

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Change = tuple[str, MatrixFormat]
"""A matrix by its (fused) module, and how it is stored."""
Place = tuple[Change, int]
"""A change, and the layer of which it is one; -1 where it is of no layer."""

_PROBE_TOKENS = 64
"""Of one row of the calibration text, on which matrices are measured alone at least."""

MEASURED_LAYERS = 3
"""Layers whose matrices are taken to the logits, spread evenly. From matrix to matrix of a kind, divergence per error
differs by less than matrices of a layer do."""

_TOGETHER = 1024
"""Positions of changed models that are run together."""

_JUDGED_ROWS = 2
"""Rows of the calibration text on which a whole model is judged by a threshold, at most."""

_STACKED = 128
"""Positions whose logits are one product: to arrange the head for a product takes as long as some tens of them."""

_LOGITS = 4 << 20
"""Logits computed per model: the larger the vocabulary, the fewer positions."""

_TINY = float(np.finfo(np.float32).tiny)


def probe_tokens(vocab_size: int) -> int:
    """The most tokens on which matrices are measured alone: all there are in a row but for large vocabularies."""
    return max(_PROBE_TOKENS, _LOGITS // vocab_size)


def probe_ids(ids: NDArray[np.int64], vocab_size: int) -> NDArray[np.int64]:
    """Of the calibration text [rows, t], what matrices are measured alone on, [1, tokens]."""
    return ids[:1, : probe_tokens(vocab_size)]


def eval_ids(ids: NDArray[np.int64], vocab_size: int) -> NDArray[np.int64]:
    """Of the calibration text [rows, t], what a whole model is judged on, [b, t]: no more rows than have positions
    whose logits are computed."""
    return ids[: min(_JUDGED_ROWS, -(-_LOGITS // (vocab_size * ids.shape[1])))]


class Sensitivity:
    """The hidden states [b, t, d] of ids [b, t] in the unquantized model (``exact``), and in changed models.

    ``scratch`` keeps the latter; ``measured_layers``: from how many layers matrices are taken to the logits.
    """

    def __init__(
        self,
        reference: LayerwiseModel,
        ids: NDArray[np.int64],
        scratch: Scratch,
        measured_layers: int = MEASURED_LAYERS,
    ) -> None:
        self._reference = reference
        self._ids = ids
        self._scratch = scratch
        self.exact = reference.embed(ids)
        self.before = self.exact
        """``exact`` before the layer that was run last."""
        self._changed: dict[Place, Floats] = {}
        self._heads: dict[Change, Stored] = {}
        self._layers = np.unique(np.linspace(0, reference.num_layers - 1, measured_layers).round().astype(int)).tolist()
        self._all_formats = reference.num_layers <= measured_layers
        self._layer = -1
        self._kinds: dict[Place, str] = {}
        """Kind of matrix of each that was run in its own layer."""
        self._errors: dict[Place, float] = {}
        self._measured: dict[str, dict[tuple[str, int], Place]] = {}
        """By kind, the matrices that go on to the logits, by name and layer, each with the first change of it."""

    def advance(self, run: LayerRun) -> None:
        """Take all models through a layer."""
        self.advance_exact(run)
        self.advance_changed(run)

    def advance_exact(self, run: LayerRun) -> None:
        """Take the unquantized model through a layer."""
        self.before, self.exact = self.exact, run(self.exact)
        self._layer += 1

    def advance_changed(self, run: LayerRun) -> None:
        """Take the changed models through a layer."""
        changed = [*self._changed.values()]
        few = max(1, _TOGETHER // self._ids.size)
        for first in range(0, len(changed), few):
            some = changed[first : first + few]
            for x, after in zip(some, np.split(run(np.concatenate(some)), len(some)), strict=True):
                x[...] = after

    def branch(self, change: Change, run: LayerRun) -> None:
        """Add a model that differs in the layer that was run last: there it is as in ``run``."""
        states, (name, _), place = run(self.before), change, (change, self._layer)
        kind = name.split(".", 2)[-1]
        measured, matrix = self._measured.setdefault(kind, {}), (name, self._layer)
        self._kinds[place] = kind
        found, exact = map(self._reference.hidden_states, (states, self.exact))
        self._errors[place] = _relative_error(found, exact)
        # A kind that was missing from a layer to measure (it may stay in floats) is made up for in the next one.
        due = len(measured) < sum(layer <= self._layer for layer in self._layers)
        if self._all_formats if matrix in measured else due:
            measured.setdefault(matrix, place)
            self._changed[place] = self._scratch.kept(states)

    def branch_tables(self, change: Change, stored: Mapping[str, Stored]) -> None:
        """Add a model whose tables of tokens ("embed") and positions are ``stored`` so; before any layer is run."""
        self._changed[change, -1] = self._scratch.kept(self._reference.embed(self._ids, stored=stored))

    def branch_head(self, change: Change, stored: Stored) -> None:
        """Store the head so in the model of this change, which is added if it is new; after the last layer."""
        self._changed.setdefault((change, -1), self.exact)
        self._heads[change] = stored

    def divergences(self, smoothed: LayerwiseModel | None = None) -> dict[Change, float]:
        """Mean KL in nats from the unquantized model, by change. ``smoothed``: the same model with the final norm and
        the head to which the changes of the head belong, where they are others."""
        found = self._divergences(smoothed or self._reference)
        ratios = {
            kind: [(first[1], found[first] / max(self._errors[first], _TINY)) for first in firsts.values()]
            for kind, firsts in self._measured.items()
        }
        for place, kind in self._kinds.items():
            if place not in found:
                found[place] = self._errors[place] * _between(ratios[kind], place[1])
        result: dict[Change, float] = {}
        for (change, _), divergence in found.items():
            result[change] = result.get(change, 0.0) + divergence
        return result

    def _divergences(self, model: LayerwiseModel) -> dict[Place, float]:
        """Of the models that were taken to the logits; ``model`` has the final norm and the head."""
        exact = _head_inputs(model, self.exact)
        hidden = {place: self._scratch.kept(_head_inputs(model, x)) for place, x in self._changed.items()}
        p, found = _Softmax(len(exact)), {place: _Softmax(len(exact)) for place in hidden}
        differences = {place: np.zeros(len(exact)) for place in hidden}
        same_head, size = [place for place in hidden if place[0] not in self._heads], max(1, _STACKED // len(exact))
        groups = [same_head[first : first + size] for first in range(0, len(same_head), size)]
        groups += [[place] for place in hidden if place[0] in self._heads]
        for slab in model.head_slabs():  # which is read once for all
            expected = slab.logits(exact).astype(np.float64)
            weights, shrunk = p.add(expected)

            def add(
                group: Sequence[Place],
                slab: HeadSlab = slab,
                expected: Doubles = expected,
                weights: Doubles = weights,
                shrunk: Doubles = shrunk,
            ) -> None:
                stored = self._heads.get(group[0][0], FLOATS)
                products = slab.logits(np.concatenate([hidden[place] for place in group]), stored)
                for place, logits in zip(group, np.split(products, len(group)), strict=True):
                    logits = logits.astype(np.float64)
                    found[place].add(logits)
                    np.subtract(expected, logits, out=logits)
                    differences[place] = differences[place] * shrunk + np.einsum("nv,nv->n", weights, logits)

            for _ in in_threads(add, groups):
                pass
        return {
            place: float((differences[place] / p.total + q.log_total - p.log_total).mean())
            for place, q in found.items()
        }


def _head_inputs(model: LayerwiseModel, states: Floats) -> Floats:
    """Return the head's input, [positions, d], at evenly spread positions of states [b, t, d] after the last layer."""
    hidden = next(model.final([states]))
    hidden = hidden.reshape(-1, hidden.shape[-1])
    wanted = max(1, min(len(hidden), _LOGITS // model.vocab_size))
    return hidden[:: len(hidden) // wanted]


def _relative_error(states: Floats, exact: Floats) -> float:
    """The square of the difference of states [b, t, d], by that of ``exact``: the mean over positions."""
    lost, size = (np.einsum("btd,btd->bt", x, x, dtype=np.float64) for x in (states - exact, exact))
    return float((lost / np.maximum(size, _TINY)).mean())


def _between(measured: list[tuple[int, float]], layer: int) -> float:
    """The value at ``layer`` of what was ``measured`` at some layers, its logarithm interpolated."""
    layers, values = zip(*measured, strict=True)
    return float(np.exp(np.interp(layer, layers, np.log(np.maximum(values, _TINY)))))


class _Softmax:
    """The denominators of n softmaxes whose logits come slab by slab: ``total`` [n], by the exponential of ``largest``
    [n], the largest logit so far."""

    def __init__(self, n: int) -> None:
        self.largest, self.total = np.full(n, -np.inf), np.zeros(n)

    @property
    def log_total(self) -> Doubles:
        return self.largest + np.log(self.total)

    def add(self, logits: Doubles) -> tuple[Doubles, Doubles]:
        """More logits [n, slab]. What they add to the totals, [n, slab], and the factor [n] of all that came before."""
        largest = np.maximum(self.largest, logits.max(axis=1))
        shrunk: Doubles = np.exp(self.largest - largest)
        weights: Doubles = np.exp(logits - largest[:, None])
        self.largest, self.total = largest, self.total * shrunk + weights.sum(axis=1)
        return weights, shrunk
