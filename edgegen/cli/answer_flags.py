"""The flags of ``edgegen generate`` that say how many answers to look for, and how."""

from typing import Any

import click

from edgegen.cli.collected_flags import CollectedFlags, F, Flag
from edgegen.options.generation import GenerationOptions

_DEFAULTS = GenerationOptions()
_COLLECTED = CollectedFlags("edgegen.answer_flags")

FLAGS: tuple[Flag, ...] = (
    ("num_return_sequences", {"type": int}, f"So many answers.  [{_DEFAULTS.num_return_sequences}]"),
    ("num_beams", {"type": int}, f"Search with so many beams; draws nothing.  [{_DEFAULTS.num_beams}]"),
    ("length_penalty", {"type": float}, f"Above 0: beams may be long.  [{_DEFAULTS.length_penalty}]"),
    (
        "early_stopping",
        {"type": click.Choice(["false", "true", "never"])},
        "When a beam search may end.  [false]",
    ),
    ("guidance_scale", {"type": float}, "Above 1: away from the negative prompt, by so much.  [1.0]"),
    ("negative_prompt", {"type": str}, "What guidance moves away from.  [the prompt's last token]"),
    ("logprobs", {"is_flag": True, "default": None}, "With --json: the log-probability of each token."),
    ("top_logprobs", {"type": int}, "With --json: of each token's likeliest alternatives, so many."),
)


def answer_flags(command: F) -> F:
    """Give ``command`` the flags; their values are collected for :func:`given_answer_flags`."""
    return _COLLECTED.add_to(command, FLAGS)


def given_answer_flags() -> dict[str, Any]:
    """The flags of the running command that were given, by option."""
    given = _COLLECTED.given()
    if "early_stopping" in given:
        given["early_stopping"] = {"false": False, "true": True}.get(given["early_stopping"], "never")
    return given
