"""Commands of the chat REPL: what a typed line asks for, and the help text that lists the commands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from edgegen.cli.repl.settings import SETTABLE
from edgegen.errors import UsageError, did_you_mean
from edgegen.options.option import EFFORTS

QUOTES = '"""'
"""Opens and closes a text of several lines."""

Needs = Literal["nothing", "something", "either"]


@dataclass(frozen=True, slots=True)
class Command:
    """A command as the help text lists it; ``needs`` says whether an argument follows its name."""

    name: str
    argument: str
    help: str
    needs: Needs = "nothing"


COMMANDS = (
    Command("/set", "NAME VALUE", "Set an option; VALUE default leaves it out.", "either"),
    Command("/show", "[WHAT]", "Show the options, system, model or stats.", "either"),
    Command("/system", "TEXT", 'Set the system message; "" removes it.', "either"),
    Command("/model", "[NAME]", "Show the model and the others, or switch.", "either"),
    Command("/think", "on|off|LEVEL|N", "Switch thinking, set its effort or most tokens.", "either"),
    Command("/regen", "", "Answer again; /retry is the same."),
    Command("/edit", "[TEXT]", "Change the last message, and have it answered.", "either"),
    Command("/undo", "", "Take back the last turn."),
    Command("/clear", "", "Begin anew; system message and options stay."),
    Command("/save", "FILE", "Save the session with its KV cache.", "something"),
    Command("/load", "FILE", "Continue a saved session.", "something"),
    Command("/help", "", "Show the commands; /? is the same."),
    Command("/bye", "", "Leave; so does Ctrl-D."),
)

_ALIASES = {"/?": "/help", "/retry": "/regen", "/exit": "/bye", "/quit": "/bye"}
_KNOWN = {command.name: command for command in COMMANDS}


@dataclass(frozen=True, slots=True)
class Say:
    """A text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Do:
    """A command and what follows its name."""

    name: str
    argument: str = ""


def parse(line: str) -> Say | Do:
    """Parse a line: a command if it begins with ``/``, or else a text for the model.

    Raises:
        UsageError: the command is unknown, or its argument is missing or one too many.
    """
    if not line.startswith("/"):
        return Say(line)
    word, _, rest = line.partition(" ")
    word, rest = word.rstrip(), rest.strip()
    name = _ALIASES.get(word.lower(), word.lower())
    if name not in _KNOWN:
        near = did_you_mean(name, [*_KNOWN, *_ALIASES])
        raise UsageError(f"no such command {word!r}{near}: /? lists them, and a blank before the / makes it a text.")
    command = _KNOWN[name]
    if command.needs == "something" and not rest:
        raise UsageError(f"{name} needs a {command.argument}: {name} {command.argument}.")
    if command.needs == "nothing" and rest:
        raise UsageError(f"{name} takes no argument, and {rest!r} was given.")
    return Do(name, rest)


def completions(line: str, models: Callable[[], Sequence[str]]) -> list[str]:
    """Complete the last word of a line that begins with ``/``; ``models``: the names of the models there are."""
    before, _, word = line.rpartition(" ")
    if not before:
        known = [*_KNOWN, *_ALIASES] if line.startswith("/") else []
    else:
        known = _arguments(_ALIASES.get(before.rstrip(), before.rstrip()), models)
    return sorted(one for one in known if one.startswith(word))


def _arguments(command: str, models: Callable[[], Sequence[str]]) -> Sequence[str]:
    """The words that may follow a command."""
    match command:
        case "/model":
            return models()
        case "/think":
            return ("on", "off", "default", *EFFORTS)
        case "/set":
            return (*SETTABLE, "stats", "system")
        case "/set stats":
            return ("on", "off")
        case "/show":
            return ("options", "system", "model", "stats")
        case _:
            return ()


def help_text(*, completion: bool) -> str:
    """All commands, a line each, and how texts are typed."""
    width = max(len(f"{command.name} {command.argument}") for command in COMMANDS) + 2
    rows = [f"  {f'{command.name} {command.argument}':{width}}{command.help}" for command in COMMANDS]
    typed = "a text to continue; Enter alone continues the answer" if completion else "a message"
    ends = [
        f"Anything else is {typed}.",
        f"{QUOTES} begins and ends a text of several lines. /set stats on shows speeds.",
        "Ctrl-C stops an answer and keeps what was said. Tab completes commands.",
    ]
    return "\n".join([*rows, *ends])


class Block:
    r"""Joins the lines between ``\"\"\"`` and ``\"\"\"`` to one text."""

    def __init__(self) -> None:
        self._lines: list[str] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a text of several lines has begun and not ended."""
        return self._lines is not None

    def push(self, line: str) -> Say | str | None:
        """The line itself; the text of a block that it ends; None inside of a block."""
        if self._lines is None:
            if not line.startswith(QUOTES):
                return line
            self._lines, line = [], line.removeprefix(QUOTES)
        if not line.rstrip().endswith(QUOTES):
            self._lines.append(line)
            return None
        lines, self._lines = [*self._lines, line.rstrip().removesuffix(QUOTES)], None
        return Say("\n".join(lines).strip("\n"))

    def drop(self) -> None:
        """Forget a text that has begun."""
        self._lines = None
