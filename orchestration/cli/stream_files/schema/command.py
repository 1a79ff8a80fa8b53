"""Group of the commands `frazil schema …`, which compare and align the columns of records, files and tables."""

from __future__ import annotations

from typing import ClassVar

import click

from orchestration.cli.common.lazy_commands import LazyCommands

_COMMANDS = {
    "infer": ("orchestration.cli.stream_files.schema.infer", "Write a stream's file from the records of a topic."),
    "diff": ("orchestration.cli.stream_files.schema.diff", "Compare a stream's file with its table."),
    "apply": ("orchestration.cli.stream_files.schema.apply", "Change a stream's table to match its file."),
    "check": (
        "orchestration.cli.stream_files.schema.check",
        "Report what would become of records of a schema, for CI.",
    ),
}


class SchemaCommands(LazyCommands):
    """The commands of `frazil schema`."""

    table: ClassVar = _COMMANDS


@click.group(cls=SchemaCommands)
def schema() -> None:
    """Infer, compare and change the columns of streams and their tables."""
