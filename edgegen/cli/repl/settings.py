"""``/set`` of the chat REPL: reads the name and the value of a generation option by the table of options."""

import json
from typing import Any, cast

from edgegen.cli.option_flags import flag_of
from edgegen.errors import OptionError, UsageError, did_you_mean
from edgegen.options.generation import THINKING_OPTIONS
from edgegen.options.hints import refuse_unknown
from edgegen.options.kinds import Biases, Kind, OneOf, StopPattern, Switch, Texts, TokenIds
from edgegen.options.option import EFFORTS, Option
from edgegen.options.table import ENGINE_OPTIONS, GENERATION_OPTIONS, OPTIONS

_ENGINE = {option.name for option in ENGINE_OPTIONS}
_SWITCHES = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def _one_answer(option: Option) -> bool:
    """Whether the option makes sense for one streamed answer per turn."""
    return "generate" not in option.verbs or "chat" in option.verbs


SETTABLE = {
    option.name: option
    for option in GENERATION_OPTIONS
    if _one_answer(option) and (not option.caller_only or option.name == "response_format")
}
"""The options that ``/set`` changes."""


def option_named(name: str) -> Option:
    """The option that a typed name means: dashes may stand for underscores.

    Raises:
        UsageError: it is unknown, or no option of a turn; the message says what to use.
    """
    known = name.lstrip("-").replace("-", "_").lower()
    if known in SETTABLE:
        return SETTABLE[known]
    if known in _ENGINE and "chat" in OPTIONS[known].verbs:
        raise UsageError(f"{known} is set when the model is loaded: start edgegen chat with {flag_of(OPTIONS[known])}.")
    if known == "grammar":
        raise UsageError("a grammar is read from a file: start edgegen chat with --grammar FILE.")
    if known in OPTIONS and not _one_answer(OPTIONS[known]):
        raise UsageError(f"{known} is not for chats, which stream one answer to each turn: use edgegen generate.")
    if known in OPTIONS:
        raise UsageError(f"{known} cannot be typed: give it from Python.")
    refuse_unknown([known], [*SETTABLE, "stats", "system"])
    raise UsageError(f"{known} is not an option of a turn.")


def read_value(option: Option, text: str) -> Any:
    """The value that a typed text means for an option; what is no such value stays for the option's check.

    Raises:
        OptionError: a bias is not written ID=BIAS.
    """
    kind: Kind = option.kind
    match kind:
        case Switch():
            return _SWITCHES.get(text.lower(), text)
        case OneOf():
            return next((value for value in kind.values if str(value).lower() == text.lower()), text)
        case Biases(sequences=False):
            return _biases(option.name, text)
        case TokenIds() if not text.startswith("["):
            return [_json(part, part) for part in text.replace(",", " ").split()]
        case StopPattern():
            return text
        case Texts():
            value = _json(text, text)
            return cast(object, value) if isinstance(value, str | list) else text
        case _:
            return _json(text, text)


def read_thinking(text: str) -> dict[str, Any]:
    """The options of thinking that a typed word changes; None leaves one out.

    Raises:
        UsageError: it is no such word.
    """
    word = text.lower()
    if word == "default":
        return dict.fromkeys(THINKING_OPTIONS)
    if word in _SWITCHES:
        return {"thinking": _SWITCHES[word], "reasoning_effort": None}
    if word in EFFORTS:
        return {"thinking": None, "reasoning_effort": word}
    if word.isdecimal() and word.isascii():
        return {"max_thinking_tokens": int(word)}
    near = did_you_mean(word, (*_SWITCHES, *EFFORTS, "default"))
    raise UsageError(f"/think takes on, off, default, {', '.join(EFFORTS)}, or a number of tokens, not {text!r}{near}.")


def _biases(name: str, text: str) -> dict[int, float]:
    biases: dict[int, float] = {}
    for pair in text.replace(",", " ").split():
        token, _, bias = pair.partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            raise OptionError(f"{name}: {pair!r} is no ID=BIAS, such as 42=-1.5") from None
    return biases


def _json(text: str, otherwise: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise
