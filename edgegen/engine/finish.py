"""StopMatch: what ended a sequence."""

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "time", "cancelled"]
"""Why a sequence ended: by something it says, at a limit on its tokens, at one on its time, at the caller's wish."""

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
"""The option that ended a text; ``context`` is the model's own limit, ``grammar`` any constraint that is complete."""


@dataclass(frozen=True, slots=True)
class StopMatch:
    """What ended a sequence.

    ``matched``: the token id, the text that stop strings or expression matched, or the name of the caller's
    function; ``rule``: the option at work, None where it was none.
    """

    reason: FinishReason
    matched: str | int | None
    rule: StopRule | None = None
