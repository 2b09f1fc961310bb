"""Model: a decoder's settings, each said once for all layers, in one flat list; what formulas in tests are written by.

It knows nothing of components: :meth:`Model.config` is the only place that does.
"""

from dataclasses import dataclass

from edgegen_export.architecture.components.altup import AltUp
from edgegen_export.architecture.components.attention import Alibi, Attention, Gate, QKNorm, QueryScale
from edgegen_export.architecture.components.component import Component
from edgegen_export.architecture.components.laurel import Laurel
from edgegen_export.architecture.components.learned_positions import LearnedPositions
from edgegen_export.architecture.components.mlp import MLP, Activation
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.components.normalized import Interpolation
from edgegen_export.architecture.components.per_layer import PerLayerEmbedding
from edgegen_export.architecture.config import Block, DecoderConfig, Layer
from edgegen_export.architecture.rope import Rope


@dataclass(frozen=True, slots=True)
class ModelLayer:
    """Settings that may differ from layer to layer."""

    scale: float
    window: int | None = None
    rope: Rope | None = None
    mlp_only: bool = False
    mlp_width: int | None = None
    source: int | None = None
    cutoff: float | None = None
    block: Block | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """The embeddings of layers' own."""

    width: int
    rows: int
    table_multiplier: float
    projection_multiplier: float
    sum_multiplier: float


@dataclass(frozen=True, slots=True)
class Model:
    """The settings of the whole model, and its layers."""

    layers: tuple[ModelLayer, ...]
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_positions: int
    norm: Norm
    activation: Activation
    tied_head: bool
    gated: bool = False
    block: Block = "sequential"
    positions: LearnedPositions | Alibi | None = None
    qk_norm: QKNorm | None = None
    per_layer: Table | None = None
    altup: AltUp | None = None
    query_scale: QueryScale | None = None
    embedding_size: int | None = None
    embedding_norm: bool = False
    final_norm: bool = True
    clip_qkv: float | None = None
    sinks: bool = False
    gate: Gate | None = None
    sub_norm: Norm | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logit_multiplier: float = 1.0

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def config(self) -> DecoderConfig:
        """The same as the exporter says it."""
        return DecoderConfig(
            layers=tuple(map(self._layer, self.layers)),
            hidden_size=self.hidden_size,
            vocab_size=self.vocab_size,
            max_positions=self.max_positions,
            longest_context=self.max_positions,
            norm=self.norm,
            tied_head=self.tied_head,
            block=self.block,
            extras=(self.positions,) if isinstance(self.positions, LearnedPositions) else (),
            embedding_size=self.embedding_size,
            embedding_norm=self.embedding_norm,
            final_norm=self.final_norm,
            logit_softcap=self.logit_softcap,
            embedding_multiplier=self.embedding_multiplier,
            residual_multiplier=self.residual_multiplier,
            logit_multiplier=self.logit_multiplier,
        )

    def _layer(self, own: ModelLayer) -> Layer:
        attention = Attention(
            self.num_heads,
            self.num_kv_heads,
            self.head_dim,
            own.scale,
            own.window,
            own.rope,
            own.source,
            qk_norm=self.qk_norm,
            query_scale=self.query_scale,
            alibi=self.positions if isinstance(self.positions, Alibi) else None,
            gate=self.gate,
            clip=self.clip_qkv,
            softcap=self.attention_softcap,
            sinks="head" if self.sinks else None,
            sub_norm=self.sub_norm,
        )
        width = own.mlp_width or self.intermediate_size
        mlp = MLP(width, self.activation, self.gated, own.cutoff, self.sub_norm)
        if self.block == "single":
            return Layer(mlp=mlp) if own.mlp_only else Layer(attention)
        return Layer(attention, mlp, extras=self._extras(), block=own.block)

    def _extras(self) -> tuple[Component, ...]:
        found: list[Component] = []
        if table := self.per_layer:
            numbers = (table.table_multiplier, table.projection_multiplier, table.sum_multiplier)
            found.append(PerLayerEmbedding(table.width, table.rows, *numbers, self.activation))
        found += [Laurel(6)] if self.block == "sandwich_with_laurel" else []
        found += [Interpolation(1.0)] if self.block == "interpolated" else []
        return (*found, *([self.altup] if self.altup else []))
