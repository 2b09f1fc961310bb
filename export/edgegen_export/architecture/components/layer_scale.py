"""LayerScale: a trained factor of what a layer gives."""

from dataclasses import dataclass

from edgegen_export.architecture.components.component import Component, Shapes


@dataclass(frozen=True, slots=True)
class LayerScale(Component):
    """What a layer gives, with the residual stream, is multiplied with a trained number."""

    def numbers(self, hidden: int) -> Shapes:
        return {"scale": (1,)}
