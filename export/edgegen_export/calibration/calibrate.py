"""calibrate(): weights smoothed and quantized layer by layer, on what each layer takes when the model runs.

What a layer takes is what it takes in the unquantized model: to run the layers before it quantized costs twice the time
and measured no better. In memory are one layer's weights and Hessians, and hidden states of the calibration text.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen.errors import ExportError
from edgegen.system import trim_memory
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.calibration.bit_budget import BitBudget
from edgegen_export.calibration.int4_allocation import Climb
from edgegen_export.calibration.int8_refinement import GOAL, Held, Trial, hold
from edgegen_export.calibration.key_rotation import best_angles, turned_rows
from edgegen_export.checkpoint import LazyTensor
from edgegen_export.graph.layerwise_reference import LayerRun, LayerwiseReference
from edgegen_export.graph.parameters import fused_name, fused_weight
from edgegen_export.quantize.activations import SMALLEST, bearable_format
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.quantize.recipe import FLOATS
from edgegen_export.quantize.smoothing import Pair, head_pair, layer_pairs, smoothed

ROWS, ROWS_FOR_HESSIANS = 2, 4
"""Rows of the calibration text that are run together: few take little memory, many touch a Hessian less often."""

SAMPLES = 16
"""Inputs kept of each row, to see what rounding them costs, and the keys they make."""

PROBE_ROWS = 2
"""Rows on which the sensitivity of matrices is measured."""

_HEAD_ROWS = 4096
"""Rows of the head on which the rounding of its inputs is judged."""

Floats = NDArray[np.float32]
Modules = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Tensors for the graphs, the recipe with what was decided, and what the user should know of it."""

    tensors: dict[str, LazyTensor]
    recipe: Quantization
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Inputs:
    """Of what one matrix takes: the greatest magnitude of each channel, some of it, and ``x.T @ x`` where wanted."""

    hessian: Floats | None
    largest: Floats
    samples: list[Floats] = field(default_factory=list[Floats])

    @classmethod
    def of(cls, columns: int, hessian: bool) -> "_Inputs":
        return cls(np.zeros((columns, columns), np.float32) if hessian else None, np.zeros(columns, np.float32))

    def add(self, x: Floats, rows: int) -> None:
        """x [rows · t, columns]."""
        np.maximum(self.largest, np.abs(x).max(axis=0), out=self.largest)
        self.samples.append(x[:: max(1, len(x) // (SAMPLES * rows))].copy())
        if self.hessian is not None:
            self.hessian += x.T @ x

    def divide(self, factors: Floats) -> None:
        self.largest /= factors
        for sample in self.samples:
            sample /= factors
        if self.hessian is not None:
            self.hessian /= factors
            self.hessian /= factors[:, None]


def layer_matrices(config: DecoderConfig, layer: int) -> dict[str, Modules]:
    """The matrices of a layer, experts left out, by fused name: the modules of each."""
    attn, mlp = f"layers.{layer}.attn", f"layers.{layer}.mlp"
    matrices: list[Modules] = [tuple(f"{attn}.{name}" for name in "qkv"), (f"{attn}.o",)]
    if not config.experts:
        matrices += [(f"{mlp}.gate", f"{mlp}.up") if config.gated else (f"{mlp}.up",), (f"{mlp}.down",)]
    return {fused_name(modules): modules for modules in matrices}


def calibrate(
    tensors: Mapping[str, LazyTensor],
    config: DecoderConfig,
    reference: LayerwiseReference,
    ids: NDArray[np.int64],
    recipe: Quantization,
    store: BlockStore,
    budget: float | None,
    on_layer: Callable[[int, int], None],
) -> Calibrated:
    """Smooth ``tensors`` for ids [rows, t]; where the recipe says GPTQ, quantize the layers' matrices into ``store``,
    and choose those that get 8 bits instead. A matrix whose inputs cannot be rounded in such blocks gets smaller ones,
    or none.

    ``budget``: bits per weight, of all matrices; by default that of :mod:`bit_budget`.
    ``on_layer`` hears how many layers of how many are done.

    Raises:
        UsageError: the budget is less than what the matrices take in 4 bits.
        ExportError: the model's hidden states are not finite.
    """
    result, formats, layers = dict(tensors), dict[str, MatrixFormat](), range(config.num_layers)
    matrices = {name: modules for i in layers for name, modules in layer_matrices(config, i).items()}
    climb, probed = None, ids[:PROBE_ROWS]
    if recipe.method == "gptq":
        climbing = [*matrices, "embed"] if config.tied_head else [*matrices, "embed", "head"]
        climb = Climb(reference, probed, store, BitBudget(tensors, climbing, recipe, budget))
    together = ROWS if climb is None else ROWS_FOR_HESSIANS
    states = [reference.embed(ids[start : start + together]) for start in range(0, len(ids), together)]
    for layer in layers:
        of_layer = layer_matrices(config, layer)
        with reference.layer(layer, ids.shape[1], list(of_layer)) as run:
            inputs, states = _watched(run, states, hessians=climb is not None)
            if climb:
                climb.advance(run)
        smooth = _smoothed(result, layer_pairs(config, layer), of_layer, inputs, recipe.smoothing)
        if recipe.smoothing:  # without, weights are to stay as they are
            smooth |= _keys_for_int8({**result, **smooth}, config, layer, inputs)
        result |= smooth
        for name, modules in of_layer.items():
            seen, weight = inputs.pop(name), fused_weight(result, modules)
            form = bearable_format(np.concatenate(seen.samples), weight.read(), recipe.format_of(name)) or FLOATS
            if form != recipe.format_of(name):
                formats[name] = form
            if climb and seen.hessian is not None and form != FLOATS:
                climb.add(layer, name, weight, form, seen.hessian, smooth)
        del run, inputs  # and the layer's weights
        trim_memory()
        on_layer(layer + 1, config.num_layers)
    head, form, head_inputs = _head(result, config, reference, states, recipe)
    result |= head
    if form != recipe.embedding:
        formats["embed" if config.tied_head else "head"] = form
    warnings = [_left_in_floats(name) for name, form in formats.items() if form == FLOATS]
    recipe = replace(recipe, exceptions=recipe.exceptions | formats)
    better = dict[str, MatrixFormat]()
    if climb and head_inputs is not None:
        better = climb.reached(result, head_inputs, recipe, tied_head=config.tied_head)
    elif recipe.method != "repacked":
        by_layer = [layer_matrices(config, i) for i in layers]
        smooth = reference.with_tensors(result)
        held = hold(Trial(result, smooth, by_layer, probed, recipe, config.tied_head))
        trim_memory()
        better = held.formats
        if held.left > GOAL:
            warnings.append(_not_held(held))
    better = {name: form for name, form in better.items() if form != recipe.format_of(name)}
    return Calibrated(result, replace(recipe, exceptions=recipe.exceptions | better), tuple(warnings))


def _left_in_floats(name: str) -> str:
    return f"{name} stays in 32-bit floats: what it takes has outliers that 8 bits cannot hold beside the rest"


def _not_held(held: Held) -> str:
    return (
        f"8 bits change this model's predictions by {held.divergence:.1e} nats per token, more than others'; better "
        f"formats for {len(held.formats)} matrices leave {held.left:.1e}: compare before you rely on it, or use --fp16"
    )


def _watched(run: LayerRun, states: Sequence[Floats], *, hessians: bool) -> tuple[dict[str, _Inputs], list[Floats]]:
    """What each tapped matrix takes, and the states after the layer."""
    inputs, after = dict[str, _Inputs](), list[Floats]()
    for x in states:
        y, tapped = run.tapped(x)
        after.append(y)
        _refuse_not_finite(y, *tapped.values())
        for name, array in tapped.items():
            if name not in inputs:
                inputs[name] = _Inputs.of(array.shape[1], hessians)
            inputs[name].add(array, len(x))
    return inputs, after


def _refuse_not_finite(*arrays: Floats) -> None:
    if not all(np.isfinite(array).all() for array in arrays):
        raise ExportError("the checkpoint itself, unquantized, gives logits that are not finite: it is broken.")


def _smoothed(
    tensors: Mapping[str, LazyTensor],
    pairs: Sequence[Pair],
    matrices: Mapping[str, Modules],
    inputs: Mapping[str, _Inputs],
    alpha: float,
) -> dict[str, LazyTensor]:
    """The tensors of a layer that smoothing changes; ``inputs`` become those of the smoothed matrices."""
    changed: dict[str, LazyTensor] = {}
    for pair in pairs if alpha else ():
        taking = [name for name, modules in matrices.items() if modules[0] in pair.takers]
        done = smoothed({**tensors, **changed}, pair, inputs[taking[0]].largest, alpha)
        changed |= done.tensors
        for name in taking:
            inputs[name].divide(done.factors)
    return changed


def _keys_for_int8(
    tensors: Mapping[str, LazyTensor], config: DecoderConfig, layer: int, inputs: Mapping[str, _Inputs]
) -> dict[str, LazyTensor]:
    """What makes queries and keys, changed so that int8 suits the keys, as far as no score is changed by it."""
    attn, dim, rope = f"layers.{layer}.attn", config.head_dim, config.layers[layer].rope
    if rope is None or config.qk_norm or config.clip_qkv is not None:
        return {}
    x = np.concatenate(inputs[fused_name([f"{attn}.{name}" for name in "qkv"])].samples)
    heads, made = {"q": config.num_heads, "k": config.num_kv_heads}, dict[str, Floats]()
    for name, count in heads.items():
        bias = tensors.get(f"{attn}.{name}.bias")
        rows = x @ tensors[f"{attn}.{name}.weight"].read().T + (0 if bias is None else bias.read())
        made[name] = rows.reshape(len(x), count, dim)[..., : rope.dim]
    angles, changed = best_angles(made["q"], made["k"], rope, config.max_positions), dict[str, LazyTensor]()
    for name, count in heads.items() if angles.any() else ():
        of_heads = np.repeat(angles, count // config.num_kv_heads, axis=0)
        for tensor in (f"{attn}.{name}.weight", f"{attn}.{name}.bias"):
            if tensor in tensors:
                changed[tensor] = turned_rows(tensors[tensor], of_heads, rope, dim)
    return changed


def _head(
    tensors: Mapping[str, LazyTensor],
    config: DecoderConfig,
    reference: LayerwiseReference,
    states: Sequence[Floats],
    recipe: Quantization,
) -> tuple[dict[str, LazyTensor], MatrixFormat, Floats | None]:
    """The tensors that smoothing the final norm changes, the format of the head, and for GPTQ ``x.T @ x`` of what it
    takes."""
    pair, name = head_pair(config), "embed.weight" if config.tied_head else "head.weight"
    inputs = _Inputs.of(tensors[name].shape[1], hessian=recipe.method == "gptq")
    changed, factors = dict[str, LazyTensor](), np.ones(1, np.float32)
    if pair and recipe.smoothing:
        largest = np.max([np.abs(reference.final(x, projected=False)).max(axis=(0, 1)) for x in states], axis=0)
        _refuse_not_finite(largest)
        done = smoothed(tensors, pair, largest, recipe.smoothing)
        changed = done.tensors
        factors = done.factors if name.removesuffix(".weight") in pair.takers else factors
    for x in states:
        hidden = reference.final(x)
        _refuse_not_finite(hidden)
        inputs.add(hidden.reshape(-1, hidden.shape[-1]), len(x))
    inputs.divide(factors)
    matrix = changed.get(name, tensors[name])
    rows = matrix.rows(0, min(_HEAD_ROWS, matrix.shape[0]))
    form = bearable_format(np.concatenate(inputs.samples), rows, recipe.embedding)
    return changed, form or replace(recipe.embedding, block_size=SMALLEST), inputs.hessian
