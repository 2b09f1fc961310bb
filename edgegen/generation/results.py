"""GenerationResult, GenerationChunk and Timings: what a request gives, in pieces while it runs and at its end."""

from dataclasses import dataclass
from reprlib import repr as shortened

from edgegen.engine.finish import FinishReason
from edgegen.sampling.logprobs import TokenLogprob
from edgegen.speculation.stats import NOTHING_PROPOSED, Speculation


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
        """Those that were computed, over the time they took."""
        return (self.prompt_tokens - self.cached_tokens) / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens after the first, over the time they took."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(frozen=True, slots=True, repr=False)
class GenerationChunk:
    """A piece of a streamed answer.

    Text can lag behind its ids: part of a character or of a possible stop string is held back.

    Attributes:
        text: final text.
        token_ids: the ids since the answer's last chunk.
        finish_reason: in the answer's last chunk, why it ended.
        index: which of the answers, where there are several.
        logprobs: of ``token_ids``, if they were asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()

    def __repr__(self) -> str:
        end = f", finish_reason={self.finish_reason!r}" if self.finish_reason else ""
        return f"GenerationChunk({shortened(self.text)}, {len(self.token_ids)} tokens{end})"


@dataclass(frozen=True, slots=True, repr=False)
class GenerationResult:
    """A whole answer.

    Attributes:
        matched: what ended it: the stop string, the text that matched, the token id.
        stopped_by: the option that ended it, such as ``stop_strings`` or ``max_new_tokens``.
        seed: the one sampled with, if any.
        logprobs: of ``token_ids``, if they were asked for.
        score: of an answer of beam search, by which it is ranked.
        speculation: how many tokens speculative decoding proposed, and how many were accepted.
        others: the other answers, where several were asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    matched: str | int | None
    stopped_by: str | None
    seed: int | None
    timings: Timings
    logprobs: tuple[TokenLogprob, ...] = ()
    score: float | None = None
    speculation: Speculation = NOTHING_PROPOSED
    others: tuple["GenerationResult", ...] = ()

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
