"""LayerWalk: the unquantized model run layer by layer over the calibration text, its weights smoothed on the way.

What a layer takes is what it takes in the unquantized model: to run the layers before it quantized costs twice the time
and measured no better. Large models run with their matrices rounded plainly to 8 bits, as they did when the text was
sampled: a third of the time, and the divergences of small trained models are the same within 5%. In memory are one
layer's weights, in scratch files its Hessians and the hidden states of the calibration text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen.errors import ExportError
from edgegen.system import trim_memory
from edgegen_export.architecture.components.component import Modules, Pair
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.tensors import layer_products
from edgegen_export.calibration.key_rotation import best_angles, turned_rows
from edgegen_export.calibration.moves import Moves
from edgegen_export.files.scratch import Scratch
from edgegen_export.files.threads import in_threads
from edgegen_export.graph.fused import fused_name, fused_weight
from edgegen_export.graph.layerwise_model import LayerRun, LayerwiseModel
from edgegen_export.quantize.activations import SMALLEST, bearable_format
from edgegen_export.quantize.hessian import Hessian
from edgegen_export.quantize.recipe import FLOATS
from edgegen_export.quantize.smoothing import Smoothed, head_pair, layer_pairs, smoothed
from edgegen_export.tensors.lazy import LazyTensor

ROWS, ROWS_FOR_HESSIANS = 2, 4
"""Rows of the calibration text that are run together: few take little memory, many touch a Hessian less often."""

SAMPLES = 16
"""Inputs kept of each row, to see what rounding them costs, and the keys they make."""

_JUDGED_ROWS = 512
"""Rows of a matrix, spread evenly, on which the rounding of its inputs is judged."""

_HEAD_ROWS = 4096
"""The same of the head: its first rows, so that no more of it is read."""

Floats = NDArray[np.float32]
OnRun = Callable[[LayerRun], None]


@dataclass(frozen=True, slots=True, eq=False)
class LayerMatrix:
    """A matrix of ``layer`` by its fused ``name``, smoothed; ``form``: the format whose blocks its inputs bear;
    ``hessian``: that of its inputs, where wanted; ``changed``: the layer's matrices as they are in memory, and its
    tensors that smoothing changed."""

    layer: int
    name: str
    weight: LazyTensor
    form: MatrixFormat
    hessian: Hessian | None
    changed: Mapping[str, LazyTensor]


def layer_matrices(config: DecoderConfig, layer: int) -> dict[str, Modules]:
    """The matrices of a layer, experts left out, by fused name: the modules of each."""
    return {fused_name(modules): modules for modules in layer_products(config, layer)}


class LayerWalk:
    """One walk through the layers and the head; ``tensors`` and ``recipe`` are what became of them on the way, and
    ``moves`` how."""

    def __init__(
        self,
        tensors: Mapping[str, LazyTensor],
        config: DecoderConfig,
        reference: LayerwiseModel,
        recipe: Quantization,
        scratch: Scratch,
        *,
        hessians: bool,
        in_int8: bool = False,
        kept_rows: int = 0,
        others: NDArray[np.int64] | None = None,
    ) -> None:
        """``tensors``: the model's, which ``reference`` runs; ``hessians``: whether those of inputs are wanted;
        ``in_int8``: whether matrices are rounded to 8 bits while it runs; ``scratch``: where hidden states and Hessians
        are kept; ``kept_rows``: of the text, whose states go to ``entered``, and after them those of ``others`` [b, t],
        which are calibrated on no further."""
        self.tensors = dict(tensors)
        self.entered: dict[int, list[Floats]] = {}
        """The states before each layer of the first rows of the text, and of the others."""
        self._kept_rows, self._others = kept_rows, others
        self.moves = Moves()
        self._config = config
        self._reference = reference
        self._recipe = recipe
        self._scratch = scratch
        self._hessians = hessians
        self._in_int8 = in_int8
        self._formats: dict[str, MatrixFormat] = {}
        self._states: list[Floats] = []
        self._batches = 0
        """Arrays of states of the text; those of the others come after them."""
        self._started = _started_early(config)

    @property
    def recipe(self) -> Quantization:
        """The recipe, with smaller blocks or floats for matrices whose inputs bear no others."""
        return replace(self._recipe, exceptions=self._recipe.exceptions | self._formats)

    @property
    def left_in_floats(self) -> list[str]:
        """The matrices whose inputs bear no blocks at all."""
        return [name for name, form in self._formats.items() if form == FLOATS]

    def matrices(
        self, ids: NDArray[np.int64], on_run: OnRun | None, on_layer: Callable[[int, int], None]
    ) -> Iterator[LayerMatrix]:
        """The matrices of every layer, on what they take when the model reads ids [rows, t], in all passes together.

        ``on_run`` gets each layer, unquantized, before its matrices, where that is wanted. ``on_layer`` hears how many
        layers of how many are done.

        Raises:
            ExportError: the model's hidden states are not finite.
        """
        rows, config, reference = ROWS_FOR_HESSIANS if self._hessians else ROWS, self._config, self._reference
        texts = [ids[start : start + rows] for start in range(0, len(ids), rows)]
        self._batches = len(texts)
        embedded = reference.embedded([*texts, *([] if self._others is None else [self._others])])
        before = {0: [self._scratch.kept(x) for x in embedded]}
        before |= self._before_passes(before[0], ids.shape[1])
        for done, (layer, passes) in enumerate(config.passes.items(), 1):
            matrices, inputs = dict[str, Modules](), dict[str, _Inputs]()
            for each in passes:
                states, taken = before.pop(each), layer_matrices(config, each)
                self._keep(each, states)
                matrices |= taken
                self._run(each, ids.shape[1], taken, states, inputs, on_run)
                if each + 1 not in self._started:
                    before[each + 1] = states
                del states
            changed = self._smooth(layer, matrices, inputs)
            if self._hessians:  # then each matrix is read several times
                changed |= _in_memory({**self.tensors, **changed}, matrices)
            held = {**self.tensors, **changed}
            weights = {name: fused_weight(held, modules) for name, modules in matrices.items()}
            forms = in_threads(lambda name, w=weights, x=inputs: self._bearable(name, w[name], x[name]), list(matrices))
            for name, form in zip(weights, [*forms], strict=True):
                if form != self._recipe.format_of(name):
                    self._formats[name] = form
                yield LayerMatrix(layer, name, weights[name], form, inputs.pop(name).hessian, changed)
            del inputs, held, weights, changed
            trim_memory()
            on_layer(done, len(config.passes))
        self._states = before[config.num_layers][: self._batches]

    def _keep(self, layer: int, states: Sequence[Floats]) -> None:
        """Copy the states before the layer that are to be kept."""
        wanted, kept = self._kept_rows, self.entered.setdefault(layer, [])
        for x in states[: self._batches]:
            if wanted > 0:
                kept.append(self._scratch.kept(x[:wanted]))
            wanted -= len(x)
        kept += map(self._scratch.kept, states[self._batches :])

    def head(self) -> Hessian | None:
        """Smooth the final norm, and find the head's format; returns the Hessian of what the head takes, where wanted.
        To be called behind the last layer."""
        pair, reference, recipe = head_pair(self._config), self._reference, self._recipe
        module = "embed" if self._config.tied_head else "head"
        inputs = self._inputs(self.tensors[f"{module}.weight"].shape[1])
        factors = np.ones(1, np.float32)
        if pair and recipe.smoothing:
            largest = [np.abs(x).max(axis=(0, 1)) for x in reference.final(self._states, projected=False)]
            _refuse_not_finite(*largest)
            done = smoothed(self.tensors, pair, np.max(largest, axis=0), recipe.smoothing)
            self.tensors |= done.tensors
            _note(self.moves, pair, done)
            factors = done.factors if module in pair.consumers else factors
        for hidden in reference.final(self._states):
            _refuse_not_finite(hidden)
            inputs.add(hidden.reshape(-1, hidden.shape[-1]), len(hidden))
        self._states = []
        inputs.divide(factors)
        matrix = self.tensors[f"{module}.weight"]
        rows = matrix.rows(0, min(_HEAD_ROWS, matrix.shape[0]))
        form = bearable_format(np.concatenate(inputs.samples), rows, recipe.embedding)
        if form != recipe.embedding:
            self._formats[module] = form or replace(recipe.embedding, block_size=SMALLEST)
        return inputs.hessian

    def _bearable(self, name: str, weight: LazyTensor, inputs: "_Inputs") -> MatrixFormat:
        """The recipe's format for a matrix, its blocks small enough for its inputs; floats where no blocks are."""
        rows = weight.read()[:: max(1, weight.shape[0] // _JUDGED_ROWS)]
        return bearable_format(np.concatenate(inputs.samples), rows, self._recipe.format_of(name)) or FLOATS

    def _before_passes(self, embedded: Sequence[Floats], tokens: int) -> dict[int, list[Floats]]:
        """The states before each layer that is run earlier than the one before it, with what it repeats."""
        if not (started := self._started):
            return {}
        found, states = dict[int, list[Floats]](), [self._scratch.kept(x) for x in embedded]
        for layer in range(max(started)):
            with self._reference.layer(layer, tokens) as run:
                for x in states:
                    x[...] = run(x)
            if layer + 1 in started:
                found[layer + 1] = [self._scratch.kept(x) for x in states]
        return found

    def _run(
        self,
        layer: int,
        tokens: int,
        matrices: Mapping[str, Modules],
        states: Sequence[Floats],
        inputs: dict[str, "_Inputs"],
        on_run: OnRun | None,
    ) -> None:
        """Run a layer over the states, see what its ``matrices`` take, and show it to ``on_run``."""
        if not self._in_int8 or on_run is not None:
            with self._reference.layer(layer, tokens, () if self._in_int8 else list(matrices)) as run:
                if not self._in_int8:
                    self._watch(run, states, inputs)
                if on_run is not None:
                    on_run(run)
            del run  # and the layer's weights
        if self._in_int8:
            with self._reference.layer(layer, tokens, list(matrices), in_int8=True) as run:
                self._watch(run, states, inputs)

    def _watch(self, run: LayerRun, states: Sequence[Floats], inputs: dict[str, "_Inputs"]) -> None:
        """Add what each tapped matrix takes to its inputs; the states become those after the layer."""
        for x in states[self._batches :]:
            x[...] = run(x)
        for x in states[: self._batches]:
            y, tapped = run.tapped(x)
            _refuse_not_finite(y, *tapped.values())
            for name in tapped:
                if name not in inputs:
                    inputs[name] = self._inputs(tapped[name].shape[1])
                inputs[name].add(tapped[name], len(x))
            x[...] = y
            del y, tapped  # or the next rows' come on top

    def _inputs(self, columns: int) -> "_Inputs":
        hessian = Hessian.zeros(columns, self._scratch) if self._hessians else None
        return _Inputs(hessian, np.zeros(columns, np.float32))

    def _smooth(
        self, layer: int, matrices: Mapping[str, Modules], inputs: Mapping[str, "_Inputs"]
    ) -> dict[str, LazyTensor]:
        """The layer's tensors that smoothing changes; ``inputs`` become those of the smoothed matrices."""
        if not self._recipe.smoothing:  # weights are to stay as they are
            return {}
        passes = self._config.passes[layer]
        pairs = [*dict.fromkeys(pair for each in passes for pair in layer_pairs(self._config, each))]
        changed = _smoothed(self.tensors, pairs, matrices, inputs, self._recipe.smoothing, self.moves)
        changed |= _keys_for_int8({**self.tensors, **changed}, self._config, layer, inputs, self.moves)
        self.tensors |= changed
        return changed


def _started_early(config: DecoderConfig) -> set[int]:
    """The layers that are run with one that they repeat, before the layer in front of them is."""
    found, known = set[int](), {0}
    for passes in config.passes.values():
        found |= set(passes) - known
        known |= {layer + 1 for layer in passes}
    return found


@dataclass(slots=True)
class _Inputs:
    """Of what one matrix takes: the greatest magnitude of each channel, some of it, and where wanted the Hessian."""

    hessian: Hessian | None
    largest: Floats
    samples: list[Floats] = field(default_factory=list[Floats])

    def add(self, x: Floats, rows: int) -> None:
        """x [rows · t, columns]."""
        np.maximum(self.largest, np.abs(x).max(axis=0), out=self.largest)
        self.samples.append(x[:: max(1, len(x) // (SAMPLES * rows))].copy())
        if self.hessian is not None:
            self.hessian.add(x)

    def divide(self, factors: Floats) -> None:
        self.largest /= factors
        for sample in self.samples:
            sample /= factors
        if self.hessian is not None:
            self.hessian.divide(factors)


def _in_memory(tensors: Mapping[str, LazyTensor], matrices: Mapping[str, Modules]) -> dict[str, LazyTensor]:
    """The weights of ``matrices``, read: by fused name, and of modules that are fused views of these."""
    read = in_threads(lambda modules: fused_weight(tensors, modules).read(), matrices.values())
    found = dict[str, LazyTensor]()
    for (name, modules), whole in zip(matrices.items(), read, strict=True):
        last = 0
        for module in modules:
            first, last = last, last + tensors[f"{module}.weight"].shape[0]
            found[f"{module}.weight"] = LazyTensor.from_array(whole[first:last])
        found[f"{name}.weight"] = LazyTensor.from_array(whole)
    return found


def _refuse_not_finite(*arrays: Floats) -> None:
    if not all(np.isfinite(array).all() for array in arrays):
        raise ExportError("the checkpoint itself, unquantized, gives logits that are not finite: it is broken.")


def _smoothed(
    tensors: Mapping[str, LazyTensor],
    pairs: Sequence[Pair],
    matrices: Mapping[str, Modules],
    inputs: Mapping[str, _Inputs],
    alpha: float,
    moves: Moves,
) -> dict[str, LazyTensor]:
    """The tensors of a layer that smoothing changes; ``inputs`` become those of the smoothed matrices."""
    changed: dict[str, LazyTensor] = {}
    for pair in pairs:
        taking = [name for name, modules in matrices.items() if modules[0] in pair.consumers]
        done = smoothed({**tensors, **changed}, pair, inputs[taking[0]].largest, alpha)
        changed |= done.tensors
        _note(moves, pair, done)
        for name in taking:
            inputs[name].divide(done.factors)
    return changed


def _note(moves: Moves, pair: Pair, done: Smoothed) -> None:
    if len(done.tensors[f"{pair.producer}.weight"].shape) == 2:
        moves.multiply_rows(pair.producer, done.made)
    for module in pair.consumers:
        moves.multiply_columns(module, done.factors)


def _keys_for_int8(
    tensors: Mapping[str, LazyTensor], config: DecoderConfig, layer: int, inputs: Mapping[str, _Inputs], moves: Moves
) -> dict[str, LazyTensor]:
    """Return the tensors that make queries and keys, changed so that int8 suits the keys, where no score changes."""
    own, attn = config.layers[layer].attention, f"layers.{layer}.attn"
    if own is None or own.turned is None or layer in config.sources:
        return {}
    dim, rope = own.head_dim, own.turned
    x = np.concatenate(inputs[fused_name(tuple(f"layers.{layer}.{name}" for name in own.inputs))].samples)
    heads, made = {"q": own.heads, "k": own.kv_heads}, dict[str, Floats]()
    for name, count in heads.items():
        bias = tensors.get(f"{attn}.{name}.bias")
        rows = x @ tensors[f"{attn}.{name}.weight"].read().T + (0 if bias is None else bias.read())
        made[name] = rows.reshape(len(x), count, dim)[..., : rope.dim]
    angles, changed = best_angles(made["q"], made["k"], rope, config.max_positions), dict[str, LazyTensor]()
    for name, count in heads.items() if angles.any() else ():
        of_heads = np.repeat(angles, count // heads["k"], axis=0)
        moves.turn(f"{attn}.{name}", of_heads)
        for tensor in (f"{attn}.{name}.weight", f"{attn}.{name}.bias"):
            if tensor in tensors:
                changed[tensor] = turned_rows(tensors[tensor], of_heads, rope, dim)
    return changed
