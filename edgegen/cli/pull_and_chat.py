"""``edgegen run``: talk with a model, which is pulled first where it is not there."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from edgegen.bundle.hub_name import pulled_name
from edgegen.bundle.store import BundleStore
from edgegen.cli.chat import command as chat
from edgegen.cli.chat import talk
from edgegen.cli.export import chosen_scheme, export_for_here
from edgegen.cli.flag import complete_bundle
from edgegen.cli.grouped_help import GroupedCommand, in_group
from edgegen.cli.pull import complete_offer, is_there, near_names, to_pull
from edgegen.errors import BundleNotFoundError
from edgegen.system import expand_user, trim_memory, use_one_blas_thread

if TYPE_CHECKING:
    from edgegen.cli.export import Scheme

_SCHEMES: "tuple[Scheme, ...]" = ("int8", "int4", "fp16", "fp32")


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of bundles and of the list."""
    named = [item for item in complete_bundle(ctx, parameter, incomplete) if item.type != "dir"]
    return [*named, *complete_offer(ctx, parameter, incomplete)]


def _run(name: str, prompt: str | None, int8: bool, int4: bool, **of_chat: Any) -> None:
    talk(bundle_to_run(name, chosen_scheme(int8=int8, int4=int4)), prompt=prompt, **of_chat)


command = GroupedCommand(
    "run",
    callback=_run,
    help="Talk with NAME: a bundle's name or path, a name of `edgegen pull`'s list, or a hub id. It is pulled where it "
    "is not there.\n\nWith PROMPT, answer that alone. Everything else is as in `edgegen chat`.",
    params=[
        click.Argument(["name"], shell_complete=_complete),
        click.Argument(["prompt"], required=False),
        in_group("Prompt")(["--int8"], is_flag=True, help="In 8 bits; the default where it is pulled."),
        in_group("Prompt")(["--int4"], is_flag=True, help="In 4 bits."),
        *(parameter for parameter in chat.params if parameter.name != "model"),
    ],
)


def bundle_to_run(name: str, scheme: "Scheme | None") -> str:
    """The name or path of the bundle to run, which is there then.

    Raises:
        EdgegenError: it is not there, and cannot be pulled.
    """
    store = BundleStore()
    path = expand_user(Path(name))
    if scheme is None or path.exists():
        try:
            store.resolve(name)
        except BundleNotFoundError:
            if path.exists():
                raise
        else:
            _one_thread()
            return name
    source = to_pull(name)
    for known in (scheme,) if scheme else _SCHEMES:
        if is_there(store.path(pulled_name(name, known))):
            _one_thread()
            return pulled_name(name, known)
    wanted: Scheme = scheme or "int8"
    target = store.path(pulled_name(name, wanted))
    with near_names(source):
        export_for_here(source, target, wanted)
    trim_memory()
    return target.name


def _one_thread() -> None:
    """Nothing is exported: NumPy multiplies no matrices, and its threads would only delay the start."""
    use_one_blas_thread()
