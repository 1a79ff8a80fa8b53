"""`frazil completion`: the script by which a shell completes commands, options and the names of streams."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_FRAZIL_COMPLETE"
_PLACES = {
    "bash": (
        "echo 'eval \"$(frazil completion bash)\"' >> ~/.bashrc",
        'Bash 4.4 or newer; once for this shell: eval "$(frazil completion bash)"',
    ),
    "zsh": (
        "echo 'eval \"$(frazil completion zsh)\"' >> ~/.zshrc",
        'behind the line with compinit; once for this shell: eval "$(frazil completion zsh)"',
    ),
    "fish": (
        "frazil completion fish > ~/.config/fish/completions/frazil.fish",
        "once for this shell: frazil completion fish | source",
    ),
}


@click.command()
@click.argument("shell", type=click.Choice(list(_PLACES)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL: commands, options and names of streams.

    Its first line shows how to install it. Names of streams come from the files in streams/.
    """
    complete = get_completion_class(shell)
    assert complete is not None, f"click knows {shell}"
    command, more = _PLACES[shell]
    click.echo(f"# To put it in place: {command}\n# {more[0].upper()}{more[1:]}")
    click.echo(complete(ctx.find_root().command, {}, "frazil", _VARIABLE).source())
