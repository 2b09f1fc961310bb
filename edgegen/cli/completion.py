"""``edgegen completion``: print a script that completes verbs, flags, bundles and choices in a shell."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a script that completes edgegen's verbs, flags, bundles and choices in SHELL.

    \b
    bash: eval "$(edgegen completion bash)" in ~/.bashrc
    zsh: eval "$(edgegen completion zsh)" in ~/.zshrc, after compinit
    fish: edgegen completion fish > ~/.config/fish/completions/edgegen.fish
    """
    protocol = get_completion_class(shell)
    assert protocol
    root = context.find_root()
    name = root.info_name or "edgegen"
    click.echo(protocol(root.command, {}, name, f"_{name.upper()}_COMPLETE").source())
