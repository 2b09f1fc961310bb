"""The flags that shape the choice of tokens, of ``edgegen generate`` and ``edgegen batch``."""

from typing import Any

import click

from edgegen.cli.collected_flags import CollectedFlags, F, Flag
from edgegen.options.generation import GenerationOptions

_DEFAULTS = GenerationOptions()
_COLLECTED = CollectedFlags("edgegen.sampling_flags")

FLAGS: tuple[tuple[str, type, str], ...] = (
    ("temperature", float, "Divide the logits by this; 0 is greedy."),
    ("top_k", int, "Draw from the k most likely tokens; 0 is all."),
    ("top_p", float, "Draw from the most likely tokens of this probability."),
    ("repetition_penalty", float, "Above 1: repeat less."),
    ("min_p", float, "Draw from tokens at least this many times as likely as the likeliest."),
    ("typical_p", float, "Draw from the tokens of typical surprise of this probability."),
    ("epsilon_cutoff", float, "Draw from tokens at least this likely."),
    ("eta_cutoff", float, "The same, lower where the distribution is flat."),
    ("top_n_sigma", float, "Draw from logits within so many standard deviations of the highest; 0 is off."),
    ("xtc_probability", float, "How often the top choices but the last are left out."),
    ("xtc_threshold", float, "From which probability on a token is such a top choice."),
    ("mirostat", int, "2: steer the surprise (mirostat, version 2) instead of cutting off; 0 is off."),
    ("mirostat_tau", float, "The surprise to aim at, in bits."),
    ("mirostat_eta", float, "How fast it is steered."),
    ("frequency_penalty", float, "Subtract this for each time a token was generated."),
    ("presence_penalty", float, "Subtract this once if a token was generated."),
    ("penalty_last_n", int, "The penalties look at the last n tokens only."),
    ("dry_multiplier", float, "Penalty on continuing a repetition (DRY); 0 is off."),
    ("dry_base", float, "How fast it grows with the repetition."),
    ("dry_allowed_length", int, "The shortest repetition that costs something."),
    ("dry_penalty_last_n", int, "DRY looks at the last n tokens only."),
    ("no_repeat_ngram_size", int, "No n tokens in a row twice; 0 is off."),
    ("min_new_tokens", int, "Tokens before the end may come."),
)
"""Option, type and help of each; the default is the option's own."""


def sampling_flags(command: F) -> F:
    """Give ``command`` the flags; their values are collected for :func:`given_flags`."""
    flags = list[Flag]()
    for name, kind, text in FLAGS:
        default = getattr(_DEFAULTS, name)
        flags.append((name, {"type": kind}, text if default is None else f"{text}  [{default}]"))
    biases = {"multiple": True, "metavar": "ID=BIAS", "callback": _collect_biases}
    flags += [
        ("logit_bias", biases, "Add BIAS to the logit of token id ID; may be repeated."),
        ("suppress_tokens", {"type": int, "multiple": True}, "Never this token id."),
        ("do_sample/--no_do_sample", {"default": None}, "Draw tokens, or take the most likely one each time."),
    ]
    return _COLLECTED.add_to(command, flags)


def given_flags() -> dict[str, Any]:
    """The flags of the running command that were given, by option."""
    return _COLLECTED.given()


def _collect_biases(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> None:
    biases: dict[int, float] = {}
    for text in value:
        token, _, bias = text.partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            raise click.BadParameter(f"{text!r} is no ID=BIAS, such as 42=-1.5", context, parameter) from None
    _COLLECTED.collect(context, parameter, biases or None)
