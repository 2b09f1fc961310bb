"""StepInputs: the inputs that all layers of a graph share."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgegen.bundle.manifest import KVDtype
from edgegen_export.architecture.components.attention import QueryScale
from edgegen_export.architecture.rope import Rope
from edgegen_export.graph.builder import NONE, Value


@dataclass(frozen=True, slots=True)
class CacheLengths:
    """The length inputs of one cache class.

    ``seqlens``: int32 [b], each row's valid length after this step, less one; ``total``: int32 scalar, the longest
    valid length after this step.
    """

    seqlens: Value
    total: Value


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The inputs that all layers of a graph share.

    ``positions``: int64 [b, t]; ``lengths`` by cache class; ``rotary``: cosines and sines float32 [positions, dim / 2]
    by rope; ``alibi``: float32 [1, h, t, total], added to the scores; ``kv_dtype``: the dtype of the KV cache;
    ``query_scales``: float32 [b, t, 1], multiplied with the queries; ``per_layer``: by layer, what it takes of
    embeddings of its own; ``distances``: int64 [b, t, keys, 1] by cache class and extent; ``kept``: new keys and values
    [b, t, kv_heads · head_dim] of layers whose cache others share, which these layers put in; ``unseen``: float32
    [1, 1, t, keys] by cache class, added to the scores where some keys are not to be read.
    """

    positions: Value
    lengths: Mapping[str, CacheLengths]
    rotary: Mapping[Rope, tuple[Value, Value]]
    alibi: Value = NONE
    kv_dtype: KVDtype = "float32"
    query_scales: Mapping[QueryScale, Value] = field(default_factory=dict[QueryScale, Value])
    per_layer: Mapping[int, Value] = field(default_factory=dict[int, Value])
    distances: Mapping[tuple[str, int], Value] = field(default_factory=dict[tuple[str, int], Value])
    kept: dict[int, tuple[Value, Value]] = field(default_factory=dict[int, tuple[Value, Value]])
    unseen: Mapping[str, Value] = field(default_factory=dict[str, Value])
