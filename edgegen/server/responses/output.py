"""ResponseOutput: what a model says as the items of a response, thoughts, messages and function calls, with events."""

import uuid
from collections.abc import Sequence
from typing import Any, Protocol

from edgegen.chat.tools import ToolCallDelta
from edgegen.generation.results import GenerationChunk
from edgegen.openai.answer import chat_logprobs
from edgegen.sampling.logprobs import TokenLogprob


class Emit(Protocol):
    def __call__(self, kind: str, **fields: Any) -> None:
        """Send an event with these fields."""
        ...


class ResponseOutput:
    """
    Attributes:
        items: the items so far; the last one may be under way.
        reasoning_tokens: those of the thoughts, counted by chunk.
    """

    def __init__(self, emit: Emit) -> None:
        self.items = list[dict[str, Any]]()
        self.reasoning_tokens = 0
        self._emit = emit
        self._open: _OpenItem | None = None
        self._call: int | None = None
        self._tokens = 0
        self._logprobs = list[TokenLogprob]()

    def read(self, piece: GenerationChunk) -> None:
        """Add a piece of the answer."""
        self._tokens += len(piece.token_ids)
        self._logprobs += piece.logprobs
        deltas = list(piece.tool_call_deltas)
        while deltas and deltas[0].index == self._call:
            self._add_call(deltas.pop(0))
        if piece.reasoning_content:
            self._item("reasoning").add(piece.reasoning_content)
            self.reasoning_tokens += self._tokens
            self._take()
        if piece.content:
            begun = self._open is not None and self._open.kind == "message"
            entries = self._take()
            if not begun and piece.reply is not None:
                entries = _without_markers(entries, piece.content)
            self._item("message").add(piece.content, entries)
        for delta in deltas:
            self._add_call(delta)

    def close(self, *, complete: bool) -> None:
        """The answer is at its end; there is at least one item."""
        entries = self._take()
        if not self.items:
            self._item("message")
        assert self._open is not None
        if entries and self._open.kind == "message":
            self._open.add("", entries)
        self._open.close("completed" if complete else "incomplete")
        self._open = None

    def abandon(self) -> None:
        """End here: there is no more to come, and no client to be told."""
        if self._open is not None:
            self._open.fill("incomplete")

    def _add_call(self, delta: ToolCallDelta) -> None:
        if delta.index != self._call:
            self._close_open()
            self._call = delta.index
            self._begin("function_call", {"call_id": delta.id, "name": delta.name, "arguments": ""})
        assert self._open is not None
        if delta.arguments:
            self._open.add(delta.arguments)
        self._take()

    def _item(self, kind: str) -> "_OpenItem":
        """The item under way, if it is of that kind; otherwise a new one."""
        if self._open is not None and self._open.kind == kind:
            return self._open
        self._close_open()
        own = {"summary": list[Any]()} if kind == "reasoning" else {"role": "assistant"}
        return self._begin(kind, {**own, "content": list[Any]()})

    def _begin(self, kind: str, fields: dict[str, Any]) -> "_OpenItem":
        self._open = _OpenItem(kind, fields, len(self.items), self._emit)
        self.items.append(self._open.item)
        return self._open

    def _close_open(self) -> None:
        self._call = None
        if self._open is not None:
            self._open.close("completed")

    def _take(self) -> list[TokenLogprob]:
        """The log-probabilities of the tokens since the last that were taken; counts tokens anew."""
        taken, self._logprobs, self._tokens = self._logprobs, list[TokenLogprob](), 0
        return taken


_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
_DELTAS = {
    "message": "response.output_text",
    "reasoning": "response.reasoning_text",
    "function_call": "response.function_call_arguments",
}


class _OpenItem:
    """An item under way."""

    def __init__(self, kind: str, fields: dict[str, Any], index: int, emit: Emit) -> None:
        self.kind = kind
        self._texts = list[str]()
        self._entries = list[TokenLogprob]()
        item_id = f"{_PREFIXES[kind]}_{uuid.uuid4().hex}"
        self.item: dict[str, Any] = {"id": item_id, "type": kind, "status": "in_progress", **fields}
        self._emit = emit
        self._index = index
        self._place: dict[str, Any] = {"item_id": item_id, "output_index": index}
        emit("response.output_item.added", output_index=index, item=self.item)
        if kind != "function_call":
            self._place["content_index"] = 0
            emit("response.content_part.added", **self._place, part=self._part())

    def add(self, text: str, entries: Sequence[TokenLogprob] = ()) -> None:
        self._texts.append(text)
        self._entries += entries
        self._emit(f"{_DELTAS[self.kind]}.delta", **self._place, delta=text, **self._spelled(entries))

    def close(self, status: str) -> None:
        text = self.fill(status)
        kind = f"{_DELTAS[self.kind]}.done"
        if self.kind == "function_call":
            self._emit(kind, **self._place, name=self.item["name"], arguments=text)
        else:
            self._emit(kind, **self._place, text=text, **self._spelled(self._entries))
            self._emit("response.content_part.done", **self._place, part=self._part())
        self._emit("response.output_item.done", output_index=self._index, item=self.item)

    def fill(self, status: str) -> str:
        """Put into the item what has come of it."""
        text = "".join(self._texts)
        self.item |= {"arguments": text} if self.kind == "function_call" else {"content": [self._part()]}
        self.item["status"] = status
        return text

    def _part(self) -> dict[str, Any]:
        text = "".join(self._texts)
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], **self._spelled(self._entries)}

    def _spelled(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Log-probabilities, which only messages have."""
        spelled = chat_logprobs(entries)
        return {"logprobs": spelled["content"] if spelled else []} if self.kind == "message" else {}


def _without_markers(entries: Sequence[TokenLogprob], text: str) -> list[TokenLogprob]:
    """Without the tokens before ``text``: what ends thoughts, for example. All of them where it is not found."""
    at = "".join(entry.token for entry in entries).rfind(text)
    end, kept = 0, list[TokenLogprob]()
    for entry in entries:
        end += len(entry.token)
        if end > at:
            kept.append(entry)
    return kept
