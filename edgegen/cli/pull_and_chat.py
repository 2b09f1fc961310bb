"""``edgegen run``: talk with a model, which is exported or pulled first where it is not there."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from edgegen.cli.chat import command as chat
from edgegen.cli.chat import talk
from edgegen.cli.flag import complete_bundle, is_from_environment
from edgegen.cli.grouped_help import GroupedCommand, in_group
from edgegen.cli.model_to_run import MODEL_HELP, bundle_to_run, given_making, model_given
from edgegen.cli.pull import complete_offer
from edgegen.errors import UsageError


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of bundles and of the list."""
    named = [item for item in complete_bundle(ctx, parameter, incomplete) if item.type != "dir"]
    return [*named, *complete_offer(ctx, parameter, incomplete)]


def _run(name: str | None, prompt: str | None, model: str | None, hub_names: tuple[str, ...], **of_chat: Any) -> None:
    if model is not None and is_from_environment("model") and (name is not None or hub_names):
        model = None
    if model is not None or hub_names:
        if prompt is not None:
            raise UsageError(f"the model is given twice, as {name!r} and with {'-m' if model else '-hf'}.")
        talk(lambda: model_given(model or "", hub_names), prompt=name, **of_chat)
        return
    if name is None:
        raise click.UsageError("Missing argument 'NAME', the model: a name, a path, or -m or -hf.")
    talk(lambda: bundle_to_run(name, given_making()), prompt=prompt, **of_chat)


command = GroupedCommand(
    "run",
    callback=_run,
    help="Talk with NAME: a bundle's name or path, a GGUF file or a checkpoint's folder, a name of `edgegen pull`'s "
    "list, or a hub id, which may be hf.co/OWNER/NAME:QUANT. It is exported or pulled where it is not there.\n\nWith "
    "PROMPT, answer that alone. With -m or -hf, NAME is left out. Everything else is as in `edgegen chat`.",
    params=[
        click.Argument(["name"], required=False, shell_complete=_complete),
        click.Argument(["prompt"], required=False),
        in_group("Prompt")(["-m", "--model"], metavar="BUNDLE", help=f"{MODEL_HELP} Then NAME is left out."),
        *(parameter for parameter in chat.params if parameter.name != "model"),
    ],
)
