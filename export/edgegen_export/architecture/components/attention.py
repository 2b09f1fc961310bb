"""Attention: softmax attention over a KV cache, and all that happens to queries, keys and values before it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from edgegen_export.architecture.components.component import (
    LEAST_ONNXRUNTIME,
    WINDOWS,
    Component,
    Modules,
    Norms,
    Pair,
    Shapes,
)
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.rope import Rope
from edgegen_export.architecture.tensor_layouts import Shape

Span = Literal["head", "each_head", "all"]
"""Of numbers that queries and keys are normalized over: :class:`QKNorm`."""


@dataclass(frozen=True, slots=True)
class QKNorm:
    """Queries and keys normalized before rotation, or ``after_rotation``.

    ``over``: ``head``, each head with one weight [head_dim] for all; ``each_head``, each with its own
    [heads, head_dim]; ``all``, the heads of a token together, [heads · head_dim].
    """

    norm: Norm
    over: Span
    after_rotation: bool = False

    def shape(self, heads: int, head_dim: int) -> Shape:
        """Of the weight for so many heads."""
        return {"head": (head_dim,), "each_head": (heads, head_dim), "all": (heads * head_dim,)}[self.over]


@dataclass(frozen=True, slots=True)
class QueryScale:
    """Queries times ``1 + beta · log(1 + ⌊position / original⌋)``, which is 1 at the first ``original`` positions;
    ``smooth``: times ``1 + beta · log(max(1, (position + 1) / original))``."""

    beta: float
    original: int
    smooth: bool = False


@dataclass(frozen=True, slots=True)
class Alibi:
    """``slopes[head] · position of the key · scale`` added to the scores (Press et al. 2022, arXiv:2108.12409).

    ``bfloat16``: the product of slope and position is rounded to bfloat16, as in the model's own code.
    """

    slopes: tuple[float, ...]
    scale: float = 1.0
    bfloat16: bool = False


@dataclass(frozen=True, slots=True)
class Gate:
    """Gate of attention: its sigmoid, projected like the queries, multiplies what attention reads, one number for each
    channel or for each head; ``softplus``: with ``log(1 + exp(gate))`` instead."""

    by: Literal["channel", "head"]
    softplus: bool = False


@dataclass(frozen=True, slots=True)
class Attention(Component):
    """Causal attention of ``heads`` queries over ``kv_heads`` keys and values, each of ``head_dim`` numbers.

    ``scale``: factor of q·k before the softmax; ``window``: size of the sliding window, which includes the query's own
    position, or None for full attention; ``rope``: rotation of queries and keys, or None. ``source``: an earlier layer,
    whose keys and values it reads instead of its own. ``value_is_key``: values are what the key projection gives,
    before its norm and rotation. ``value_norm``: of each head of the values, without weights. ``clip``: limit to which
    q, k and v are clamped. ``softcap``: scores are ``softcap · tanh(score / softcap)``.
    ``sinks``: each head has a trained logit, or each query one that is projected, which takes a share of the softmax
    and adds nothing (Xiao et al., arXiv:2309.17453).
    ``sub_norm``: what attention reads is normalized, all heads together, before the output projection.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    rope: Rope | None = None
    source: int | None = None
    value_is_key: bool = False
    qk_norm: QKNorm | None = None
    value_norm: Norm | None = None
    query_scale: QueryScale | None = None
    alibi: Alibi | None = None
    gate: Gate | None = None
    clip: float | None = None
    softcap: float | None = None
    sinks: Literal["head", "query"] | None = None
    sub_norm: Norm | None = None

    sublayer: ClassVar[str | None] = "attn"
    name: ClassVar[str] = "attn"
    inputs_wide: ClassVar[int] = 1
    """How many hidden states side by side it takes."""
    latent: ClassVar[bool] = False
    """Whether the KV cache keeps latents, which are both keys and values."""
    query_factors: ClassVar[str | None] = None
    """Trained numbers that rotated queries are multiplied with."""

    @property
    def least_onnxruntime(self) -> str:
        return WINDOWS if self.window else LEAST_ONNXRUNTIME

    @property
    def reads(self) -> int | None:
        return self.source

    @property
    def size(self) -> int:
        """Numbers of a query, and of a key, as rope rotates them."""
        return self.head_dim

    @property
    def width(self) -> int:
        """Channels of the queries."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Channels of the keys, and of the values."""
        return self.kv_heads * self.head_dim

    @property
    def farthest(self) -> int | None:
        """The distance beyond which all keys are as far, where scores depend on distances."""
        return None

    @property
    def takes_apart(self) -> bool:
        """Whether queries, keys or values are changed by themselves before scores are computed."""
        changed = self.qk_norm or self.value_norm or self.value_is_key or self.query_scale
        return bool(changed) or self.size != self.head_dim

    @property
    def sees_shifts(self) -> bool:
        """Whether its result changes where the same is subtracted from all keys."""
        return self.softcap is not None or self.sinks is not None or self.latent

    @property
    def turned(self) -> Rope | None:
        """The rotation in whose pairs of channels queries and keys may be turned alike, and no score changes."""
        changed = self.qk_norm or self.clip is not None or self.source is not None
        apart = self.latent or self.size != self.head_dim
        return None if changed or apart else self.rope

    @property
    def key_factors(self) -> Modules:
        """Trained numbers that rotated keys are multiplied with."""
        return ("attn.k_norm.weight",) if self.qk_norm and self.qk_norm.after_rotation else ()

    @property
    def gates(self) -> Shapes:
        """The channels of the gate, if it has one."""
        return {"gate": ({"head": self.heads, "channel": self.width}[self.gate.by],)} if self.gate else {}

    @property
    def projected(self) -> Shapes:
        """The channels of what is projected of the sublayer's input, in the order in which the graph fuses it."""
        keys = {} if self.source is not None else {"k": (self.kv_width,)}
        values = {} if self.source is not None or self.value_is_key else {"v": (self.kv_width,)}
        return {"q": (self.width,), **keys, **values, **self.gates}

    @property
    def inputs(self) -> Modules:
        return tuple(f"attn.{name}" for name in self.projected)

    @property
    def outputs(self) -> Modules:
        return ("attn.o",)

    @property
    def spare(self) -> Modules:
        names = ("k.weight", "k.bias", "v.weight", "v.bias", "k_norm.weight", "k_norm.bias")
        return () if self.source is None else tuple(f"attn.{name}" for name in names)

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        if self.sub_norm:
            return (Pair("attn.sub_norm", self.outputs),)
        if self.clip is not None or self.value_norm or self.value_is_key or self.source is not None:
            return ()
        return (Pair("attn.v", self.outputs, self.heads // self.kv_heads, self.head_dim),)  # it is linear in its values

    def matrices(self, hidden: int) -> Shapes:
        taking = {f"attn.{name}": (*rows, self.inputs_wide * hidden) for name, rows in self.projected.items()}
        return {**taking, "attn.o": (hidden, self.width)}

    def keeps_state(self, hidden: int) -> bool:
        return self.source is None

    def numbers(self, hidden: int) -> Shapes:
        return {"attn.sinks": (self.heads,)} if self.sinks == "head" else {}

    def norms(self, norm: Norm, hidden: int) -> Norms:
        found = {"attn.sub_norm": (self.sub_norm, (self.width,))} if self.sub_norm else {}
        if self.qk_norm is None:
            return found
        heads = {"q": self.heads, **({"k": self.kv_heads} if self.source is None else {})}
        own = self.qk_norm
        return found | {f"attn.{x}_norm": (own.norm, own.shape(count, self.head_dim)) for x, count in heads.items()}
