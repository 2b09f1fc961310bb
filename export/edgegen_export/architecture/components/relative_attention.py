"""RelativeAttention: attention whose queries add to their scores a number for each distance."""

from dataclasses import dataclass, field

import numpy as np

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.component import Modules, Pair, Shapes, Tensors, scale
from edgegen_export.architecture.components.sublayer_convs import with_input
from edgegen_export.tensors.lazy import LazyTensor

PROFILES = "attn.profiles"
"""By distance, what each number of a query's relative state adds to its scores."""
QUERY_GAIN, RELATIVE_GAIN = "attn.q_gain", "attn.relative_gain"
KEY_CONV, VALUE_CONV = "k_conv", "v_conv"


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest length of a head's query and key, ``heads``, and of its relative state; longer ones are made as short
    as that. Queries and relative states are multiplied with trained numbers first, and keys are not normalized."""

    heads: float
    relative: float


@dataclass(frozen=True, slots=True)
class RelativeAttention(Attention):
    """Attention with ``profiles[distance] · r`` added to the scores of a query, and nothing beyond ``extent``
    distances, where each head's relative state r of ``rank`` numbers is projected like the query. ``query_scale``
    multiplies r too.

    Keys and values are ``x + conv(x)`` over the last ``conv`` tokens of what is projected, each channel by itself,
    before their norms. ``even``: divided by the root of the number of terms. ``dynamic``: to the kernel's taps are
    added those that a token makes for each head.

    ``apart``: queries, keys and values are projected of different inputs.
    """

    rank: int = field(kw_only=True)
    extent: int = field(kw_only=True)
    conv: int = field(kw_only=True)
    even: bool = False
    dynamic: bool = False
    apart: bool = False
    limits: Limits | None = None

    @property
    def farthest(self) -> int:
        return self.extent

    @property
    def of_queries(self) -> Shapes:
        """Projections of the queries' input, and the number of channels of each."""
        sinks = {"sink": (self.heads,)} if self.sinks == "query" else {}
        return {"q": (self.width,), "relative": (self.heads * self.rank,), **self.gates, **sinks}

    def of_keys(self, name: str) -> Shapes:
        """Projections of the input of keys, or of values: ``k`` or ``v``."""
        return {name: (self.kv_width,), **({f"{name}_taps": (self.kv_heads * self.conv,)} if self.dynamic else {})}

    @property
    def projected(self) -> Shapes:
        return {**self.of_queries, **self.of_keys("k"), **self.of_keys("v")}

    @property
    def products(self) -> tuple[Modules, ...]:
        """Each fused matrix that takes one input, then what gives the output."""
        of_inputs = (self.of_queries, self.of_keys("k"), self.of_keys("v")) if self.apart else (self.projected,)
        return (*(tuple(f"attn.{name}" for name in each) for each in of_inputs), self.outputs)

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        return ()

    def kernels(self, hidden: int) -> Shapes:
        names = () if self.dynamic else (KEY_CONV, VALUE_CONV)
        return dict.fromkeys((f"attn.{name}" for name in names), (self.kv_width, 1, self.conv))

    def numbers(self, hidden: int) -> Shapes:
        """Taps of dynamic convolutions stand in the order of distances."""
        found = {PROFILES: (self.rank, self.extent)}
        if self.limits:
            found |= {QUERY_GAIN: (self.heads, self.head_dim), RELATIVE_GAIN: (self.heads, self.rank)}
        names = (KEY_CONV, VALUE_CONV) if self.dynamic else ()
        return found | dict.fromkeys((f"attn.{name}.weight" for name in names), (self.conv, self.kv_width))

    def states(self, hidden: int) -> Shapes:
        return dict.fromkeys((KEY_CONV, VALUE_CONV), (self.conv - 1, self.kv_width))

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The profiles by distance, with zeros behind the last; the input itself in the kernels."""
        profiles = tensors[f"{layer}{PROFILES}"].read().T
        tensors[f"{layer}{PROFILES}"] = LazyTensor.from_array(np.pad(profiles, ((0, 1), (0, 0))))
        for name in (KEY_CONV, VALUE_CONV):
            weight = f"{layer}attn.{name}.weight"
            if not self.dynamic:
                tensors[weight] = with_input(tensors[weight], even=self.even)
                continue
            root = (2 * self.conv + 1) ** -0.5 if self.even else 1.0
            taps = tensors[weight].read().copy()
            taps[0] += 1
            tensors[weight] = LazyTensor.from_array((taps * np.float32(root)).astype(np.float32))
            scale(tensors, (f"{layer}attn.{name[0]}_taps",), root)
