"""Component: a part of a layer that knows its tensors, states, foldings and smoothing pairs.

All names are those within a layer: ``mamba.out`` is ``layers.7.mamba.out`` in the eighth. What loops over components
puts the layer's name before them.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import ClassVar

from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.tensor_layouts import Shape
from edgegen_export.tensors.lazy import LazyTensor

Shapes = Mapping[str, Shape]
Norms = Mapping[str, tuple[Norm, Shape]]
"""Formula of each norm, and the shape of its weight."""
Tensors = MutableMapping[str, LazyTensor]
Modules = tuple[str, ...]
"""Matrices that take the same input, and are fused into one."""

SECOND_STREAM = "second stream"
"""Of models that carry one stream besides the residual one."""

LEAST_ONNXRUNTIME = "1.23.2"
WINDOWS = "1.24.1"
"""Older versions attend to one position more than the sliding window."""
LINEAR_ATTENTION = "1.25.1"
"""Older versions have no such operator, 1.25.0 among them."""
FUSED_EXPERTS = "1.31.0"
"""Older versions dequantize all weights of the used experts in each step, which is ten times as slow."""


@dataclass(frozen=True, slots=True)
class Pair:
    """``producer``: the module, norm or matrix, whose outputs are the inputs of the modules ``consumers``.

    ``group``: how many channels in the consumers' inputs each block of ``width`` of the producer's outputs stands for,
    one such block after the other: a key/value head serves that many query heads.
    """

    producer: str
    consumers: Modules
    group: int = 1
    width: int = 1

    def within(self, layer: str) -> "Pair":
        """The same pair by the names of the whole model; ``layer``: the layer's name and a dot."""
        consumers = tuple(f"{layer}{name}" for name in self.consumers)
        return Pair(f"{layer}{self.producer}", consumers, self.group, self.width)


@dataclass(frozen=True, slots=True)
class Component:
    """A part of a layer; its subclasses say what of this they have. ``hidden``: the model's hidden size.

    What stands in ``around`` is outside of the layers: its names are those of the whole model.
    """

    sublayer: ClassVar[str | None] = None
    """The sublayer that it computes of what a norm of its block gives: ``attn`` or ``mlp``."""

    begins_with_tokens: ClassVar[bool] = False
    """Whether token embeddings begin the streams that it carries; else a layer does."""

    operators_since: ClassVar[str] = LEAST_ONNXRUNTIME
    """The oldest ONNX Runtime that has its operators."""

    @property
    def least_onnxruntime(self) -> str:
        """The oldest ONNX Runtime whose operators compute it, as it is."""
        return self.operators_since

    @property
    def inputs(self) -> Modules:
        """The matrices that take what the sublayer takes; none where that is used as it is, too."""
        return ()

    @property
    def outputs(self) -> Modules:
        """The matrices that give what is added to the residual stream."""
        return ()

    @property
    def products(self) -> tuple[Modules, ...]:
        """All matrices that calibration walks through, in order, fused as the graph fuses them."""
        return tuple(filter(None, (self.inputs, self.outputs)))

    @property
    def stacks(self) -> tuple[Modules, ...]:
        """Matrices of experts, those of all concatenated, which calibration leaves out."""
        return ()

    @property
    def spare(self) -> Modules:
        """Tensors that a checkpoint may have, and that nothing is computed with."""
        return ()

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        """Pairs within it in which a factor can be moved exactly."""
        return ()

    def matrices(self, hidden: int) -> Shapes:
        """Its matrices [rows, columns], each with an optional bias."""
        return {}

    def kernels(self, hidden: int) -> Shapes:
        """The kernels of its convolutions [channels, 1, width], each with an optional bias."""
        return {}

    def numbers(self, hidden: int) -> Shapes:
        """Further trained tensors, by their whole names."""
        return {}

    @property
    def of_heads(self) -> Shapes:
        """Matrices that each head has one of: the shape [rows, columns] of all heads' together, as they multiply."""
        return {}

    def norms(self, norm: Norm, hidden: int) -> Norms:
        """Its norms, and the shapes of their weights; ``norm``: the model's."""
        return {}

    @property
    def embedded(self) -> int:
        """How many numbers of an embedding of its own the layer takes for each token."""
        return 0

    def carries(self, hidden: int) -> Mapping[str, int]:
        """The streams besides the residual one that later layers read, and their widths; layers may share one."""
        return {}

    def states(self, hidden: int) -> Shapes:
        """States that it keeps for each sequence, of a fixed size, in float32."""
        return {}

    @property
    def reads(self) -> int | None:
        """The earlier layer whose keys and values it reads, instead of its own or besides."""
        return None

    def keeps_state(self, hidden: int) -> bool:
        """Whether it keeps anything of a sequence for later tokens."""
        return bool(self.states(hidden))

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """Bring its ``tensors`` into the form that the graph takes; ``layer``: the layer's name and a dot."""

    def around(self, hidden: int, layers: int) -> Shapes:
        """Its matrices outside of the layers, of which there are so many."""
        return {}

    @property
    def products_around(self) -> tuple[Modules, ...]:
        """Matrices of these that keep 8 bits at least, fused as the graph fuses them."""
        return ()

    def norms_around(self, norm: Norm, hidden: int) -> Norms:
        """Its norms outside of the layers."""
        return {}

    def fold_around(self, tensors: Tensors) -> None:
        """Bring its tensors outside of the layers into the form that the graph takes."""


def scale(tensors: Tensors, modules: Modules, factor: float) -> None:
    """Multiply weights and biases of ``modules``, as far as they exist."""
    for name in (f"{module}.{kind}" for module in modules for kind in ("weight", "bias")):
        if name in tensors:
            tensors[name] = tensors[name].affine(factor)
