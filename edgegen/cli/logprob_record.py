"""Log-probabilities as JSON has them."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgegen.logprobs import TokenLogprob


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
