"""ModelGraph, LayerGraph: a decoder graph that is being built, and one layer of it.

Shapes: b rows (batch), t new tokens per row, d hidden size.
"""

from collections.abc import Callable
from dataclasses import dataclass

from edgegen.bundle.layer_state import FixedState
from edgegen.bundle.manifest import KVLayer, KVSpec
from edgegen_export.architecture.components.component import Component
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.graph.builder import MICROSOFT, NONE, GraphBuilder, Tensor, Value
from edgegen_export.graph.kept_state import kv_layers, past_name
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.parameters import FloatMatrix, LinearMatrix, Parameters
from edgegen_export.graph.step_inputs import StepInputs
from edgegen_export.graph.stream import Stream, added, norm_operator, sublayer_output


@dataclass(frozen=True, slots=True)
class ModelGraph:
    """The graph of a model, and what it is built of."""

    g: GraphBuilder
    params: Parameters
    config: DecoderConfig

    @property
    def prefix(self) -> str:
        """The beginning of the names of all its modules and weights, which its methods take without it."""
        return ""

    def weight(self, name: str) -> Value:
        """Trained numbers, such as those of a norm or a kernel."""
        return self.g.weight(self.params.vector(f"{self.prefix}{name}"))

    def bias(self, *modules: str) -> Tensor | None:
        """The fused bias of matrices, or that of a norm."""
        return self.params.bias(*(f"{self.prefix}{module}" for module in modules))

    def matrix(self, *modules: str) -> LinearMatrix:
        """The matrices ``modules``, fused into one."""
        return self.params.matrix(*(f"{self.prefix}{module}" for module in modules))

    def product(self, x: Value, *modules: str) -> Value:
        """x [b, t, columns] times the matrices ``modules``, fused into one, without biases."""
        return linear(self.g, self.matrix(*modules), x)

    def linear(self, x: Value, *modules: str) -> Value:
        """x [b, t, columns] times the matrices ``modules``, fused into one, with their biases."""
        return linear(self.g, self.matrix(*modules), x, self.bias(*modules))

    def in_floats(self, x: Value, name: str) -> Value:
        """x [b, t, columns] times trained numbers [rows, columns], which are not quantized, with their bias."""
        weight = self.params.vector(f"{self.prefix}{name}")
        rows, columns = weight.shape
        return linear(self.g, FloatMatrix(weight, rows, columns), x, self.bias(name.removesuffix(".weight")))

    def norm(self, stream: Stream, module: str) -> tuple[Value, Value]:
        """The sum of a stream, normalized, and the sum; both [b, t, d]."""
        g, norm = self.g, self.config.norm
        if not stream.delta:
            total = added(g, stream)
            return self.normalized(total, module), total
        weight, bias = self.params.vector(f"{self.prefix}{module}.weight"), self.bias(module)
        skipped = g.weight(stream.bias) if stream.bias else NONE
        inputs = [stream.residual, stream.delta, g.weight(weight)]
        if norm.kind == "layer":
            inputs += [g.weight(bias) if bias else NONE]
        result, _, _, total = g.node(
            {"layer": "SkipLayerNormalization", "rms": "SkipSimplifiedLayerNormalization"}[norm.kind],
            [*inputs, skipped],
            4,
            domain=MICROSOFT,
            attributes={"epsilon": norm.eps},
        )
        return result, total

    def normalized(self, x: Value, module: str, by: Norm | None = None) -> Value:
        """x normalized over its last axis; ``by``: the norm, where it is not the model's."""
        bias = self.bias(module)
        inputs = self.weight(f"{module}.weight"), *([self.g.weight(bias)] if bias else [])
        return norm_operator(self.g, by or self.config.norm, x, *inputs)


@dataclass(frozen=True, slots=True)
class LayerGraph(ModelGraph):
    """The graph of layer ``index``. Names of modules and weights are those within the layer.

    ``others``: the residual streams after the first, before the layer.
    """

    index: int
    kv: KVSpec
    step: StepInputs
    others: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        return f"layers.{self.index}"

    @property
    def prefix(self) -> str:
        return f"{self.name}."

    @property
    def parts(self) -> Layer:
        """Its components."""
        return self.config.layers[self.index]

    @property
    def caches(self) -> list[KVLayer]:
        """The keys and values that its attention reads: its own, if it has any, and an earlier layer's."""
        return kv_layers(self.kv, self.index)

    def states(self, component: Component) -> tuple[FixedState, ...]:
        """The fixed states of one of its components."""
        names = {past_name(name, self.index) for name in component.states(self.config.hidden_size)}
        return tuple(state for state in self.kv.fixed if state.past in names)

    def output(self, x: Value, module: str) -> Stream:
        """x [b, t, columns] times the matrix ``module``, without its bias, which the stream adds."""
        return Stream(NONE, self.product(x, module), self.bias(module))

    def post_norm(self, part: Stream, module: str) -> Value:
        """The output of a sublayer, normalized."""
        return self.normalized(sublayer_output(self.g, part), module)


BlockGraph = Callable[[LayerGraph, Stream], Stream]
"""Function from the stream before a layer to that after it."""
