"""LayerGraph: one layer of a decoder graph that is being built.

Shapes: b rows (batch), t new tokens per row, d hidden size.
"""

from dataclasses import dataclass

from edgegen.bundle.layer_state import FixedState
from edgegen.bundle.manifest import KVLayer, KVSpec
from edgegen_export.architecture.components.component import Component
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.graph.builder import NONE, GraphBuilder, Value
from edgegen_export.graph.kept_state import kv_layers, past_name
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.step_inputs import StepInputs
from edgegen_export.graph.stream import Stream, norm, normalized, sublayer_output


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """The graph of layer ``index``, and what it is built of. Names of modules and weights are those within the layer.

    ``others``: the residual streams after the first, before the layer.
    """

    g: GraphBuilder
    params: Parameters
    config: DecoderConfig
    index: int
    kv: KVSpec
    step: StepInputs
    others: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        return f"layers.{self.index}"

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

    def weight(self, name: str) -> Value:
        """Trained numbers, such as those of a norm or a kernel."""
        return self.g.weight(self.params.vector(f"{self.name}.{name}"))

    def linear(self, x: Value, *modules: str) -> Value:
        """x [b, t, columns] times the matrices ``modules``, fused into one, with their biases."""
        names = [f"{self.name}.{module}" for module in modules]
        return linear(self.g, self.params.matrix(*names), x, self.params.bias(*names))

    def output(self, x: Value, module: str) -> Stream:
        """x [b, t, columns] times the matrix ``module``, without its bias, which the stream adds."""
        name = f"{self.name}.{module}"
        return Stream(NONE, linear(self.g, self.params.matrix(name), x), self.params.bias(name))

    def norm(self, stream: Stream, module: str) -> tuple[Value, Value]:
        """The sum of a stream, normalized, and the sum; both [b, t, d]."""
        return norm(self.g, self.params, self.config, stream, f"{self.name}.{module}")

    def normalized(self, x: Value, module: str, by: Norm | None = None) -> Value:
        """x normalized over its last axis; ``by``: the norm, where it is not the model's."""
        return normalized(self.g, self.params, by or self.config.norm, x, f"{self.name}.{module}")

    def post_norm(self, part: Stream, module: str) -> Value:
        """The output of a sublayer, normalized."""
        return self.normalized(sublayer_output(self.g, part), module)
