"""Terminal output of the commands: consoles, columns, progress bars, JSON and errors; and who gives a command."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from jobs.base.errors import FrazilError
from orchestration.formatting import thousands

if TYPE_CHECKING:
    from jobs.config.settings.settings import Settings

# Wider than any row: one that a terminal folds can be read, one that is cut off cannot.
_UNCUT = 2_000
_SHOWN_CHARACTERS = 300


def stderr_console() -> Console:
    """A console on standard error, which leaves standard output to what the command was asked for."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(facts: object) -> None:
    """One JSON document on standard output."""
    print(json.dumps(facts, indent=2, default=str), flush=True)


def print_columns(names: Sequence[str], rows: Iterable[Sequence[str | int | None]], *, text: Collection[str]) -> None:
    """Rows below their names on standard output, no row cut off or folded.

    Args:
        rows: Numbers get separators, None a dash.
        text: Names of the columns that begin at the left; the others end at the right.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name, justify="left" if name in text else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(cell) if isinstance(cell, str) else thousands(cell) for cell in row))
    Console(highlight=False, width=_UNCUT).print(table)


def visible(text: str, size: str = "") -> str:
    """Text that does nothing to a terminal, on one line; cut when it is long.

    Args:
        size: What is said of how long it is; without it its characters.
    """
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:_SHOWN_CHARACTERS])
    return shown if len(text) <= _SHOWN_CHARACTERS else f"{shown}… ({size or f'{len(text):,} characters'})"


def progress_bar(*columns: str, bar: bool = False) -> Progress:
    """Progress on standard error while that is a terminal, gone in the end; elsewhere nothing.

    Args:
        columns: What is shown beside the task's description and the time that has passed, as rich formats it.
        bar: Whether the task has a total, and so a bar.
    """
    console = stderr_console()
    return Progress(
        SpinnerColumn(),
        TextColumn("[bold]{task.description}"),
        *([BarColumn()] if bar else []),
        *map(TextColumn, columns),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def print_error(problem: FrazilError) -> None:
    """Print an error on standard error, and what to do next."""
    click.secho("Error: ", fg="red", bold=True, nl=False, err=True)
    click.echo(problem.message, err=True)
    if problem.fix:
        click.secho("  Next: ", bold=True, nl=False, err=True)
        click.echo(problem.fix, err=True)


def print_doubts(settings: Settings) -> None:
    """Print on standard error what seems to be misspelt in the settings."""
    for doubt in settings.catalog.doubts:
        click.secho("Warning: ", fg="yellow", bold=True, nl=False, err=True)
        click.echo(doubt, err=True)


def current_user() -> str:
    """Who asks: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
