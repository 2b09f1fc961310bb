"""DraftInput: what the first layer of a multi-token prediction head takes."""

from dataclasses import dataclass

from edgegen_export.architecture.components.component import Component, Modules, Norms, Shapes
from edgegen_export.architecture.components.norm import Norm


@dataclass(frozen=True, slots=True)
class DraftInput(Component):
    """A token's embedding e, and the hidden state h of the position before it: ``x = linear(concat(norm(e), norm(h)))``
    (DeepSeek-AI 2024, arXiv:2412.19437, section 2.2), or h first.

    ``normed_output``: whether the hidden states that it proposes a second token from are those after its final norm.
    """

    hidden_first: bool = False
    normed_output: bool = True

    def around(self, hidden: int, layers: int) -> Shapes:
        return {"draft_in": (hidden, 2 * hidden)}

    @property
    def products_around(self) -> tuple[Modules, ...]:
        return (("draft_in",),)

    def norms_around(self, norm: Norm, hidden: int) -> Norms:
        return dict.fromkeys(("draft_embed_norm", "draft_hidden_norm"), (norm, (hidden,)))
