"""RenamedParameters: weights by other names than they are stored by."""

from collections.abc import Callable
from dataclasses import dataclass

from edgegen_export.graph.builder import Tensor
from edgegen_export.graph.parameters import HeadMatrices, LinearMatrix, Matrix, Parameters


@dataclass(frozen=True, slots=True)
class RenamedParameters:
    """``params``, whose name of each module and tensor ``stored`` tells."""

    params: Parameters
    stored: Callable[[str], str]

    def matrix(self, *modules: str) -> LinearMatrix:
        return self.params.matrix(*map(self.stored, modules))

    def experts(self, module: str, count: int) -> tuple[Matrix, Matrix]:
        return self.params.experts(self.stored(module), count)

    def single_experts(self, module: str, count: int) -> list[tuple[Matrix, Matrix]]:
        return self.params.single_experts(self.stored(module), count)

    def expert_biases(self, module: str, count: int) -> tuple[Tensor | None, Tensor | None]:
        return self.params.expert_biases(self.stored(module), count)

    def bias(self, *modules: str) -> Tensor | None:
        return self.params.bias(*map(self.stored, modules))

    def vector(self, name: str) -> Tensor:
        return self.params.vector(self.stored(name))

    def of_heads(self, module: str, count: int, *, transposed: bool) -> HeadMatrices:
        return self.params.of_heads(self.stored(module), count, transposed=transposed)
