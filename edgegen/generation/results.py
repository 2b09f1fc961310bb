"""GenerationResult, GenerationChunk and Timings: the results of a request, in pieces while it runs and at its end."""

from dataclasses import dataclass, field
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, Literal

from edgegen.engine.finish import FinishReason
from edgegen.speculation.stats import NOTHING_PROPOSED, Speculation

if TYPE_CHECKING:
    from edgegen.chat.reply import Reply
    from edgegen.chat.tools import ToolCall, ToolCallDelta
    from edgegen.sampling.logprobs import TokenLogprob

AnswerFinishReason = FinishReason | Literal["tool_calls"]
"""Why an answer ended: as its sequence did, or to have tools called."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds and tokens of one answer.

    ``prompt_seconds``: from the start of its first step to its first token; ``decode_seconds``: from then to its last.
    ``cached_tokens``: of the prompt's, those that prefix caching took from the KV cache of an earlier request.
    """

    prompt_tokens: int
    prompt_seconds: float
    decode_tokens: int
    decode_seconds: float
    cached_tokens: int = 0

    @property
    def prompt_tokens_per_second(self) -> float:
        """Computed tokens of the prompt over the time they took."""
        return (self.prompt_tokens - self.cached_tokens) / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens after the first, over the time they took."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """How much of a prompt has been read.

    Attributes:
        total: tokens of the prompt.
        processed: those that are in the KV cache, what prefix caching had included.
        cached_tokens: those that prefix caching had.
        seconds: since the first of them was read; 0 while the request waits for others.
    """

    total: int
    processed: int
    cached_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class GeneratedText:
    """Fields that an answer and each piece of its stream share.

    Attributes:
        text: as the model wrote it.
        token_ids: its ids.
        reply: of a chat with tools or with a model that thinks aloud, what the text says; see ``content``.
    """

    text: str
    token_ids: tuple[int, ...]
    reply: "Reply | None" = field(default=None, kw_only=True)

    @property
    def content(self) -> str:
        """Text for the user: the text without reasoning and tool calls."""
        return self.text if self.reply is None else self.reply.content

    @property
    def reasoning_content(self) -> str:
        """Reasoning of a model that reasons; empty for others."""
        return "" if self.reply is None else self.reply.reasoning_content

    @property
    def tool_calls(self) -> "tuple[ToolCall, ...]":
        """The functions that the model wants called, in its order; of a chunk, those that became whole with it."""
        return () if self.reply is None else self.reply.tool_calls


@dataclass(frozen=True, slots=True, repr=False)
class GenerationChunk(GeneratedText):
    """A piece of a streamed answer.

    Text can lag behind its ids: part of a character or of a possible stop string is held back.

    Attributes:
        token_ids: the ids since the answer's last chunk.
        finish_reason: in the answer's last chunk, why it ended.
        index: which of the answers, where there are several.
        logprobs: of ``token_ids``, if they were asked for; beside stop strings, of those whose text is given out.
    """

    finish_reason: AnswerFinishReason | None = None
    index: int = 0
    logprobs: "tuple[TokenLogprob, ...]" = ()

    def __repr__(self) -> str:
        end = f", finish_reason={self.finish_reason!r}" if self.finish_reason else ""
        return f"GenerationChunk({shortened(self.text)}, {len(self.token_ids)} tokens{end})"

    @property
    def tool_call_deltas(self) -> "tuple[ToolCallDelta, ...]":
        """Parts of tool calls that this chunk adds; joined, the deltas of a call are its ``arguments_json``."""
        return () if self.reply is None else self.reply.tool_call_deltas


@dataclass(frozen=True, slots=True, repr=False)
class GenerationResult(GeneratedText):
    """A whole answer.

    Attributes:
        finish_reason: ``tool_calls`` where the model stopped to have tools called.
        matched: what ended it: the stop string, the text that matched, the token id.
        stopped_by: the option that ended it, such as ``stop_strings`` or ``max_new_tokens``.
        seed: the one sampled with, if any.
        logprobs: of ``token_ids``, if they were asked for, without those of a stop string or match that is not shown; a
            token that ``text`` has the beginning of is cut to that.
        score: of an answer of beam search, by which it is ranked.
        speculation: how many tokens speculative decoding proposed, and how many were accepted.
        others: the other answers, where several were asked for.
        dropped_messages: how many of a chat's oldest messages were left out, as they did not fit the context.
    """

    finish_reason: AnswerFinishReason
    matched: str | int | None
    stopped_by: str | None
    seed: int | None
    timings: Timings
    logprobs: "tuple[TokenLogprob, ...]" = ()
    score: float | None = None
    speculation: Speculation = NOTHING_PROPOSED
    others: tuple["GenerationResult", ...] = ()
    dropped_messages: int = 0

    def __repr__(self) -> str:
        others = f", {len(self.others)} others" if self.others else ""
        tokens = len(self.token_ids)
        return (
            f"GenerationResult({shortened(self.text)}, {tokens} tokens, finish_reason={self.finish_reason!r}{others})"
        )

    @property
    def choices(self) -> tuple["GenerationResult", ...]:
        """All answers, this one first."""
        return (self, *self.others)

    @property
    def message(self) -> dict[str, Any]:
        """The assistant's message, to append to the conversation."""
        from edgegen.chat.reply import Reply

        return (self.reply or Reply(self.text)).to_message()
