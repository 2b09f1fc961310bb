"""``edgegen generate``: continue a prompt and stream the text to standard output."""

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import click

from edgegen.bundle.store import DEFAULT_MODEL
from edgegen.cli.constraint_flags import constraint_flags, given_constraint
from edgegen.cli.flag import is_from_environment
from edgegen.cli.grouped_help import GroupedCommand, help_all, in_group
from edgegen.cli.max_memory import max_memory_flag, within_memory
from edgegen.cli.model_to_run import MODEL_HELP, making_flags, model_given
from edgegen.cli.option_flags import given_engine_options, given_options, option_flags
from edgegen.cli.repl.screen import printable
from edgegen.cli.session_file import SessionFile, dropped_note, spoken
from edgegen.cli.stats_line import stats_line
from edgegen.cli.text_source import read_text
from edgegen.cli.thinking_flags import check_thinking, thinking_flag
from edgegen.cli.tuned_options import tuned_engine_options
from edgegen.errors import UsageError
from edgegen.generation.result_json import answer_record
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions, GenerationOverrides

if TYPE_CHECKING:
    from edgegen.chat import Message
    from edgegen.generation.results import GenerationResult
    from edgegen.generation.session import Session
    from edgegen.generation.stream import TextStream
    from edgegen.llm import LLM

_BETWEEN = "---\n"
"""Between the answers, where there are several."""

_PROMPT = in_group("Prompt")


@click.command("generate", cls=GroupedCommand)
@click.argument("prompt", required=False)
@click.option("-m", "--model", metavar="BUNDLE", default=DEFAULT_MODEL, show_default=True, cls=_PROMPT, help=MODEL_HELP)
@making_flags("Prompt")
@click.option(
    "-f", "--file", "prompt_file", metavar="FILE", cls=_PROMPT, help="Read the prompt from a file; - is standard input."
)
@click.option("--chat", is_flag=True, cls=_PROMPT, help="Answer PROMPT as a chat message.")
@click.option(
    "-s", "--system", metavar="TEXT", cls=in_group("Prompt", is_common=False), help="With --chat: the system message."
)
@click.option(
    "--session",
    "session_path",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    cls=_PROMPT,
    help="Continue from FILE and save the session there.",
)
@option_flags("generate")
@constraint_flags
@click.option(
    "--echo", is_flag=True, cls=in_group("Output", is_common=False), help="Print the prompt before its continuation."
)
@click.option(
    "--print-options",
    is_flag=True,
    cls=in_group("Output", is_common=False),
    help="Print the options in effect, as JSON, and generate nothing.",
)
@click.option(
    "--json", "as_json", is_flag=True, cls=in_group("Output"), help="Print one JSON object instead of streaming."
)
@click.option("--stats", is_flag=True, cls=in_group("Output"), help="Print tokens, times and memory to stderr.")
@max_memory_flag
@help_all
def command(
    prompt: str | None,
    model: str,
    hub_names: tuple[str, ...],
    prompt_file: str | None,
    chat: bool,
    system: str | None,
    session_path: Path | None,
    print_options: bool,
    echo: bool,
    as_json: bool,
    stats: bool,
    max_memory: int | None,
) -> None:
    """Continue PROMPT, a file (-f) or standard input, and stream the text.

    Defaults in brackets hold where the bundle's generation_config.json says nothing else. Any of the sampling options
    turns sampling on.
    """
    system_is_given = system is not None and not is_from_environment("system")
    if system_is_given and not chat:
        raise UsageError("-s is for conversations: add --chat.")
    said_first = system if system_is_given else None
    kept = SessionFile.open(session_path, chat=chat, system=said_first) if session_path else None
    if kept is not None and kept.session.messages:
        system = None  # a variable's is for conversations that begin
    goes_on = kept is not None and kept.session.can_continue and not chat
    text = "" if print_options else read_prompt(prompt, prompt_file, needed=not goes_on)
    # Wrong values are told before the model is loaded.
    overrides = cast(GenerationOverrides, given_options() | {"grammar": given_constraint()})
    if GenerationOptions().override(overrides).logprobs and not as_json and not print_options:
        raise UsageError("log-probabilities are shown with --json only: add it, or leave them out.")
    if not chat and (asked := thinking_flag(overrides)):
        raise UsageError(f"{asked} is for conversations: add --chat.")
    engine_options = EngineOptions(**given_engine_options())
    model = model_given(model, hub_names)
    engine_options = tuned_engine_options(model, engine_options, keep_kv=kept is not None)
    engine_options = within_memory(max_memory, model, engine_options, keep_kv=kept is not None)

    from edgegen.llm import LLM
    from edgegen.model.kernels import describe_kernels

    begin = perf_counter()
    llm = LLM.load(model, options=engine_options)
    load_seconds = perf_counter() - begin
    if chat:
        check_thinking(llm.chat_template, overrides)
    chosen = llm.generation_options.override(overrides)
    if print_options:
        click.echo(json.dumps(chosen.to_json(), indent=1))
        return
    several = chosen.num_return_sequences > 1
    session = kept.session if kept else None
    said = spoken(session, text, system) if chat else []
    with _open(llm, said, session, overrides) if chat else llm.stream(text, session=session, **overrides) as stream:
        if not as_json and not several:
            _print_text(text if echo else "", (chunk.text for chunk in stream))
        result = stream.wait()
    if kept:
        kept.save()
    if result.dropped_messages:
        click.echo(f"edgegen: note: {dropped_note(result.dropped_messages, llm.max_context)}.", err=True)
    kernels = describe_kernels(wanted=engine_options.kernels == "auto") if llm.device == "cpu" else "CUDA"
    if as_json:
        prompt_text = {"prompt": text} if echo else {}
        choices = {"choices": [_record(choice) for choice in result.choices]} if several else {}
        timings = asdict(result.timings) | {"load_seconds": load_seconds}
        told = {**prompt_text, **_record(result), **choices, "kernels": kernels, "timings": timings}
        click.echo(json.dumps(told, ensure_ascii=False))
    elif several:
        for n, choice in enumerate(result.choices):
            _print_text((_BETWEEN if n else "") + (text if echo else ""), [choice.text])
    if stats:
        click.echo(stats_line(result, load_seconds, kernels), err=True)


def _open(llm: "LLM", messages: "list[Message]", session: "Session | None", given: GenerationOverrides) -> "TextStream":
    """The answer to a conversation."""
    if llm.chat_template.is_fallback:
        click.echo("edgegen: note: this model has no chat template: a plain transcript is used.", err=True)
    return llm.stream_chat(messages, session=session, **given)


def _record(result: "GenerationResult") -> dict[str, Any]:
    """An answer, and the counts of speculative decoding if there were proposals."""
    speculation = {"speculation": asdict(result.speculation)} if result.speculation.runs else {}
    return {**answer_record(result), **speculation}


def read_prompt(argument: str | None, file: str | None, *, needed: bool = True) -> str:
    """The prompt, from exactly one place; where it is not ``needed``, a terminal is not asked for one.

    Raises:
        UsageError: from none, from two, or not UTF-8 text.
    """
    if argument is not None and file is not None:
        raise UsageError("the prompt is given twice, as an argument and with -f: leave one out.")
    source = "-" if argument == "-" or (argument is None and file is None) else file
    if source is None:
        try:
            (argument or "").encode()
        except UnicodeEncodeError:
            raise UsageError("the prompt on the command line is not UTF-8 text.") from None
        return argument or ""
    if argument is None and file is None and sys.stdin.isatty():
        if not needed:
            return ""
        raise UsageError("no prompt: give it as an argument, with -f FILE, or through a pipe.")
    text = read_text(source, "prompt")
    # A shell's pipe ends in a newline that is not part of the prompt; a model would begin a new paragraph after it.
    return text.removesuffix("\n").removesuffix("\r") if source == "-" else text


def _print_text(before: str, pieces: Iterable[str]) -> None:
    last, shown = before, printable if sys.stdout.isatty() else str
    sys.stdout.write(shown(before))
    for piece in pieces:
        sys.stdout.write(shown(piece))
        sys.stdout.flush()
        last = piece or last
    if not last.endswith("\n"):
        sys.stdout.write("\n")
