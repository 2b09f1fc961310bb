"""BlockResidual: sublayers that take what they attend to of the sums of earlier layers."""

from collections.abc import Mapping
from dataclasses import dataclass

from edgegen_export.architecture.components.component import Component, Shapes, Tensors

ATTENTION_QUERIES, MLP_QUERY, FINAL_QUERY = "attn_queries", "mlp_query", "final_query"


def kept_stream(number: int) -> str:
    """The name of a stream that layers keep for later ones."""
    return f"kept stream {number}"


@dataclass(frozen=True, slots=True)
class BlockResidual(Component):
    """A residual stream that is summed within blocks of layers. What a sublayer takes is ``Σ p[j] · n(s[j])``, of the
    sums s of the blocks so far and of the stream, with ``p = softmax(q · n(s) / √d)`` for a trained query q, where
    ``n(s) = s / √(mean(s²) + 1e-6)``.

    ``blocks``: which of the kept streams, of which there are ``kept`` before the layer, are the sums of earlier blocks.
    ``begins``: a block begins here: the stream is the sum of the one before, and becomes the kept stream of this
    number; what attention gives begins the next sum. ``queries``: one for all that attention takes, one each for
    queries, keys and values, or none in the first layer, which takes the stream as it is.

    What the final norm takes is attended to in the same way.
    """

    queries: int
    blocks: tuple[int, ...] = ()
    kept: int = 0
    begins: int | None = None

    @property
    def blocks_behind(self) -> tuple[int, ...]:
        """The sums of blocks that there are behind its attention."""
        return self.blocks if self.begins is None else (*self.blocks, self.begins)

    def carries(self, hidden: int) -> Mapping[str, int]:
        return {kept_stream(k): hidden for k in (*range(self.kept), *self.blocks_behind)}

    def numbers(self, hidden: int) -> Shapes:
        attention = {ATTENTION_QUERIES: (self.queries, hidden)} if self.queries else {}
        return {**attention, MLP_QUERY: (1, hidden)}

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The root in the queries."""
        for name in self.numbers(hidden):
            tensors[f"{layer}{name}"] = tensors[f"{layer}{name}"].affine(hidden**-0.5)

    def around(self, hidden: int, layers: int) -> Shapes:
        return {FINAL_QUERY: (1, hidden)}

    def fold_around(self, tensors: Tensors) -> None:
        weight = tensors[f"{FINAL_QUERY}.weight"]
        tensors[f"{FINAL_QUERY}.weight"] = weight.affine(weight.shape[-1] ** -0.5)
