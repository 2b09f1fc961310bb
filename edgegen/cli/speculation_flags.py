"""The flags of ``edgegen generate`` that let tokens be guessed."""

from typing import Any

from edgegen.cli.collected_flags import CollectedFlags, F, Flag
from edgegen.options.generation import DEFAULT_ASSISTANT_TOKENS, DEFAULT_NGRAM_SIZE

_COLLECTED = CollectedFlags("edgegen.speculation_flags")

FLAGS: tuple[Flag, ...] = (
    (
        "prompt_lookup_num_tokens",
        {"type": int},
        "Guess up to so many tokens where the text repeats itself or the prompt; the text stays the model's.  [none]",
    ),
    ("max_matching_ngram_size", {"type": int}, f"With it: tokens to look for at most.  [{DEFAULT_NGRAM_SIZE}]"),
    ("num_assistant_tokens", {"type": int}, f"With --draft: most tokens to guess.  [{DEFAULT_ASSISTANT_TOKENS}]"),
)


def speculation_flags(command: F) -> F:
    """Give ``command`` the flags; their values are collected for :func:`given_speculation`."""
    return _COLLECTED.add_to(command, FLAGS)


def given_speculation() -> dict[str, Any]:
    """The flags of the running command that were given, by option."""
    return _COLLECTED.given()
