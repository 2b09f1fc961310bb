"""Activations by name, and single parts of a config changed in all layers."""

from dataclasses import replace

import ml_dtypes
import numpy as np

from edgegen_export.architecture.components.attention import QKNorm, Span
from edgegen_export.architecture.components.mlp import Activation
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
}


def layer_norm(eps: float) -> Norm:
    """LayerNorm with weight and bias."""
    return Norm("layer", eps, bias=True)


def with_scale(config: DecoderConfig, scale: float) -> DecoderConfig:
    """``config`` with this factor of all scores."""
    return config.each_attention(lambda own: replace(own, scale=scale))


def with_qk_norm(
    config: DecoderConfig, over: Span = "head", norm: Norm | None = None, *, after_rotation: bool = False
) -> DecoderConfig:
    """``config`` with queries and keys normalized ``over`` a span in all attention: as all else is, or by ``norm``."""
    qk_norm = QKNorm(norm or config.norm, over, after_rotation)
    return config.each_attention(lambda own: replace(own, qk_norm=qk_norm))


def without_gate(config: DecoderConfig) -> DecoderConfig:
    """``config`` with MLPs that have no gate."""
    return config.each_mlp(lambda own: replace(own, gated=False))


def alibi_slopes(heads: int, *, bfloat16: bool = False) -> tuple[float, ...]:
    """The ALiBi slope of each head: powers of 2^(-8/n) for the n heads up to a power of two, and for the rest every
    other one of the finer sequence of 2n (Press et al. 2022)."""
    whole = 1 << (heads.bit_length() - 1)

    def powers(count: int) -> list[float]:
        return [2.0 ** (-8.0 * (k + 1) / count) for k in range(count)]

    slopes = powers(whole) + powers(2 * whole)[::2][: heads - whole]
    dtype = ml_dtypes.bfloat16 if bfloat16 else np.float32
    return tuple(float(x) for x in np.array(slopes, np.float32).astype(dtype).astype(np.float32))
