"""``edgegen chat``: talk with a model at a terminal or through a pipe, or continue a text in turns."""

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, cast

import click

from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.cli.constraint_flags import constraint_flags, given_constraint
from edgegen.cli.flag import is_from_environment
from edgegen.cli.grouped_help import GroupedCommand, help_all, in_group
from edgegen.cli.model_to_run import MODEL_HELP, making_flags, model_given
from edgegen.cli.option_flags import given_engine_options, given_options, option_flags, options_of_verb
from edgegen.cli.thinking_flags import check_thinking, thinking_flag
from edgegen.cli.tuned_options import tuned_engine_options
from edgegen.errors import UsageError
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions, GenerationOverrides

if TYPE_CHECKING:
    from edgegen.cli.repl.models import OpenModel

_PROMPT = in_group("Prompt")


@click.command("chat", cls=GroupedCommand)
@click.option("-m", "--model", metavar="BUNDLE", default=DEFAULT_MODEL, show_default=True, cls=_PROMPT, help=MODEL_HELP)
@making_flags("Prompt")
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
def command(model: str, hub_names: tuple[str, ...], system: str | None, completion: bool | None, stats: bool) -> None:
    """Talk with a model: a line is a message, /? lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.

    An answer ends where the model or the context does, or at -n tokens; Enter alone continues it then. From a pipe,
    each line is a turn or a command, and the first error ends the chat. Defaults in brackets hold where
    the bundle's generation_config.json says nothing else. Any of the sampling options turns sampling on.
    """
    talk(lambda: model_given(model, hub_names), system=system, completion=completion, stats=stats)


def talk(
    find: Callable[[], str],
    *,
    system: str | None,
    completion: bool | None,
    stats: bool,
    prompt: str | None = None,
) -> None:
    """Hold a chat with a bundle, as the running command's flags say; or only the turn of ``prompt``.

    ``find`` gives the bundle's name or path, and may make it first.

    Raises:
        EdgegenError: options contradict each other or do not suit the model, it cannot be loaded, or a turn fails
            where nobody is there to go on.
    """
    system_is_given = system is not None and not is_from_environment("system")
    if system_is_given and completion:
        raise UsageError("-s is for conversations: leave out --completion.")
    # Wrong values are told before a model is made or loaded.
    overrides = cast(GenerationOverrides, given_options() | {"grammar": given_constraint()})
    GenerationOptions().override(overrides)
    models = _Bundles(EngineOptions(**given_engine_options()), completion)
    with ExitStack() as stack:
        opened = models.open(find())
        stack.callback(opened.close)
        if not opened.completes:
            opened.check(overrides)
        elif asked := thinking_flag(overrides):
            remedy = "add --chat" if opened.is_base else "leave out --completion"
            raise UsageError(f"{asked} is for conversations: {remedy}.")
        if opened.completes and system_is_given:
            raise UsageError("-s is for conversations, and this model has no chat template: add --chat to hold one.")
        stack.pop_all()
    set_here = {key: value for key, value in overrides.items() if value is not None}
    _hold(models, opened, system, set_here, prompt, stats=stats)


def _hold(
    models: "_Bundles",
    opened: "OpenModel",
    system: str | None,
    overrides: Mapping[str, Any],
    prompt: str | None,
    *,
    stats: bool,
) -> None:
    """Let a person, a pipe or ``prompt`` speak."""
    from edgegen.cli.repl.commands import Say
    from edgegen.cli.repl.dialogue import Chat, Completion
    from edgegen.cli.repl.line_editor import LineEditor
    from edgegen.cli.repl.loops import run_interactive, run_piped
    from edgegen.cli.repl.repl import Repl
    from edgegen.cli.repl.screen import StandardScreen

    interactive = prompt is None and sys.stdin.isatty() and sys.stderr.isatty()
    screen = StandardScreen(interactive=interactive)
    reader = LineEditor(models.names) if interactive else None
    dialogue = Completion(opened.model) if opened.completes else Chat(opened.model, system)
    edit = reader.edit if reader else None
    with closing(Repl(models, opened, screen, dialogue, overrides, stats=stats, edit=edit)) as repl:
        if opened.is_base and not opened.completes:
            screen.note("edgegen: note: this model has no chat template: a plain transcript is used.")
        if prompt is not None:
            repl.handle(Say(prompt))
        elif reader is None:
            run_piped(repl, sys.stdin.buffer)
        else:
            does = "type the beginning of a text, and Enter alone to go on" if opened.completes else "type a message"
            screen.note(f"{opened.name}: {does}. /? shows the commands, Ctrl-D leaves.")
            if opened.note:
                screen.note(f"({opened.name} is {opened.note})")
            run_interactive(repl, screen, reader)


class _Bundles:
    """The bundles that can be talked with, loaded as the running command's flags say."""

    def __init__(self, options: EngineOptions, completion: bool | None) -> None:
        self._options, self._completion = options, completion

    def open(self, name: str) -> "OpenModel":
        from edgegen.bundle.model_card import usage_note
        from edgegen.cli.repl.models import OpenModel
        from edgegen.llm import LLM

        llm = LLM.load(name, options=tuned_engine_options(name, self._options, keep_kv=True))
        template = llm.chat_template
        return OpenModel(
            llm,
            name,
            f"{name}: context of {llm.max_context} tokens, {llm.bundle.path}",
            options_of_verb("chat", llm.generation_options, llm.max_context),
            lambda given: check_thinking(template, given),
            completes=template.is_fallback if self._completion is None else self._completion,
            is_base=template.is_fallback,
            note=usage_note(llm.bundle),
            close=llm.close,
        )

    def names(self) -> list[str]:
        return [entry.name for entry in BundleStore() if entry.bundle]
