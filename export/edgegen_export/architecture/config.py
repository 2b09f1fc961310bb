"""DecoderConfig: the hyperparameters of a decoder-only model, without names of families or tensors."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.component import Component
from edgegen_export.architecture.components.experts import Experts
from edgegen_export.architecture.components.mixer import Mixer
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm

C = TypeVar("C", bound=Component)

Block = Literal[
    "sequential",
    "sandwich",
    "sandwich_with_laurel",
    "post_norm",
    "norm_after_sum",
    "normed_residual",
    "interpolated",
    "parallel",
    "parallel_two_norms",
    "single",
    "shared_before_mixer",
    "over_blocks",
    "over_blocks_apart",
]
"""The order of norms, attention and MLP in a layer; ``block_kinds.BLOCKS`` has the formulas."""

LAYER_NORMS: dict[Block, Mapping[str, Collection[str]]] = {
    "sequential": {"attn_norm": {"attn"}, "mlp_norm": {"mlp"}},
    "sandwich": {"attn_norm": {"attn"}, "attn_post_norm": (), "mlp_norm": {"mlp"}, "mlp_post_norm": ()},
    "sandwich_with_laurel": {"attn_norm": (), "attn_post_norm": (), "mlp_norm": {"mlp"}, "mlp_post_norm": ()},
    "post_norm": {"attn_post_norm": (), "mlp_post_norm": ()},
    "norm_after_sum": {"attn_norm": (), "mlp_norm": ()},
    "normed_residual": {"attn_norm": (), "mlp_norm": ()},
    "interpolated": {"attn_norm": (), "attn_post_norm": (), "mlp_norm": (), "mlp_post_norm": ()},
    "parallel": {"attn_norm": {"attn", "mlp"}},
    "parallel_two_norms": {"attn_norm": {"attn"}, "mlp_norm": {"mlp"}},
    "single": {"norm": {"attn", "mlp"}},
    "shared_before_mixer": {"norm": {"attn"}},
    "over_blocks": {"attn_norm": (), "mlp_norm": ()},
    "over_blocks_apart": {"query_norm": (), "key_norm": (), "value_norm": (), "mlp_norm": ()},
}
"""The norms of a layer, by kind of block, each with the sublayers that alone take what it gives: none where that is the
residual stream, too, or is the input of something else besides."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The components of one layer: attention, or a ``mixer`` in its place or beside it, whose results are added; an MLP
    or experts; and ``extras``. A layer of a ``single`` block has one of ``mixer``, ``attention`` and ``mlp``.

    ``block``: the kind of block that it is, where that is not the model's. ``repeats``: an earlier layer with the same
    components and block, whose tensors it computes with once more, but for those of the components ``own``, and for its
    norms where it has any such.
    """

    attention: Attention | None = None
    mlp: MLP | Experts | None = None
    mixer: Mixer | None = None
    extras: tuple[Component, ...] = ()
    block: Block | None = None
    repeats: int | None = None
    own: tuple[Component, ...] = ()

    @property
    def mixing(self) -> tuple[Mixer | Attention, ...]:
        """Components that take the tokens before into account."""
        return tuple(filter(None, (self.mixer, self.attention)))

    @property
    def components(self) -> tuple[Component, ...]:
        return tuple(filter(None, (self.mixer, self.attention, self.mlp, *self.extras)))

    def stores(self, component: Component) -> bool:
        """Whether it has the tensors of its component itself."""
        return self.repeats is None or component in self.own

    @property
    def experts(self) -> Experts | None:
        return self.first(Experts)

    @property
    def source(self) -> int | None:
        """The earlier layer whose keys and values it reads, instead of its own or besides."""
        return next((one.reads for one in self.mixing if one.reads is not None), None)

    def first(self, kind: type[C]) -> C | None:
        """The component of this class, if it has one."""
        return next((one for one in self.components if isinstance(one, kind)), None)


@dataclass(frozen=True, slots=True)
class Multiplier:
    """Factors of the input and the result (with its bias) of the matrix ``module`` of every layer."""

    module: str
    takes: float = 1.0
    gives: float = 1.0


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """All hyperparameters that the graph blocks read: those of the whole model, and its ``layers``; ``extras``:
    components that are of no layer.

    ``max_positions``: the context it is exported for; ``longest_context``: the longest it can be exported for.
    ``embedding_size``: width of the token embedding, projected to ``hidden_size`` where they differ.
    ``logit_softcap`` c: logits are ``c · tanh(logit / c)``.
    Multipliers: of the token embedding, of what each sublayer adds to the residual stream, of the logits; and those of
    single matrices in ``multipliers``.
    ``ternary``: the matrices of the layers have the values -1, 0 and 1 and one scale each, and take inputs that are
    rounded to 8 bits for each token (BitNet b1.58, arXiv:2402.17764).
    """

    layers: tuple[Layer, ...]
    hidden_size: int
    vocab_size: int
    max_positions: int
    longest_context: int
    norm: Norm
    tied_head: bool
    block: Block = "sequential"
    extras: tuple[Component, ...] = ()
    embedding_size: int | None = None
    embedding_norm: bool = False
    final_norm: bool = True
    logit_softcap: float | None = None
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logit_multiplier: float = 1.0
    multipliers: tuple[Multiplier, ...] = ()
    ternary: bool = False

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def passes(self) -> dict[int, list[int]]:
        """The layers that repeat none, each with all that compute with its tensors: itself and those that repeat it."""
        found: dict[int, list[int]] = {}
        for i, layer in enumerate(self.layers):
            found.setdefault(i if layer.repeats is None else layer.repeats, []).append(i)
        return found

    def stored(self, layer: int, component: Component | None = None) -> str:
        """The name of a layer's tensors, and a dot: another's, where it repeats that; of the ``component``, or of those
        that it does not have itself."""
        repeats = self.layers[layer].repeats
        itself = repeats is None or (component is not None and self.layers[layer].stores(component))
        return f"layers.{layer if itself else repeats}."

    @property
    def attentions(self) -> dict[int, Attention]:
        """The attention of the layers that have it, by layer."""
        return {i: layer.attention for i, layer in enumerate(self.layers) if layer.attention}

    @property
    def attention(self) -> Attention:
        """The attention of the first layer that has it.

        Raises:
            ValueError: no layer has attention.
        """
        for attention in self.attentions.values():
            return attention
        raise ValueError("no layer has attention")

    @property
    def mlp(self) -> MLP | Experts:
        """The MLP of the first layer that has one.

        Raises:
            ValueError: no layer has one.
        """
        for layer in self.layers:
            if layer.mlp:
                return layer.mlp
        raise ValueError("no layer has an MLP")

    @property
    def experts(self) -> Experts | None:
        """The experts of the first layer that has them."""
        return self.first(Experts)

    def first(self, kind: type[C]) -> C | None:
        """The component of this class, if it has one: the first layer's, where layers have it."""
        components = (*self.extras, *(one for layer in self.layers for one in layer.components))
        return next((one for one in components if isinstance(one, kind)), None)

    def only(self, kind: type[C]) -> C:
        """The component of this class, which it has."""
        found = self.first(kind)
        assert found, f"it has {kind.__name__}"
        return found

    def block_of(self, layer: int) -> Block:
        """The kind of block that a layer is."""
        return self.layers[layer].block or self.block

    @property
    def cached_layers(self) -> list[int]:
        """The layers that have keys and values of their own."""
        return [i for i, attention in self.attentions.items() if attention.source is None]

    @property
    def cached_until(self) -> int:
        """The layers from here on keep nothing: all that mixes tokens there reads what earlier ones keep."""
        mixing = [[one.keeps_state(self.hidden_size) for one in layer.mixing] for layer in self.layers]
        return max(i for i, kept in enumerate(mixing) if any(kept) or not kept) + 1

    @property
    def sources(self) -> list[int]:
        """The layers whose keys and values others read, in order."""
        return sorted({layer.source for layer in self.layers if layer.source is not None})

    def each_layer(self, change: Callable[[Layer], Layer], which: Collection[int] | None = None) -> "DecoderConfig":
        """The same model with the layers of ``which``, all without it, changed."""
        layers = (change(own) if which is None or i in which else own for i, own in enumerate(self.layers))
        return replace(self, layers=tuple(layers))

    def each_attention(
        self, change: Callable[[Attention], Attention], which: Collection[int] | None = None
    ) -> "DecoderConfig":
        """The same model with the attention of the layers of ``which``, as far as they have it, changed."""
        return self.each_layer(
            lambda own: replace(own, attention=change(own.attention)) if own.attention else own, which
        )

    def each_mlp(self, change: Callable[[MLP], MLP]) -> "DecoderConfig":
        """The same model with its plain MLPs changed."""
        return self.each_layer(lambda own: replace(own, mlp=change(plain)) if (plain := own.first(MLP)) else own)

    def each_experts(self, change: Callable[[Experts], Experts]) -> "DecoderConfig":
        """The same model with its experts changed."""
        return self.each_layer(lambda own: replace(own, mlp=change(own.experts)) if own.experts else own)

    def for_context(self, positions: int) -> "DecoderConfig":
        """The same model with a context of ``positions``; a sliding window of at least that size is dropped, and a
        scale of queries that would be 1 everywhere."""

        def fitted(own: Attention) -> Attention:
            window = own.window if own.window and own.window < positions else None
            scale = own.query_scale if own.query_scale and own.query_scale.original < positions else None
            return replace(own, window=window, query_scale=scale)

        return replace(self.each_attention(fitted), max_positions=positions)
