"""DecoderConfig: the hyperparameters of a decoder-only model, without names of families or tensors."""

from dataclasses import dataclass, replace
from typing import Literal

from edgegen_export.architecture.rope import Rope

Activation = Literal["gelu", "gelu_tanh", "relu", "relu2", "silu", "xielu"]
"""``relu2``: relu(x)². ``xielu`` has trained numbers in every layer (Huang and Schlag 2024, arXiv:2411.13010)."""

Block = Literal[
    "sequential",
    "sandwich",
    "post_norm",
    "norm_after_sum",
    "normed_residual",
    "parallel",
    "parallel_two_norms",
    "single",
]
"""The order of norms, attention and MLP in a layer; ``blocks.decoder_block`` has the formulas."""

LAYER_NORMS: dict[Block, tuple[str, ...]] = {
    "sequential": ("attn_norm", "mlp_norm"),
    "sandwich": ("attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm"),
    "post_norm": ("attn_post_norm", "mlp_post_norm"),
    "norm_after_sum": ("attn_norm", "mlp_norm"),
    "normed_residual": ("attn_norm", "mlp_norm"),
    "parallel": ("attn_norm",),
    "parallel_two_norms": ("attn_norm", "mlp_norm"),
    "single": ("norm",),
}
"""The norms of a layer, by kind of block."""


@dataclass(frozen=True, slots=True)
class Norm:
    """``layer``: (x - mean) / sqrt(var + eps) · weight + bias over the last axis; ``rms``: x / sqrt(mean(x²) + eps) ·
    weight. ``offset`` is added to the stored weight; ``weight`` and ``bias`` say which of them are trained."""

    kind: Literal["layer", "rms"]
    eps: float
    weight: bool = True
    bias: bool = False
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class QKNorm:
    """Queries and keys normalized before rotation, or ``after_rotation``.

    ``over``: ``head``, each head with one weight [head_dim] for all; ``each_head``, each with its own
    [heads, head_dim]; ``all``, the heads of a token together, [heads · head_dim].
    """

    norm: Norm
    over: Literal["head", "each_head", "all"]
    after_rotation: bool = False


@dataclass(frozen=True, slots=True)
class QueryScale:
    """Queries times ``1 + beta · log(1 + ⌊position / original⌋)``, which is 1 at the first ``original`` positions."""

    beta: float
    original: int


@dataclass(frozen=True, slots=True)
class LearnedPositions:
    """A trained table of ``rows`` positions, added to the token embedding."""

    rows: int


@dataclass(frozen=True, slots=True)
class Alibi:
    """``slopes[head] · position of the key · scale`` added to the scores (Press et al. 2022, arXiv:2108.12409).

    ``bfloat16``: the product of slope and position is rounded to bfloat16, as in the model's own code.
    """

    slopes: tuple[float, ...]
    scale: float = 1.0
    bfloat16: bool = False


@dataclass(frozen=True, slots=True)
class SwiGLU:
    """``(up + offset) · gate · sigmoid(alpha · gate)``; gate at most ``limit``, and up within it on both sides."""

    alpha: float = 1.0
    offset: float = 0.0
    limit: float = 1e30


@dataclass(frozen=True, slots=True)
class Routing:
    """How the router's logits choose experts and weigh them.

    ``scores``: the softmax of all logits, or the sigmoid of each. ``choice_bias``: trained numbers are added to the
    scores for the choice alone. ``groups``: experts are chosen from the ``chosen_groups`` of so many whose two best
    scores have the greatest sum. ``epsilon``: added to the sum that weights are normalized by. ``scaling``: factor of
    all weights, which is put into the experts; ``expert_scales``: a trained factor of each expert's weight.
    """

    scores: Literal["softmax", "sigmoid"] = "softmax"
    choice_bias: bool = False
    groups: int = 1
    chosen_groups: int = 1
    epsilon: float = 0.0
    scaling: float = 1.0
    expert_scales: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixture of experts: each token uses the ``per_token`` MLPs of ``count`` that the router scores highest, weighted
    by these scores; ``normalized``: the weights of the chosen experts are made to sum to one.

    ``width``: the intermediate size of each. ``shared_width``: that of one more, which every token uses, 0 without
    one; ``shared_gated``: its result times the sigmoid of a gate of its own. ``dense``: the layers that have none,
    but a plain MLP, or no MLP either. ``latent``: experts take a projection to so many numbers, and what they give is
    projected back. ``own_norms``: router and experts take the residual stream, each through a norm of its own, and what
    the shared expert and the others give is normalized before it is summed.
    """

    count: int
    per_token: int
    normalized: bool
    width: int
    glu: SwiGLU = SwiGLU()
    shared_width: int = 0
    shared_gated: bool = False
    dense: frozenset[int] = frozenset()
    routing: Routing = Routing()
    latent: int | None = None
    own_norms: bool = False


@dataclass(frozen=True, slots=True)
class ShortConv:
    """A gated convolution over the last ``width`` tokens, each channel by itself: ``out(c · conv(b · v))``, where b, c
    and v are projections of what the layer takes."""

    width: int


@dataclass(frozen=True, slots=True)
class Mamba2:
    """A state space mixer (Dao and Gu 2024, arXiv:2405.21060): ``h = exp(-rate · dt) · h + dt · B ⊗ x``, ``y = C · h +
    skip · x`` in each of ``heads`` heads of ``head_dim`` channels, whose state h is [state, head_dim].

    x, B, C pass a convolution over the last ``width`` tokens and SiLU; dt is a softplus, one number per head. Heads
    share B and C in ``groups``. ``eps``: of the RMS norm of ``y · silu(z)`` in as many groups, None without one;
    ``gate_last``: of y instead, then times ``silu(z)``. ``beside_attention``: the layer has both, and adds them up.
    """

    heads: int
    head_dim: int
    groups: int
    state: int
    width: int
    eps: float | None
    gate_last: bool = False
    beside_attention: bool = False

    @property
    def inner(self) -> int:
        """Channels of x, y and z."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Channels of the convolution: those of x, B and C."""
        return self.inner + 2 * self.groups * self.state


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """Linear attention with the gated delta rule (Yang et al. 2024, arXiv:2412.06464). The state of a value head,
    [key_dim, value_dim], decays by ``exp(-rate · dt)``; what it has for the key is moved towards the value by beta.

    q, k and v pass a convolution over the last ``width`` tokens and SiLU, and each head of q and k is scaled to length
    one. dt is a softplus, beta a sigmoid, each one number per value head. Value heads share the ``key_heads`` in order.
    What q reads passes an RMS norm by head with ``eps``, and is multiplied with ``silu(z)``.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    width: int
    eps: float

    @property
    def keys(self) -> int:
        """Channels of q, and of k."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Channels of v, and of z."""
        return self.value_heads * self.value_dim

    @property
    def convolved(self) -> int:
        """Channels of the convolution: those of q, k and v."""
        return 2 * self.keys + self.values


@dataclass(frozen=True, slots=True)
class PerLayerEmbedding:
    """Each layer looks up an embedding of its own, ``width`` numbers, in a table of ``rows`` tokens for all layers.

    What a layer takes is ``sum_multiplier · (norm(projection_multiplier · projection(x)) + table_multiplier ·
    table[token])``, with x the token embedding; tokens beyond the table have its first row. Behind its MLP the layer
    adds ``norm(out(activation(gate(y)) · that))`` to the residual stream y.
    """

    width: int
    rows: int
    table_multiplier: float
    projection_multiplier: float
    sum_multiplier: float


@dataclass(frozen=True, slots=True)
class AltUp:
    """Several residual streams (Baykal et al. 2023, arXiv:2301.13310): a layer computes the ``active`` one, and
    predicts and corrects all. ``m(x) = tanh(router(norm(x)) / d)`` gives one number per stream, for x of width d.

    Before the layer: ``p[j] = x[j] + Σ P[j, i] · x[i]`` with ``P = predict(m(x[active]))``. It makes y of
    ``p[active]``. Behind it: ``x[j] = p[j] + (1 + C[j]) · (y - p[active])`` with ``C = correct(m(y))``, a matrix whose
    numbers are within ``clip``.

    The first stream is the token embedding, and the others are projections of it with its magnitude. In the end
    projections of the others with the magnitude of the first are averaged with it. What a layer makes of an embedding
    of its own, of ``x[active]`` times a vector if ``scaled``, is added to all streams but the first.
    """

    streams: int
    active: int = 0
    scaled: bool = True
    clip: float | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """The attention settings of one layer, or the convolution, Mamba-2 mixer or gated delta net that it has instead.

    ``scale``: factor of q·k before the softmax; ``window``: size of the sliding window, which includes the query's own
    position, or None for full attention; ``rope``: rotation of queries and keys, or None; ``conv``, ``mamba``,
    ``delta``: instead of attention, or beside it, None where there is attention only; ``mlp_only``: with none of them.
    ``head_dim``, ``kv_heads``, ``mlp_width``: where they differ from the model's. ``value_is_key``: values are what the
    key projection gives, before its norm and rotation. ``source``: an earlier layer, whose keys and values attention
    reads instead of its own. ``cutoff``: of what the MLP's gate projection gives, ``relu(x - (mean + cutoff ·
    deviation))`` is activated, mean and deviation those of a token's numbers.
    """

    scale: float
    window: int | None = None
    rope: Rope | None = None
    conv: ShortConv | None = None
    mamba: Mamba2 | None = None
    delta: GatedDeltaNet | None = None
    mlp_only: bool = False
    head_dim: int | None = None
    kv_heads: int | None = None
    value_is_key: bool = False
    mlp_width: int | None = None
    source: int | None = None
    cutoff: float | None = None

    @property
    def attends(self) -> bool:
        """Whether it has attention."""
        if self.mlp_only or self.conv or self.delta:
            return False
        return self.mamba is None or self.mamba.beside_attention


@dataclass(frozen=True, slots=True)
class Multiplier:
    """What the matrix ``module`` of every layer takes and gives (with its bias) is multiplied with."""

    module: str
    takes: float = 1.0
    gives: float = 1.0


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """All hyperparameters that the graph blocks read.

    ``max_positions``: the context it is exported for; ``longest_context``: the longest it can be exported for.
    ``embedding_size``: width of the token embedding, projected to ``hidden_size`` where they differ.
    ``gated``: the MLP is ``down(activation(gate(x)) · up(x))`` instead of ``down(activation(up(x)))``.
    ``experts``: layers have several MLPs, but for those that are listed as dense.
    ``sinks``: each head has a logit that takes a share of the softmax and adds nothing (Xiao et al., arXiv:2309.17453).
    ``value_norm``: each head of the values is divided by its root mean square, with the epsilon of ``norm``.
    ``layer_scale``: what a layer gives, with the residual stream, is multiplied with a trained number.
    ``per_layer``: each layer has an embedding of its own, which it adds behind the MLP of a ``sandwich``.
    ``altup``: there are several residual streams. ``laurel``: rank of a learned residual (Menghani et al. 2024,
    arXiv:2411.07501) beside the attention of a ``sandwich``.
    ``gated_attention``: what attention reads is multiplied with the sigmoid of a gate, projected like the queries, one
    number for each channel or for each head.
    ``clip_qkv``: limit to which Q, K and V are clamped. A softcap c is ``c · tanh(x / c)``.
    Multipliers: of the token embedding, of what each sublayer adds to the residual stream, of the logits; and those of
    single matrices in ``multipliers``.
    """

    layers: tuple[Layer, ...]
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_positions: int
    longest_context: int
    norm: Norm
    activation: Activation
    tied_head: bool
    gated: bool = False
    experts: Experts | None = None
    block: Block = "sequential"
    positions: LearnedPositions | Alibi | None = None
    qk_norm: QKNorm | None = None
    value_norm: bool = False
    layer_scale: bool = False
    per_layer: PerLayerEmbedding | None = None
    altup: AltUp | None = None
    laurel: int | None = None
    query_scale: QueryScale | None = None
    embedding_size: int | None = None
    embedding_norm: bool = False
    final_norm: bool = True
    clip_qkv: float | None = None
    sinks: bool = False
    gated_attention: Literal["by_channel", "by_head"] | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logit_multiplier: float = 1.0
    multipliers: tuple[Multiplier, ...] = ()

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def attention_layers(self) -> list[int]:
        """The layers that have attention."""
        return [i for i, layer in enumerate(self.layers) if layer.attends]

    @property
    def cached_layers(self) -> list[int]:
        """The layers that have keys and values of their own."""
        return [i for i in self.attention_layers if self.layers[i].source is None]

    @property
    def cached_until(self) -> int:
        """The layers from here on keep nothing: they attend to what earlier ones keep."""
        keeping = [i for i, layer in enumerate(self.layers) if layer.source is None]
        return keeping[-1] + 1

    @property
    def sources(self) -> list[int]:
        """The layers whose keys and values others read, in order."""
        return sorted({layer.source for layer in self.layers if layer.source is not None})

    def has_mlp(self, layer: int) -> bool:
        """Whether a layer has an MLP, or experts: all have but those of a ``single`` block with something else."""
        return self.block != "single" or self.layers[layer].mlp_only

    def head_dim_of(self, layer: int) -> int:
        """The size of a layer's heads."""
        return self.layers[layer].head_dim or self.head_dim

    def kv_heads_of(self, layer: int) -> int:
        """The number of a layer's key and value heads."""
        return self.layers[layer].kv_heads or self.num_kv_heads

    def mlp_width_of(self, layer: int) -> int:
        """The intermediate size of a layer's plain MLP."""
        return self.layers[layer].mlp_width or self.intermediate_size

    def experts_of(self, layer: int) -> Experts | None:
        """The experts of a layer; None where it has none."""
        return None if self.experts is None or layer in self.experts.dense else self.experts

    def fuses(self, experts: Experts) -> bool:
        """Whether one operator computes ``experts``: if they are gated with SiLU, and chosen one by one for the
        router's own weights."""
        routing = experts.routing
        grouped = routing.chosen_groups < routing.groups
        return self.gated and self.activation == "silu" and not grouped and not routing.expert_scales

    def for_context(self, positions: int) -> "DecoderConfig":
        """The same model with a context of ``positions``; a sliding window of at least that size is dropped, and a
        scale of queries that would be 1 everywhere."""
        layers = tuple(
            replace(layer, window=None) if layer.window and layer.window >= positions else layer
            for layer in self.layers
        )
        scale = self.query_scale
        scale = None if scale and scale.original >= positions else scale
        return replace(self, layers=layers, query_scale=scale, max_positions=positions)
