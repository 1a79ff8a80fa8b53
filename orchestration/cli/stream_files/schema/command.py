"""Commands `frazil schema …`: what a stream's records, its file and its table say of its columns, and how to bring
them together."""

from __future__ import annotations

import importlib

import click

_COMMANDS = {
    "infer": ("orchestration.cli.stream_files.schema.infer", "Write a stream's file from the records of a topic."),
    "diff": ("orchestration.cli.stream_files.schema.diff", "Hold a stream's file against its table."),
    "apply": ("orchestration.cli.stream_files.schema.apply", "Change a stream's table as its file says."),
    "check": ("orchestration.cli.stream_files.schema.check", "Tell what would become of records of a schema, for CI."),
}


class SchemaCommands(click.Group):
    """Loads a command's module on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order in which one meets them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None if there is none."""
        if cmd_name not in _COMMANDS:
            return None
        return getattr(importlib.import_module(_COMMANDS[cmd_name][0]), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=SchemaCommands)
def schema() -> None:
    """Infer, compare and change the columns of streams and their tables."""
