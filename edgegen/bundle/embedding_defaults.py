"""EmbeddingDefaults: how a model's embeddings are made where a request does not say: pooling, and normalization."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, cast, get_args

from edgegen.errors import VerificationError

EMBEDDING = "embedding.json"
"""The file of a bundle that has them; absent where the checkpoint says nothing."""

Pooling = Literal["mean", "last", "weightedmean"]
"""One vector of the hidden states of all tokens: their mean, the last token's states, or the mean in which the n-th
token counts n times."""


@dataclass(frozen=True, slots=True)
class EmbeddingDefaults:
    """
    Attributes:
        normalize: vectors are scaled to the length 1.
    """

    pooling: Pooling = "mean"
    normalize: bool = True

    @classmethod
    def of(cls, content: Mapping[str, Any], where: str) -> Self:
        """Read what the file ``where`` holds.

        Raises:
            VerificationError: it is no such file.
        """
        pooling, normalize = content.get("pooling"), content.get("normalize")
        known = pooling in get_args(Pooling) and isinstance(normalize, bool)
        if not known or len(content) != 2:
            raise VerificationError(
                f"{where} is malformed: 'pooling', one of {', '.join(get_args(Pooling))}, and 'normalize', true or "
                "false, expected. Export the bundle again."
            )
        return cls(cast(Pooling, pooling), cast(bool, normalize))
