"""RepeatedParameters: another layer's weights by the names of a layer that repeats it, so that each is stored once."""

from collections.abc import Iterator
from dataclasses import dataclass

from edgegen_export.architecture.config import LAYER_NORMS, DecoderConfig
from edgegen_export.graph.attention import kv_scale_names
from edgegen_export.graph.builder import Tensor
from edgegen_export.graph.parameters import LinearMatrix, Matrix, Parameters


def of_layer(params: Parameters, config: DecoderConfig, layer: int) -> Parameters:
    """``params`` by the names of a layer, which may compute with another's."""
    if config.layers[layer].repeats is None:
        return params
    return RepeatedParameters(params, f"layers.{layer}.", config.stored(layer), frozenset(_own_names(config, layer)))


def _own_names(config: DecoderConfig, layer: int) -> Iterator[str]:
    """Tensors and modules that a layer has itself: scales of its KV cache, those of its own components, its norms."""
    own, hidden = config.layers[layer].own, config.hidden_size
    yield from kv_scale_names(layer)
    for one in own:
        found = (one.matrices(hidden), one.kernels(hidden), one.numbers(hidden), one.norms(config.norm, hidden))
        yield from (f"layers.{layer}.{name}" for names in found for name in names)
    if own:
        yield from (f"layers.{layer}.{name}" for name in LAYER_NORMS[config.block_of(layer)])


@dataclass(frozen=True, slots=True)
class RepeatedParameters:
    """``params``, where names that begin with ``layer`` mean those of ``stored``, but for those of ``own``: every pass
    has a KV cache, and scales, of its own."""

    params: Parameters
    layer: str
    stored: str
    own: frozenset[str]

    def matrix(self, *modules: str) -> LinearMatrix:
        return self.params.matrix(*map(self._name, modules))

    def experts(self, module: str, count: int) -> tuple[Matrix, Matrix]:
        return self.params.experts(self._name(module), count)

    def single_experts(self, module: str, count: int) -> list[tuple[Matrix, Matrix]]:
        return self.params.single_experts(self._name(module), count)

    def expert_biases(self, module: str, count: int) -> tuple[Tensor | None, Tensor | None]:
        return self.params.expert_biases(self._name(module), count)

    def bias(self, *modules: str) -> Tensor | None:
        return self.params.bias(*map(self._name, modules))

    def vector(self, name: str) -> Tensor:
        return self.params.vector(self._name(name))

    def of_heads(self, module: str, count: int) -> Tensor:
        return self.params.of_heads(self._name(module), count)

    def _name(self, name: str) -> str:
        inside, module = name.removeprefix(self.layer), name.removesuffix(".weight")
        return name if self.own & {name, module} or inside == name else f"{self.stored}{inside}"
