"""OllamaEmbed and OllamaEmbeddings: ollama's ``/api/embed``, and the older ``/api/embeddings``."""

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from edgegen.scoring.embeddings import Embeddings
from edgegen.server.ollama.options import keep_alive_seconds
from edgegen.server.ollama.response import nanoseconds
from edgegen.server.ollama.schema import EMBED, EMBED_REQUEST, EMBEDDINGS, EMBEDDINGS_REQUEST
from edgegen.server.wire.embeddings import EmbeddingsRequest


class OllamaEmbed:
    url = EMBED

    def read(self, body: Mapping[str, Any]) -> EmbeddingsRequest:
        given = EMBED_REQUEST.read(body)
        texts = [given["input"]] if isinstance(given["input"], str) else given["input"]
        return EmbeddingsRequest(
            tuple(filter(None, texts)),
            normalize=True,
            body=given,
            truncate=given.get("truncate", True),
            keep_alive=keep_alive_seconds(given.get("keep_alive")),
        )

    def answer(self, model: str, asked: EmbeddingsRequest, found: Embeddings, loaded: float) -> dict[str, Any]:
        return {
            "model": asked.body.get("model", model),
            "embeddings": found.vectors.tolist(),
            "total_duration": nanoseconds(perf_counter() - asked.begin),
            "load_duration": nanoseconds(loaded - asked.begin),
            "prompt_eval_count": found.prompt_tokens,
        }


class OllamaEmbeddings:
    """One text, whose vector is not normalized."""

    url = EMBEDDINGS

    def read(self, body: Mapping[str, Any]) -> EmbeddingsRequest:
        given = EMBEDDINGS_REQUEST.read(body)
        return EmbeddingsRequest(
            tuple(filter(None, [given.get("prompt")])),
            normalize=False,
            body=given,
            param="prompt",
            truncate=True,
            keep_alive=keep_alive_seconds(given.get("keep_alive")),
        )

    def answer(self, model: str, asked: EmbeddingsRequest, found: Embeddings, loaded: float) -> dict[str, Any]:
        """Without a text the model is loaded."""
        return {"embedding": found.vectors[0].tolist() if len(found.vectors) else []}
