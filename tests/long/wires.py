"""The wires of ``edgegen serve`` that stream text, each with its request and its answer as its clients know them."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Wire:
    """
    Attributes:
        path: requests are posted to it.
        body: of a request for a prompt, the most tokens, and a seed; greedy without one.
        piece: the text in an event of the answer, and how the answer ended, if this is the event that says so.
    """

    path: str
    body: Callable[[str, int, int | None], dict[str, Any]]
    piece: Callable[[dict[str, Any]], tuple[str, str | None]]

    def read(self, lines: Iterable[bytes]) -> tuple[str, str]:
        """The text of an answer, and how it ended: a reason, ``error``, or ``cut``."""
        text, end = "", "cut"
        for event in _events(lines):
            if event.get("error") is not None or event.get("type") == "response.failed":
                return text, "error"
            piece, ended = self.piece(event)
            text, end = text + piece, ended or end
        return text, end


def _events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Of server-sent events, or of lines of JSON. A keep-alive is a comment, without a field."""
    for line in lines:
        said = line.decode().strip()
        if said.startswith("data: "):
            said = said.removeprefix("data: ")
        if said.startswith("{"):
            yield json.loads(said)


def _sampling(seed: int | None) -> dict[str, Any]:
    return {"temperature": 0} if seed is None else {"seed": seed}


def _openai(what: Mapping[str, Any], most: int, seed: int | None) -> dict[str, Any]:
    return {**what, "max_tokens": most, "stream": True, **_sampling(seed)}


def _messages(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def _ollama(what: Mapping[str, Any], most: int, seed: int | None) -> dict[str, Any]:
    return {**what, "stream": True, "options": {"num_predict": most, **_sampling(seed)}}


def _completion(event: dict[str, Any]) -> tuple[str, str | None]:
    choice = event["choices"][0]
    return choice["text"], choice["finish_reason"]


def _chat_completion(event: dict[str, Any]) -> tuple[str, str | None]:
    choice = event["choices"][0]
    return choice["delta"].get("content") or "", choice["finish_reason"]


def _response(event: dict[str, Any]) -> tuple[str, str | None]:
    if event["type"] in ("response.completed", "response.incomplete"):
        return "", event["response"]["status"]
    return (event["delta"] if event["type"] == "response.output_text.delta" else ""), None


def _message(event: dict[str, Any]) -> tuple[str, str | None]:
    delta = event.get("delta", {})
    return delta.get("text", ""), delta.get("stop_reason")


WIRES = {
    "completions": Wire("/v1/completions", lambda p, n, seed: _openai({"prompt": p}, n, seed), _completion),
    "chat": Wire(
        "/v1/chat/completions", lambda p, n, seed: _openai({"messages": _messages(p)}, n, seed), _chat_completion
    ),
    "responses": Wire(
        "/v1/responses",
        lambda p, n, seed: {"input": p, "max_output_tokens": max(n, 16), "stream": True, **_sampling(seed)},
        _response,
    ),
    # Anthropic's wire has no seed: these are greedy, always.
    "messages": Wire("/v1/messages", lambda p, n, seed: _openai({"messages": _messages(p)}, n, None), _message),
    "ollama": Wire(
        "/api/generate",
        lambda p, n, seed: _ollama({"prompt": p, "raw": True}, n, seed),
        lambda event: (event["response"], event.get("done_reason")),
    ),
    "ollama chat": Wire(
        "/api/chat",
        lambda p, n, seed: _ollama({"messages": _messages(p)}, n, seed),
        lambda event: (event["message"]["content"], event.get("done_reason")),
    ),
    "llama-server": Wire(
        "/completion",
        lambda p, n, seed: {"prompt": p, "n_predict": n, "stream": True, **_sampling(seed)},
        lambda event: (event["content"], event["stop_type"] if event["stop"] else None),
    ),
}
"""By what the soak calls them. The same request has the same text on each that takes a prompt, not a chat."""
