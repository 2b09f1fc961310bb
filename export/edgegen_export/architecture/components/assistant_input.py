"""AssistantInput: what an assistant of Gemma 4 takes of its model, and gives back, and the ids that have logits."""

from dataclasses import dataclass

from edgegen_export.architecture.components.component import Component, Modules, Shapes


@dataclass(frozen=True, slots=True)
class AssistantInput(Component):
    """``x = linear(concat(e, h))`` of the model's embedding e of a token and its hidden state h before it, both of
    ``backbone`` numbers; ``linear`` of the hidden state after the last norm takes the place of the next h.

    ``clusters``: into how many, of one size, the vocabulary is parted; of those ``chosen`` whose centroids are nearest,
    tokens have logits; 0 where all have.
    """

    backbone: int
    clusters: int = 0
    chosen: int = 0

    def around(self, hidden: int, layers: int) -> Shapes:
        found: Shapes = {"draft_in": (hidden, 2 * self.backbone), "draft_out": (self.backbone, hidden)}
        return {**found, **({"centroids": (self.clusters, hidden)} if self.clusters else {})}

    @property
    def products_around(self) -> tuple[Modules, ...]:
        return ("draft_in",), ("draft_out",), *((("centroids",),) if self.clusters else ())
