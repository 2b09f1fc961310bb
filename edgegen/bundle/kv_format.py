"""KVFormat: a dtype of a KV cache. A new one is its kernel and an entry here, which everything that keeps, plans,
measures or offers KV caches asks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal, NamedTuple

from edgegen.graph.int4_cache import KeyMeans, int4_row, with_int4_cache

KVDtype = Literal["float32", "int8", "int4"]


@dataclass(frozen=True, slots=True)
class KVFormat:
    """A dtype of a KV cache.

    Attributes:
        array_dtype: NumPy's name of the dtype of its arrays.
        itemsize: bytes of an element of these.
        row_width: elements of one head's keys, or values, of one position, by ``head_dim``: the arrays' last axis.
        note: said on the page of options.
        most_kl: divergence in nats that it may add to a model's without a warning.
        minimum_onnxruntime: the oldest version that runs graphs over it; empty where every one does.
        attributes: of the attention operator, in graphs that keep codes and take a scale for each channel.
        stock_block: positions that the matrix products of ONNX Runtime's attention go in; None for those of float32.
        make_graph: makes a graph over it, of one over float32 and means of keys, when that is loaded; edgegen's kernels
            alone run it. None where bundles have such graphs.
    """

    name: KVDtype
    array_dtype: str
    itemsize: int
    row_width: Callable[[int], int] = lambda head_dim: head_dim
    note: str = ""
    most_kl: float = inf
    minimum_onnxruntime: str = ""
    attributes: Mapping[str, int | str] = field(default_factory=dict[str, int | str])
    stock_block: int | None = None
    make_graph: Callable[[bytes, KeyMeans], bytes] | None = None

    @property
    def saving(self) -> str:
        """How many times smaller it is than float32 with heads of 64, in a few words."""
        return f"{self.name} is {4 * 64 // (self.itemsize * self.row_width(64))}x smaller"

    @property
    def suffix(self) -> str:
        """Ends the names of variants over it."""
        return "" if self.name == "float32" else f"-kv-{self.name}"


_FORMATS = (
    KVFormat("float32", "float32", 4),
    KVFormat(
        "int8",
        "int8",
        1,
        most_kl=0.01,
        minimum_onnxruntime="1.27.0",  # older ones have none on the CPU; 1.25 and 1.26 load the graphs and then fail
        attributes={"kv_cache_bit_width": 8, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"},
        stock_block=4,
    ),
    KVFormat(
        "int4",
        "uint8",  # two codes each, then the levels
        1,
        int4_row,
        note="int4 needs edgegen's [kernels](kernels.md), and every bundle of edgegen's own graphs can have it; one "
        "that adds more than 0.05 nats is a warning.",
        most_kl=0.05,  # as much as int4 weights may
        make_graph=with_int4_cache,
    ),
)

KV_FORMATS: Mapping[KVDtype, KVFormat] = {one.name: one for one in _FORMATS}
"""By their names in manifests and options, from the largest to the smallest."""

STORED = tuple(one.name for one in _FORMATS if one.make_graph is None)
"""Dtypes that bundles have graphs over, those with scales after float32."""

TAKE_STORED = "take " + " or ".join(f"--kv {name}" for name in reversed(STORED))


class KVConversion(NamedTuple):
    """Dtype that a graph's float32 KV cache is converted to when it is loaded, and the means subtracted from keys."""

    format: KVFormat
    means: KeyMeans
