"""LengthLimit: how many tokens an answer may have, and which limit that is."""

from typing import NamedTuple

from edgegen.engine.finish import StopRule
from edgegen.errors import OptionError


class LengthLimit(NamedTuple):
    """Most new tokens of one answer, and what says so."""

    new_tokens: int
    rule: StopRule


def length_limit(
    prompt_length: int, max_context: int, *, max_new_tokens: int, max_length: int | None = None
) -> LengthLimit:
    """The smallest of the limits after a prompt that fits the context; of equal ones, the caller's.

    Raises:
        OptionError: ``max_length``, which counts the prompt's tokens too, leaves no room after them.
    """
    if max_length is not None and max_length <= prompt_length:
        raise OptionError(
            f"max_length: {max_length} leaves no room after a prompt of {prompt_length} tokens: "
            "raise it, or limit the new ones alone with max_new_tokens (max_tokens over HTTP)"
        )
    limits: list[LengthLimit] = [LengthLimit(max_new_tokens, "max_new_tokens")]
    if max_length is not None:
        limits.append(LengthLimit(max_length - prompt_length, "max_length"))
    # The last token generated is never fed back, so it needs no room.
    limits.append(LengthLimit(max_context - prompt_length + 1, "context"))
    return min(limits, key=lambda limit: limit.new_tokens)
