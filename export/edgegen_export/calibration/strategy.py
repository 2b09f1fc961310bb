"""Strategy: how a recipe (int8, int4, prequantized) chooses matrix formats while the model is calibrated."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen_export.calibration.layer_walk import LayerMatrix
from edgegen_export.graph.layerwise_model import LayerRun
from edgegen_export.quantize.hessian import Hessian
from edgegen_export.tensors.lazy import LazyTensor


@dataclass(frozen=True, slots=True)
class Decision:
    """The formats of matrices, by (fused) module, that differ from the recipe's; and what to tell the user."""

    formats: dict[str, MatrixFormat] = field(default_factory=dict[str, MatrixFormat])
    warnings: tuple[str, ...] = ()


class Strategy(Protocol):
    """Sees the matrices of the layers in their order; decides at the end."""

    @property
    def enter(self) -> Callable[[LayerRun], None] | None:
        """The function that takes each layer, unquantized, before its matrices, and layers that repeat it directly
        after it; None where the layers themselves are not wanted."""
        ...

    @property
    def hessians(self) -> bool:
        """Whether the matrices come with the Hessians of their inputs."""
        ...

    @property
    def beside(self) -> AbstractContextManager[object]:
        """The work of another thread while matrices are added, which has ended at its exit."""
        ...

    def add(self, matrix: LayerMatrix) -> None:
        """Take a matrix of the layer that was entered last."""
        ...

    def decide(self, tensors: Mapping[str, LazyTensor], recipe: Quantization, head_hessian: Hessian | None) -> Decision:
        """``tensors``: smoothed; ``recipe``: with the formats that inputs bear; ``head_hessian``: that of what the
        head takes, where Hessians are wanted."""
        ...
