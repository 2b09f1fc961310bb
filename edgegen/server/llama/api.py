"""llama-server's ``/completion``, ``/completions``, ``/infill`` and ``/embedding``."""

from collections.abc import Mapping
from typing import Any

from edgegen.scoring.embeddings import Embeddings
from edgegen.server.http.api_error import ApiError
from edgegen.server.llama.request import read_completion, read_infill
from edgegen.server.llama.response import LlamaWriter
from edgegen.server.llama.schema import COMPLETION, COMPLETIONS, EMBEDDING, EMBEDDING_REQUEST, INFILL
from edgegen.server.wire.embeddings import EmbeddingsRequest, EmbeddingsWire
from edgegen.server.wire.parameters import several
from edgegen.server.wire.wire import Wire

LLAMA_WIRES = (
    Wire(COMPLETION, read_completion, LlamaWriter),
    Wire(COMPLETIONS, read_completion, LlamaWriter),
    Wire(INFILL, read_infill, LlamaWriter),
)


def _read(body: Mapping[str, Any]) -> EmbeddingsRequest:
    params = EMBEDDING_REQUEST.read(body)
    named = [name for name in ("content", "input") if name in params]
    if len(named) != 1:
        said = "content is missing: a text expected" if not named else "content and input are the same: leave one out"
        raise ApiError(400, f"{said}.", param="content")
    normalize = params.get("embd_normalize")
    return EmbeddingsRequest(
        several(params[named[0]]), None if normalize is None else normalize == 2, params, param=named[0]
    )


def _answer(model: str, asked: EmbeddingsRequest, embeddings: Embeddings, loaded: float) -> list[dict[str, Any]]:
    """One vector for each text, in a list of its own."""
    return [{"index": at, "embedding": [vector]} for at, vector in enumerate(embeddings.vectors.tolist())]


EMBEDDING_WIRE = EmbeddingsWire(EMBEDDING, _read, _answer)
