"""Smoothing: outliers of activations moved into the weights that meet them, where it changes nothing else.

Channel j of what a linear layer takes is divided by ``max|x_j| ** α / max|w_j| ** (1 - α)``, its column multiplied by
the same, and the division is folded into whatever made the channel: a norm, or the rows of another matrix. Xiao, Lin,
Seznec, Wu, Demouth and Han, "SmoothQuant", 2022 (arXiv:2211.10438).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgegen_export.architecture.components.component import Pair
from edgegen_export.architecture.config import LAYER_NORMS, DecoderConfig
from edgegen_export.files.threads import in_threads
from edgegen_export.tensors.lazy import LazyTensor

Floats = NDArray[np.float32]

_LARGEST = 1e4
"""Factors stay within this and its inverse: a channel that is hardly ever used must not blow up when it is."""


def layer_pairs(config: DecoderConfig, layer: int) -> tuple[Pair, ...]:
    """The pairs of a layer in which a factor can be moved exactly, those between matrices first."""
    own = config.layers[layer]
    names = {module: config.stored(layer, one) for one in own.components for module in one.matrices(config.hidden_size)}
    read_by_others = [own.attention] if layer in config.sources else []
    pairs = [pair for one in own.components if one not in read_by_others for pair in one.smoothing_pairs]
    pairs = [pair for pair in pairs if names.keys() >= set(pair.consumers)]
    for norm, sublayers in LAYER_NORMS[config.block_of(layer)].items():
        taking = [one for one in own.components if one.sublayer in sublayers]
        if taking and all(one.inputs for one in taking):
            pairs.append(Pair(norm, tuple(module for one in taking for module in one.inputs)))
    return tuple(pair.within(names[pair.consumers[0]]) for pair in pairs)


def head_pair(config: DecoderConfig) -> Pair | None:
    """The final norm and the head, unless the head's matrix is the embedding's too."""
    projected = config.embedding_size not in (None, config.hidden_size)
    if not config.final_norm or (config.tied_head and not projected):
        return None
    return Pair("final_norm", ("head_in",) if projected else ("head",))


@dataclass(frozen=True, slots=True, eq=False)
class Smoothed:
    """``tensors`` that changed, by our names; ``factors`` [k], by which what the consumers take is divided.

    ``made``: the inverse, of what the producer makes.
    """

    tensors: dict[str, LazyTensor]
    factors: Floats
    made: Floats


def smoothed(tensors: Mapping[str, LazyTensor], pair: Pair, largest: Floats, alpha: float) -> Smoothed:
    """Smooth ``pair`` for consumers whose inputs have the magnitudes ``largest`` [k]."""
    weights = np.max([_column_magnitudes(tensors[f"{name}.weight"]) for name in pair.consumers], axis=0)
    factors = _factors(_per_made_channel(pair, largest), _per_made_channel(pair, weights), alpha)
    stored = [name for name in (f"{pair.producer}.weight", f"{pair.producer}.bias") if name in tensors]
    taken = np.tile(factors.reshape(-1, 1, pair.width), (1, pair.group, 1)).ravel()
    made = np.float32(1) / factors
    changed = {name: tensors[name].scaled(made) for name in stored}
    changed |= {f"{name}.weight": tensors[f"{name}.weight"].scaled(taken, axis=1) for name in pair.consumers}
    return Smoothed(changed, taken, made)


def _per_made_channel(pair: Pair, taken: Floats) -> Floats:
    """The greatest value of ``taken`` [k] among the inputs that one output of the producer stands for."""
    return taken.reshape(-1, pair.group, pair.width).max(axis=1).ravel()


def _factors(activations: Floats, weights: Floats, alpha: float) -> Floats:
    usable = (activations > 0) & (weights > 0) & np.isfinite(activations) & np.isfinite(weights)
    x, w = np.where(usable, activations, 1).astype(np.float64), np.where(usable, weights, 1).astype(np.float64)
    factors = x**alpha / w ** (1 - alpha)
    # Only ratios between channels matter; around one, nothing leaves the range of floats.
    factors = factors / np.exp(np.log(factors[usable]).mean()) if usable.any() else factors
    return np.where(usable, np.clip(factors, 1 / _LARGEST, _LARGEST), 1).astype(np.float32)


def _column_magnitudes(weight: LazyTensor) -> Floats:
    """The greatest magnitude in each column."""
    result = np.zeros(weight.shape[1], np.float32)
    for largest in in_threads(lambda part: np.abs(part[2]).max(axis=0), weight.slabs()):
        np.maximum(result, largest, out=result)
    return result
