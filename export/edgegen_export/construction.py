"""Construction: what of a bundle depends on how its graphs come about, by a family's blocks or by tracing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edgegen.manifest import KVSpec, Phase, RotaryTable
from edgegen_export.checkpoint import LazyTensor
from edgegen_export.graph import GraphBuilder
from edgegen_export.parameters import Parameters
from edgegen_export.parity import Reference

MINIMUM_ONNXRUNTIME = "1.23.2"
MINIMUM_FOR_WINDOWS = "1.24.1"
"""Older ones let a query see one position more than its window."""
MINIMUM_FOR_EXPERTS = "1.31.0"
"""Older ones turn all weights of the experts they use back to float32 for each step: ten times as slow."""


@dataclass(frozen=True, slots=True, eq=False)
class Construction:
    """``build(phase, params, prefix)`` makes a graph over ``tensors``; ``reference`` is what it is compared with.

    ``warnings``: what the user should know of how it came about; ``made_with``: versions of what had a hand in it.
    """

    tensors: Mapping[str, LazyTensor]
    build: Callable[[Phase, Parameters, str], GraphBuilder]
    kv: KVSpec
    reference: Reference
    parameters: int
    hidden_size: int
    vocab_size: int
    max_context: int
    minimum_onnxruntime: str = MINIMUM_ONNXRUNTIME
    rotary: tuple[RotaryTable, ...] = ()
    warnings: tuple[str, ...] = ()
    made_with: dict[str, str] = field(default_factory=dict[str, str])
