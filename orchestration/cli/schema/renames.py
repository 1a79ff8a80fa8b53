"""Renames on the command line of `frazil schema apply`: read, and looked up, before anything else is done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from pyiceberg.schema import Schema

from jobs.errors import FrazilError
from jobs.schema.difference import RenamedColumn, parse_rename
from jobs.schema.schema_change import columns_of


def read_renames(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> tuple[RenamedColumn, ...]:
    """The renames of an option; one that is none is a wrong command line."""
    try:
        return tuple(map(parse_rename, texts))
    except FrazilError as problem:
        raise click.BadParameter(f"{problem.message} {problem.fix or ''}".rstrip()) from None


def refuse_unknown(stream: str, renames: Sequence[RenamedColumn], schemas: Iterable[Schema]) -> None:
    """Refuse renames of columns that are nowhere, under neither name: those done before are none of these.

    Args:
        stream: Its id.
        renames: What was asked for.
        schemas: Of the stream's tables, and the one that its file declares.

    Raises:
        click.UsageError: One is of such a column.
    """
    known = {path for schema in schemas for path, _ in columns_of(schema)}
    for each in renames:
        if each.old not in known and each.new not in known:
            raise click.UsageError(
                f"stream {stream}: {'.'.join(each.old)} is no column, and nor is {'.'.join(each.new)}, so nothing is "
                "renamed."
            )
        # One that follows may name what this one makes.
        known |= {(*each.new, *path[len(each.old) :]) for path in known if path[: len(each.old)] == each.old}
