"""Embeddings: vectors that stand for texts, pooled from a model's last hidden states."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.embedding_defaults import Pooling

__all__ = ["Embeddings", "Pooling"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Embeddings:
    """The vectors of some prompts.

    Attributes:
        vectors: float32 [prompts, dimensions], in the order of the prompts.
        prompt_tokens: tokens of those prompts together.
        complete: False if it was cancelled: then the vectors are those of the first prompts, as many as were ready.
    """

    vectors: NDArray[np.float32]
    prompt_tokens: int
    complete: bool = True

    def __repr__(self) -> str:
        prompts, size = self.vectors.shape
        return f"Embeddings({prompts} of {size} dimensions, {self.prompt_tokens} tokens)"
