"""``edgegen chat``: talk with a model at a terminal or through a pipe, or continue a text in turns."""

import sys
from typing import TYPE_CHECKING, cast

import click

from edgegen.bundle.store import DEFAULT_MODEL
from edgegen.cli.constraint_flags import constraint_flags, given_constraint
from edgegen.cli.flag import is_from_environment
from edgegen.cli.grouped_help import GroupedCommand, help_all, in_group
from edgegen.cli.option_flags import DEFAULTS, given_engine_options, given_options, option_flags
from edgegen.cli.thinking_flags import check_thinking, thinking_flag
from edgegen.cli.tuned_options import tuned_engine_options
from edgegen.errors import UsageError
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions, GenerationOverrides

if TYPE_CHECKING:
    from edgegen.llm import LLM

_PROMPT = in_group("Prompt")


@click.command("chat", cls=GroupedCommand)
@click.option(
    "-m", "--model", metavar="BUNDLE", default=DEFAULT_MODEL, show_default=True, cls=_PROMPT, help="A name or a path."
)
@click.option("-s", "--system", metavar="TEXT", cls=_PROMPT, help="The system message.")
@click.option(
    "--completion/--chat",
    "completion",
    default=None,
    cls=_PROMPT,
    help="Continue a text, or hold a conversation.  [conversation, if the model has a chat template]",
)
@option_flags("chat")
@constraint_flags
@click.option("--stats", is_flag=True, cls=in_group("Output"), help="Print tokens, times and memory to stderr.")
@help_all
def command(model: str, system: str | None, completion: bool | None, stats: bool) -> None:
    """Talk with a model: a line is a message, /? lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.

    From a pipe, each line is a turn or a command, and the first error ends the chat. Defaults in brackets hold where
    the bundle's generation_config.json says nothing else. Any of the sampling options turns sampling on.
    """
    system_is_given = system is not None and not is_from_environment("system")
    if system_is_given and completion:
        raise UsageError("-s is for conversations: leave out --completion.")
    # Wrong values are told before the model is loaded.
    given = cast(GenerationOverrides, given_options() | {"grammar": given_constraint()})
    GenerationOptions().override(given)
    engine_options = tuned_engine_options(model, EngineOptions(**given_engine_options()), keep_kv=True)

    from edgegen.llm import LLM

    with LLM.load(model, options=engine_options) as llm:
        is_base = llm.chat_template.is_fallback
        completes = is_base if completion is None else completion
        if not completes:
            check_thinking(llm.chat_template, given)
        elif asked := thinking_flag(given):
            raise UsageError(f"{asked} is for conversations: {'add --chat' if is_base else 'leave out --completion'}.")
        if completes and system_is_given:
            raise UsageError("-s is for conversations, and this model has no chat template: add --chat to hold one.")
        _talk(llm, completes, system, given, name=model, stats=stats)


def _talk(
    llm: "LLM", completes: bool, system: str | None, given: GenerationOverrides, *, name: str, stats: bool
) -> None:
    from edgegen.cli.repl.dialogue import Chat, Completion
    from edgegen.cli.repl.loops import run_interactive, run_piped, terminal_reader
    from edgegen.cli.repl.repl import Repl
    from edgegen.cli.repl.screen import StandardScreen

    interactive = sys.stdin.isatty() and sys.stderr.isatty()
    screen = StandardScreen(interactive=interactive)
    if not completes and llm.chat_template.is_fallback:
        screen.note("edgegen: note: this model has no chat template: a plain transcript is used.")
    about = f"{name}: context of {llm.max_context} tokens, {llm.bundle.path}"
    set_here = {key: value for key, value in given.items() if value is not None}
    dialogue = Completion(llm) if completes else Chat(llm, system)
    repl = Repl(
        llm,
        screen,
        dialogue,
        llm.generation_options.override(DEFAULTS["chat"]),
        set_here,
        about=about,
        stats=stats,
        check=lambda given: check_thinking(llm.chat_template, given),
    )
    if not interactive:
        run_piped(repl, sys.stdin.buffer)
        return
    does = "type the beginning of a text, and Enter alone to go on" if completes else "type a message"
    screen.note(f"{name}: {does}. /? shows the commands, Ctrl-D leaves.")
    run_interactive(repl, screen, terminal_reader())
