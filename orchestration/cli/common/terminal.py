"""Terminal output of the commands: consoles, columns, progress bars, JSON and errors; and who gives a command."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobs.base.errors import FrazilError
from orchestration.cli.common.column_layout import GAP, fold_text, lay_out, paragraphs
from orchestration.cli.common.progress import CommandProgress
from orchestration.formatting import thousands

if TYPE_CHECKING:
    from jobs.config.settings.settings import Settings

_SHOWN_CHARACTERS = 300


def stderr_console() -> Console:
    """A console on standard error, which leaves standard output to what the command was asked for."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(facts: object) -> None:
    """Print a JSON document on standard output."""
    print(json.dumps(facts, indent=2, default=str), flush=True)


def print_columns(
    names: Sequence[str],
    rows: Iterable[Sequence[str | int | None]],
    *,
    text: Collection[str],
    optional: Sequence[str] = (),
    styles: Mapping[tuple[int, str], str] = MappingProxyType({}),
    whole: bool = False,
) -> tuple[str, ...]:
    """Rows below their names on standard output, within the terminal's width; 80 where there is no terminal.

    Args:
        rows: Numbers get separators, None a dash.
        text: Names of the columns that begin at the left, and may be folded; the others end at the right.
        optional: Names of columns that may be left out where there is no room, the first of them first.
        styles: Colours, by number of the row and name of the column.
        whole: Whether long words are broken at separators only.

    Returns:
        Names of the columns that are left out.
    """
    cells = [[cell if isinstance(cell, str) else thousands(cell) for cell in row] for row in rows]
    console = Console(highlight=False)
    layout = lay_out(names, cells, console.width, text=text, optional=optional, whole=whole)
    if layout.widths is None:
        for line in paragraphs(names, cells, console.width):
            console.print(line, markup=False, soft_wrap=True, style="" if line.startswith(" ") else "bold")
        return ()
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for name, width in layout.widths.items():
        folds = name in text
        table.add_column(name, justify="left" if folds else "right", width=width, overflow="fold", no_wrap=not folds)
    for number, row in enumerate(cells):
        shown = (
            (name, fold_text(cell, layout.widths[name]) if name in text else cell)
            for name, cell in zip(names, row, strict=True)
            if name in layout.widths
        )
        table.add_row(*(Text(cell, style=styles.get((number, name), "")) for name, cell in shown))
    console.print(table)
    return layout.left_out


def visible(text: str, size: str = "") -> str:
    """Text that does nothing to a terminal, on one line; cut when it is long.

    Args:
        size: Text about its length; without it the number of its characters.
    """
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:_SHOWN_CHARACTERS])
    return shown if len(text) <= _SHOWN_CHARACTERS else f"{shown}… ({size or f'{len(text):,} characters'})"


def progress_bar(*columns: str, bar: bool = False) -> CommandProgress:
    """Progress on standard error: gone in the end on a terminal, a line every ten seconds elsewhere.

    Args:
        columns: Formats of rich's columns beside the task's description and the elapsed time.
        bar: Whether the task has a total, and so a bar, a share and a time left.
    """
    return CommandProgress(columns, bar=bar, console=stderr_console())


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
    """The current user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
