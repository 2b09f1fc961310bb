"""PerLayerEmbedding: an embedding of each layer's own. LayerScale: its trained factor."""

from dataclasses import dataclass

from edgegen_export.architecture.components.component import Component, Modules, Norms, Shapes, Tensors
from edgegen_export.architecture.components.mlp import Activation
from edgegen_export.architecture.components.norm import Norm


@dataclass(frozen=True, slots=True)
class PerLayerEmbedding(Component):
    """Each layer looks up an embedding of its own, ``width`` numbers, in a table of ``rows`` tokens for all layers.

    What a layer takes is ``sum_multiplier · (norm(projection_multiplier · projection(x)) + table_multiplier ·
    table[token])``, with x the token embedding; tokens beyond the table have its first row. After its MLP the layer
    adds ``norm(out(activation(gate(y)) · that))`` to the residual stream y.
    """

    width: int
    rows: int
    table_multiplier: float
    projection_multiplier: float
    sum_multiplier: float
    activation: Activation

    @property
    def embedded(self) -> int:
        return self.width

    @property
    def products(self) -> tuple[Modules, ...]:
        return ("per_layer.gate",), ("per_layer.out",)

    @property
    def products_around(self) -> tuple[Modules, ...]:
        return (("per_layer_in",),)

    def matrices(self, hidden: int) -> Shapes:
        return {"per_layer.gate": (self.width, hidden), "per_layer.out": (hidden, self.width)}

    def norms(self, norm: Norm, hidden: int) -> Norms:
        return {"per_layer_norm": (norm, (hidden,))}

    def around(self, hidden: int, layers: int) -> Shapes:
        wide = layers * self.width
        return {"embed_per_layer": (self.rows, wide), "per_layer_in": (wide, hidden)}

    def norms_around(self, norm: Norm, hidden: int) -> Norms:
        return {"per_layer_norm": (norm, (self.width,))}

    def fold_around(self, tensors: Tensors) -> None:
        """All multipliers in the weights."""
        factors = {
            "per_layer_in": self.projection_multiplier,
            "per_layer_norm": self.sum_multiplier,
            "embed_per_layer": self.sum_multiplier * self.table_multiplier,
        }
        for module, factor in factors.items():
            tensors[f"{module}.weight"] = tensors[f"{module}.weight"].affine(factor)


@dataclass(frozen=True, slots=True)
class LayerScale(Component):
    """Trained number that multiplies the result of a layer, the residual stream included."""

    def numbers(self, hidden: int) -> Shapes:
        return {"scale": (1,)}
