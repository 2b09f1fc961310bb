"""DecoderConfig: what a decoder-only model computes, as typed values; no family's name, no tensor's name."""

from dataclasses import dataclass
from typing import Literal

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]


@dataclass(frozen=True, slots=True)
class Norm:
    """``layer``: (x - mean) / sqrt(var + eps) · weight + bias, over the last axis."""

    kind: Literal["layer"]
    eps: float


@dataclass(frozen=True, slots=True)
class LearnedPositions:
    """A trained table of ``max_positions`` rows, added to the token embedding."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Everything the blocks need to know of a model.

    ``attention_scales`` has one factor per layer, by which q·k is multiplied before the softmax.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_positions: int
    norm: Norm
    positions: LearnedPositions
    activation: Activation
    attention_scales: tuple[float, ...]
    tied_head: bool
