"""OpenAI's answers: results as the choices, log-probabilities, usage and finish reasons of its completions."""

import codecs
from collections.abc import Sequence
from typing import Any

from edgegen.generation.results import AnswerFinishReason, GenerationResult
from edgegen.sampling.logprobs import TokenLogprob


def chat_completion(result: GenerationResult) -> dict[str, Any]:
    """The object of a chat completion, and its choices."""
    choices = [
        {
            "index": index,
            "message": _message(choice),
            "logprobs": chat_logprobs(choice.logprobs),
            "finish_reason": finish_reason(choice.finish_reason),
        }
        for index, choice in enumerate(result.choices)
    ]
    return {"object": "chat.completion", "choices": choices}


def _message(choice: GenerationResult) -> dict[str, Any]:
    """Return the assistant's message; content is null where it only has tools called."""
    message: dict[str, Any] = {"role": "assistant", "content": choice.content, "refusal": None}
    if choice.reasoning_content:
        message["reasoning_content"] = choice.reasoning_content
    if choice.tool_calls:
        message["content"] = choice.content or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_json}}
            for call in choice.tool_calls
        ]
    return message


def text_completion(result: GenerationResult) -> dict[str, Any]:
    """The object of a completion, and its choices."""
    choices = [
        {
            "text": choice.text,
            "index": index,
            "logprobs": text_logprobs(choice.logprobs),
            "finish_reason": finish_reason(choice.finish_reason),
        }
        for index, choice in enumerate(result.choices)
    ]
    return {"object": "text_completion", "choices": choices}


def finish_reason(reason: AnswerFinishReason) -> str:
    """OpenAI has no answers that end by time; such a one is as short as one that was cut."""
    return reason if reason in ("stop", "tool_calls") else "length"


def usage(result: GenerationResult, tokens: int) -> dict[str, int]:
    """The tokens of a request: of its prompt, and ``tokens`` of its answers."""
    prompt = result.timings.prompt_tokens
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def chat_logprobs(entries: Sequence[TokenLogprob]) -> dict[str, Any] | None:
    """Return the log-probabilities of a chat completion."""
    if not entries:
        return None
    content = [_spelled(entry) | {"top_logprobs": [_spelled(e) for e in entry.top_logprobs]} for entry in entries]
    return {"content": content, "refusal": None}


def _spelled(entry: TokenLogprob) -> dict[str, Any]:
    return {"token": entry.token, "logprob": bounded(entry.logprob), "bytes": [*entry.utf8]}


class TextOffsets:
    """Where tokens stand in a text, in characters: a token that is part of one stands where the character begins."""

    def __init__(self, start: int = 0) -> None:
        self.characters = start
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def place(self, entry: TokenLogprob) -> int:
        """The offset of the next token."""
        at = self.characters
        self.characters += len(self._decoder.decode(entry.utf8))
        return at


def text_logprobs(entries: Sequence[TokenLogprob], offsets: TextOffsets | None = None) -> dict[str, Any] | None:
    """Return the log-probabilities of a completion; ``offsets`` goes on where the tokens before have ended."""
    if not entries:
        return None
    offsets = offsets or TextOffsets()
    return {
        "tokens": [_legacy(entry) for entry in entries],
        "token_logprobs": [bounded(entry.logprob) for entry in entries],
        "top_logprobs": [{_legacy(other): bounded(other.logprob) for other in entry.top_logprobs} for entry in entries],
        "text_offset": [offsets.place(entry) for entry in entries],
    }


def _legacy(entry: TokenLogprob) -> str:
    """The token as completions have it: part of a character as ``bytes:\\xe2\\x80``, so that no two look the same."""
    if entry.token_bytes is None:
        return entry.token
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in entry.token_bytes)


def bounded(value: float) -> float:
    """OpenAI's word for what is as good as impossible is -9999."""
    return max(value, -9999.0)
