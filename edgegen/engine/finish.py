"""Finish reasons: why the engine ended a sequence, and which option ended it."""

from typing import Literal, NamedTuple

FinishReason = Literal["stop", "length", "time", "cancelled"]
"""Why a sequence ended: a stop in its output, the limit on its tokens, the limit on its time, or its caller."""

StopRule = Literal[
    "eos_token_id",
    "stop_token_ids",
    "stop_strings",
    "stop_regex",
    "stopping_criteria",
    "max_new_tokens",
    "max_length",
    "max_time",
    "context",
    "grammar",
]
"""The option that ended a sequence; ``context`` is the model's own limit, ``grammar`` any completed constraint."""


class StopMatch(NamedTuple):
    """Cause of the end of a sequence.

    ``matched``: the token id, the text that a stop string or expression matched, or the name of the caller's function;
    ``rule``: the option that applied, None if none did.
    """

    reason: FinishReason
    matched: str | int | None
    rule: StopRule | None = None


LIMIT = StopMatch("length", None, "max_new_tokens")
CANCELLED = StopMatch("cancelled", None)
OUT_OF_TIME = StopMatch("time", None, "max_time")
