"""`codehub completion SHELL`: the completion script for commands and workspace names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    Examples, with the file to add them to:
      eval "$(codehub completion bash)"      ~/.bashrc
      eval "$(codehub completion zsh)"       ~/.zshrc
      codehub completion fish | source       ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click.Choice let only known shells through"
    root = ctx.find_root().command
    click.echo(kind(root, {}, "codehub", "_CODEHUB_COMPLETE").source())
