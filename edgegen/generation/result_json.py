"""Answers and log-probabilities as JSON has them."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgegen.generation.results import GenerationResult
    from edgegen.sampling.logprobs import TokenLogprob


def answer_record(result: "GenerationResult") -> dict[str, Any]:
    """Return the answer itself, without how it was computed; of optional parts, only those that were asked for."""
    record: dict[str, Any] = {
        "text": result.text,
        "token_ids": result.token_ids,
        "finish_reason": result.finish_reason,
        "stopped_by": result.stopped_by,
        "matched": result.matched,
        "seed": result.seed,
    }
    if result.score is not None:
        record["score"] = result.score
    if result.logprobs:
        record["logprobs"] = [logprob_record(entry) for entry in result.logprobs]
    return record


def logprob_record(entry: "TokenLogprob") -> dict[str, Any]:
    """A token's, with its alternatives if they were asked for."""
    record: dict[str, Any] = {
        "token": entry.token,
        "token_id": entry.token_id,
        "logprob": finite_or_null(entry.logprob),
    }
    if entry.top_logprobs:
        record["top_logprobs"] = [logprob_record(other) for other in entry.top_logprobs]
    return record


def finite_or_null(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if math.isfinite(value) else None
