"""Command line of edgegen: one file per verb; only here do errors become one line and an exit code.

Exit codes: 0 done, 1 failed, 2 invalid arguments, 130 interrupted.
"""

import atexit
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn, cast

import click
from click.shell_completion import CompletionItem

import edgegen
from edgegen.cli.environment import name_variables, warn_of_misspelt
from edgegen.cli.os_errors import long_path_note, reader_has_gone
from edgegen.cli.overview import meant_by, write_overview
from edgegen.cli.printable import printable_lines
from edgegen.errors import EdgegenError, UsageError, did_you_mean
from edgegen.system import address_space_limit, heed_console, use_one_blas_thread
from edgegen.system.build_info import with_commit

_INTERRUPTED = 130
_ADDRESS_SPACE = 300_000_000
"""Bytes; measured on Linux x86-64 with two threads: 200 MB crash while libraries are loaded, 300 MB end in an error."""

VERBS = {
    "batch": "Answer a file of prompts.",
    "bench": "Measure speed and memory on this machine.",
    "chat": "Talk with a model, or continue a text in turns.",
    "completion": "Print a script that completes commands in a shell.",
    "config": "Show the options in effect, and where they come from.",
    "doctor": "Show what this machine is, and what is slow on it.",
    "eval": "Compare bundles on the same tests.",
    "export": "Export a checkpoint to a bundle.",
    "generate": "Continue a prompt.",
    "info": "Show what a bundle is.",
    "list": "List the bundles that have a name.",
    "pull": "Download a model by name, and make a bundle.",
    "rm": "Delete a bundle from the store.",
    "run": "Talk with a model, pulled first if needed.",
    "score": "Score texts by their log-probability.",
    "serve": "Serve OpenAI, Anthropic, ollama and llama-server APIs.",
    "tune": "Measure and keep the fastest options for a bundle.",
    "verify": "Check a bundle's files against its manifest.",
}


_FILES = {"run": "pull_and_chat"}
"""The files of verbs that are not called as these: a module ``run`` would take the place of the function here."""

_EXPORTING = ("export", "pull", "run", "chat", "generate", "serve")
"""Verbs that may export, whose NumPy multiplies matrices then; the last four say it themselves where they do not."""


def command_of(verb: str) -> click.Command:
    """The command of a verb, whose file is imported."""
    return import_module(f"edgegen.cli.{_FILES.get(verb, verb)}").command


class _Verbs(click.Group):
    """Imports a verb's file when the verb is run: listing all verbs costs nothing.

    Once ``edgegen.cli.list`` is imported, ``list`` is that module in this file.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        return command_of(cmd_name)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage("edgegen", "COMMAND [OPTIONS]")
        formatter.write(f"{self.help}\n\n")
        write_overview(formatter, VERBS)
        formatter.write("\nedgegen COMMAND --help explains one; -h, --help; --version.\n")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if ctx.resilient_parsing:  # a shell asks how the line may go on
            return super().resolve_command(ctx, args)
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            if said := meant_by(args[0]):
                raise click.UsageError(f"no such command {args[0]!r}: {said}.", ctx)
            raise click.UsageError(f"no such command {args[0]!r}{did_you_mean(args[0], VERBS)}.", ctx)
        _refuse_tight_address_space()
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and name != "config":  # which warns of another verb's variables
            warn_of_misspelt(command, lambda: map(command_of, VERBS))
        return name, command, rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [CompletionItem(verb, help=text) for verb, text in VERBS.items() if verb.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except EdgegenError as error:
            name_variables(ctx, error)
            raise
        except OSError as error:
            if reader_has_gone(error):  # click would call it a failure
                return _print_nothing_more()
            raise


def _refuse_tight_address_space() -> None:
    """Stop at once where the limit on the address space is too low to load the libraries.

    Raises:
        EdgegenError: NumPy's and ONNX Runtime's libraries would end the process while they are loaded.
    """
    limit = address_space_limit()
    if limit is not None and limit < _ADDRESS_SPACE:
        raise EdgegenError(
            f"this process may map {limit / 1e6:.0f} MB of memory (ulimit -v), and needs at least "
            f"{_ADDRESS_SPACE / 1e6:.0f} MB to begin: raise the limit, or limit memory with --max-memory."
        )


def _show_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"edgegen {with_commit(edgegen.__version__)}")
        ctx.exit()


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def app() -> None:
    """Run a causal language model well on the machine you have."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the caller has closed it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    arguments = sys.argv[1:] if argv is None else argv
    # All others multiply no matrices with NumPy, and its threads cost time.
    if not arguments or arguments[0] not in _EXPORTING:
        use_one_blas_thread()
    warnings.showwarning = _say_warning
    heed_console()
    for stream in (sys.stdout, sys.stderr):
        write_any_character(cast(Any, stream))
    code: list[int] = []
    atexit.register(_leave_if_interrupted, code)  # after all that is registered from now on
    code.append(run(arguments))
    sys.exit(code[0])


def _leave_if_interrupted(code: Sequence[int]) -> None:
    """Python would end with the signal in place of a code, had it met ``exec`` of a text, as dataclasses have it."""
    if _INTERRUPTED in code:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(_INTERRUPTED)


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether it was Ctrl-C that led to an error: a native module that it meets while it begins says ImportError."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_interrupt(error.__cause__))


def write_any_character(stream: Any) -> None:
    """UTF-8 and LF into files and pipes, whatever locale and system say; on a terminal, ? for what it lacks."""
    if stream.isatty():
        stream.reconfigure(errors="replace")
    else:
        stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")


def run(argv: Sequence[str]) -> int:
    """Run the command line; its exit code."""
    try:
        result = app.main([*argv], prog_name="edgegen", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return 2
    except EdgegenError as error:
        click.echo(f"edgegen: error: {printable_lines(str(error))}", err=True)  # it may quote what strangers wrote
        _say_notes(error)
        return 2 if isinstance(error, UsageError) else 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "edgegen", "edgegen_export"):
            raise
        name = {"google": "protobuf"}.get(package, package)
        click.echo(f"edgegen: error: this needs {name}, which is not installed: run `pip install {name}`.", err=True)
        return 1
    except ImportError as error:
        if not _is_interrupt(error):
            raise
        click.echo(err=True)
        return _INTERRUPTED
    except click.Abort:  # click has ended the line that the terminal wrote ^C into
        return _INTERRUPTED
    except KeyboardInterrupt:
        click.echo(err=True)
        return _INTERRUPTED
    except MemoryError:
        said = (
            "there is not enough memory: see what it takes with `edgegen info BUNDLE`, and limit it with --max-memory."
        )
        click.echo(f"edgegen: error: {said}", err=True)
        return 1
    except OSError as error:
        if reader_has_gone(error):
            return _print_nothing_more()
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"edgegen: error: {printable_lines(f'{where}{error.strerror or error}')}", err=True)
        _say_notes(error)
        return 1


def _say_warning(message: Warning | str, *about: object) -> None:
    """Print a warning as one line, without its place in the code."""
    click.echo(f"edgegen: warning: {printable_lines(str(message))}", err=True)


def _say_notes(error: EdgegenError | OSError) -> None:
    long_path = long_path_note(error)
    for note in [*getattr(error, "__notes__", ()), *([long_path] if long_path else [])]:
        click.echo(f"edgegen: note: {printable_lines(note)}", err=True)


def _print_nothing_more() -> int:
    """`| head` has closed the pipe: print nothing more, and flush nothing at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
