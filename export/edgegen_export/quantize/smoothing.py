"""Smoothing: outliers of activations moved into the weights that meet them, where it changes nothing else.

Channel j of what a linear layer takes is divided by ``max|x_j| ** α / max|w_j| ** (1 - α)``, its column multiplied by
the same, and the division is folded into whatever made the channel: a norm, or the rows of another matrix. Xiao, Lin,
Seznec, Wu, Demouth and Han, "SmoothQuant", 2022 (arXiv:2211.10438).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgegen_export.architecture.architecture import mixer_matrices
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.checkpoint import LazyTensor

Floats = NDArray[np.float32]

_LARGEST = 1e4
"""Factors stay within this and its inverse: a channel that is hardly ever used must not blow up when it is."""


@dataclass(frozen=True, slots=True)
class Pair:
    """``maker``: the module, norm or matrix, whose outputs are the inputs of the modules ``takers``.

    ``group``: how many channels in the takers' inputs each block of ``width`` of the maker's outputs stands for, one
    such block after the other: a key/value head serves that many query heads.
    """

    maker: str
    takers: tuple[str, ...]
    group: int = 1
    width: int = 1


def layer_pairs(config: DecoderConfig, layer: int) -> tuple[Pair, ...]:
    """The pairs of a layer in which a factor can be moved exactly, those between matrices first."""
    attn, mlp, conv, mamba, delta = (f"layers.{layer}.{name}" for name in ("attn", "mlp", "conv", "mamba", "delta"))
    pairs: list[Pair] = []
    kind = config.layers[layer]
    if kind.conv:  # what it takes is multiplied with c
        pairs.append(Pair(f"{conv}.c", (f"{conv}.out",)))
    if kind.mamba and kind.mamba.eps is not None:
        pairs.append(Pair(f"{mamba}.norm", (f"{mamba}.out",)))
    if kind.delta:
        pairs.append(Pair(f"{delta}.norm", (f"{delta}.out",)))
    shared = kind.source is not None or layer in config.sources  # values that other layers read too
    if kind.attends and config.clip_qkv is None and not (config.value_norm or kind.value_is_key or shared):
        # Attention is linear in its values.
        group = config.num_heads // config.kv_heads_of(layer)
        pairs.append(Pair(f"{attn}.v", (f"{attn}.o",), group, config.head_dim_of(layer)))
    experts = config.experts_of(layer)
    if (
        config.has_mlp(layer) and not experts and (config.gated or config.activation == "relu")
    ):  # relu(x / s) = relu(x) / s
        pairs.append(Pair(f"{mlp}.up", (f"{mlp}.down",)))
    from_attention = tuple(name for inputs in mixer_matrices(config, layer).values() for name in inputs)
    from_mlp = (f"{mlp}.gate", f"{mlp}.up") if config.gated else (f"{mlp}.up",)
    if config.laurel:
        pairs.append(Pair(f"layers.{layer}.laurel.left", (f"layers.{layer}.laurel.right",)))
    if config.per_layer and config.altup and config.altup.scaled:
        pairs.append(Pair(f"layers.{layer}.altup.scale", (f"layers.{layer}.per_layer.gate",)))
    attn_norm, mlp_norm = f"layers.{layer}.attn_norm", f"layers.{layer}.mlp_norm"
    match config.block:
        case "sequential" | "sandwich" | "parallel_two_norms":
            if not config.laurel:  # which adds what attention takes as it is
                pairs.append(Pair(attn_norm, from_attention))
            if not experts:  # which are multiplied with activations as they are
                pairs.append(Pair(mlp_norm, from_mlp))
        case "parallel":
            if not experts:
                pairs.append(Pair(attn_norm, from_attention + from_mlp))
        case "single":
            if not config.has_mlp(layer):
                pairs.append(Pair(f"layers.{layer}.norm", from_attention))
            elif not experts:
                pairs.append(Pair(f"layers.{layer}.norm", from_mlp))
        case "post_norm" | "norm_after_sum" | "normed_residual":
            pass  # what the matrices take is the residual stream itself
    return tuple(pairs)


def head_pair(config: DecoderConfig) -> Pair | None:
    """The final norm and the head, unless the head's matrix is the embedding's too."""
    projected = config.embedding_size not in (None, config.hidden_size)
    if not config.final_norm or (config.tied_head and not projected):
        return None
    return Pair("final_norm", ("head_in",) if projected else ("head",))


@dataclass(frozen=True, slots=True, eq=False)
class Smoothed:
    """``tensors`` that changed, by our names; ``factors`` [k], by which what the takers take is divided."""

    tensors: dict[str, LazyTensor]
    factors: Floats


def smoothed(tensors: Mapping[str, LazyTensor], pair: Pair, largest: Floats, alpha: float) -> Smoothed:
    """Smooth ``pair`` for takers whose inputs have the magnitudes ``largest`` [k]."""
    weights = np.max([_column_magnitudes(tensors[f"{name}.weight"]) for name in pair.takers], axis=0)
    factors = _factors(_per_made_channel(pair, largest), _per_made_channel(pair, weights), alpha)
    maker = [name for name in (f"{pair.maker}.weight", f"{pair.maker}.bias") if name in tensors]
    taken = np.tile(factors.reshape(-1, 1, pair.width), (1, pair.group, 1)).ravel()
    changed = {name: tensors[name].scaled(np.float32(1) / factors) for name in maker}
    changed |= {f"{name}.weight": tensors[f"{name}.weight"].scaled(taken, axis=1) for name in pair.takers}
    return Smoothed(changed, taken)


def _per_made_channel(pair: Pair, taken: Floats) -> Floats:
    """The greatest value of ``taken`` [k] among the inputs that one output of the maker stands behind."""
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
    for _, _, slab in weight.slabs():
        np.maximum(result, np.abs(slab).max(axis=0), out=result)
    return result
