"""The flags of ``edgegen generate`` that say how many answers to look for, and how."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from edgegen.cli.collected_flags import CollectedFlags
from edgegen.options import GenerationOptions

_DEFAULTS = GenerationOptions()
_COLLECTED = CollectedFlags("edgegen.answer_flags")
F = TypeVar("F", bound=Callable[..., Any])


def answer_flags(command: F) -> F:
    """Give ``command`` the flags; their values are collected for :func:`given_answer_flags`."""
    for flag, kind, text in (
        ("--top-logprobs", int, "With --json: of each token's likeliest alternatives, so many."),
        ("--logprobs", None, "With --json: the log-probability of each token."),
        ("--negative-prompt", str, "What guidance moves away from.  [the prompt's last token]"),
        ("--guidance-scale", float, "Above 1: away from the negative prompt, by so much.  [1.0]"),
        ("--early-stopping", click.Choice(["false", "true", "never"]), "When a beam search may end.  [false]"),
        ("--length-penalty", float, f"Above 0: beams may be long.  [{_DEFAULTS.length_penalty}]"),
        ("--num-beams", int, f"Search with so many beams; draws nothing.  [{_DEFAULTS.num_beams}]"),
        ("--num-return-sequences", int, f"So many answers.  [{_DEFAULTS.num_return_sequences}]"),
    ):
        how: dict[str, Any] = {"is_flag": True, "default": None} if kind is None else {"type": kind}
        add = click.option(flag, **how, expose_value=False, callback=_COLLECTED.collect, help=text)
        command = add(command)
    return command


def given_answer_flags() -> dict[str, Any]:
    """The flags of the running command that were given, by option."""
    given = _COLLECTED.given()
    if "early_stopping" in given:
        given["early_stopping"] = {"false": False, "true": True}.get(given["early_stopping"], "never")
    return given
