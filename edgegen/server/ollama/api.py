"""Ollama's ``/api/chat`` and ``/api/generate``; its ``/api/embed``, and the older ``/api/embeddings``."""

import re
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from edgegen.scoring.embeddings import Embeddings
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import ollama_error
from edgegen.server.ollama.options import keep_alive_seconds
from edgegen.server.ollama.request import read_chat, read_generate
from edgegen.server.ollama.response import ChatWriter, GenerateWriter, nanoseconds
from edgegen.server.ollama.schema import CHAT, EMBED, EMBED_REQUEST, EMBEDDINGS, EMBEDDINGS_REQUEST, GENERATE
from edgegen.server.wire.embeddings import EmbeddingsRequest, EmbeddingsWire
from edgegen.server.wire.wire import JSON_LINES, Wire

_THINKING = re.compile(r"^(?:thinking|reasoning_effort): (True|False|'\w+')")
"""Begins the errors of the layers below about what is ``think`` here."""


def _error_body(error: ApiError) -> dict[str, Any]:
    message = ollama_error(error)["error"]
    return {"error": _THINKING.sub(lambda match: f"think: {match[1].lower()}", message)}


OLLAMA_WIRES = (
    Wire(CHAT, read_chat, ChatWriter, _error_body, JSON_LINES),
    Wire(GENERATE, read_generate, GenerateWriter, _error_body, JSON_LINES),
)


def _read(body: Mapping[str, Any]) -> EmbeddingsRequest:
    params = EMBED_REQUEST.read(body)
    texts = [params["input"]] if isinstance(params["input"], str) else params["input"]
    return EmbeddingsRequest(
        tuple(filter(None, texts)),
        normalize=True,
        body=params,
        truncate=params.get("truncate", True),
        keep_alive=keep_alive_seconds(params.get("keep_alive")),
    )


def _answer(model: str, asked: EmbeddingsRequest, embeddings: Embeddings, loaded: float) -> dict[str, Any]:
    return {
        "model": asked.body.get("model", model),
        "embeddings": embeddings.vectors.tolist(),
        "total_duration": nanoseconds(perf_counter() - asked.begin),
        "load_duration": nanoseconds(loaded - asked.begin),
        "prompt_eval_count": embeddings.prompt_tokens,
    }


def _read_older(body: Mapping[str, Any]) -> EmbeddingsRequest:
    """One text, whose vector is not normalized."""
    params = EMBEDDINGS_REQUEST.read(body)
    return EmbeddingsRequest(
        tuple(filter(None, [params.get("prompt")])),
        normalize=False,
        body=params,
        param="prompt",
        truncate=True,
        keep_alive=keep_alive_seconds(params.get("keep_alive")),
    )


def _answer_older(model: str, asked: EmbeddingsRequest, embeddings: Embeddings, loaded: float) -> dict[str, Any]:
    """Without a text the model is loaded."""
    return {"embedding": embeddings.vectors[0].tolist() if len(embeddings.vectors) else []}


EMBED_WIRES = (EmbeddingsWire(EMBED, _read, _answer), EmbeddingsWire(EMBEDDINGS, _read_older, _answer_older))
