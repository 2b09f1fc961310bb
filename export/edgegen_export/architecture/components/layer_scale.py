"""LayerScale: a trained factor of what a layer gives."""

from dataclasses import dataclass

from edgegen_export.architecture.components.component import Component, Shapes


@dataclass(frozen=True, slots=True)
class LayerScale(Component):
    """Trained number that multiplies the result of a layer, the residual stream included."""

    def numbers(self, hidden: int) -> Shapes:
        return {"scale": (1,)}
