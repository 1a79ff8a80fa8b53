"""`frazil status`: how the streams stand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import click
from rich.console import Console
from rich.table import Table

from jobs.errors import FrazilError
from orchestration.live import quick_catalog, quick_kafka
from orchestration.stream_status import StreamStatus, status_facts, stream_status
from orchestration.terminal import print_json, tell, thousands
from resources.deployment import Deployment

T = TypeVar("T")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the facts as one JSON document.")
@click.pass_obj
def status(deployment: Deployment, as_json: bool) -> None:
    """Show every stream: state, position, lag, rows, last commit. Needs neither the broker nor a JVM."""
    specs, errors = deployment.streams()
    settings = deployment.settings()
    kafka = _or_error(lambda: quick_kafka(settings.kafka))
    catalog = _or_error(lambda: quick_catalog(settings))
    statuses: list[StreamStatus] = []
    for spec in specs:
        statuses.append(stream_status(spec, settings, catalog, kafka))
        if "kafka" in statuses[-1].unknown and not isinstance(kafka, FrazilError):
            # Ask a broker that does not answer once, not once per stream.
            kafka = (
                kafka
                if "does not exist" in statuses[-1].unknown["kafka"]
                else FrazilError(statuses[-1].unknown["kafka"])
            )
    if as_json:
        problems = [problem for error in errors for problem in error.problems]
        print_json({"streams": [status_facts(each) for each in statuses], "problems": problems})
    else:
        _print_table(statuses)
        for error in errors:
            tell(error)
    if errors:
        raise SystemExit(1)


def _or_error(connect: Callable[[], T]) -> T | FrazilError:
    try:
        return connect()
    except FrazilError as problem:
        return problem


_COLUMNS = (
    "stream",
    "table",
    "state",
    "epoch",
    "batch",
    "position",
    "lag",
    "rows",
    "dead",
    "last commit",
    "complete through",
)
_NUMBERS = {"epoch", "batch", "position", "lag", "rows", "dead"}


def _print_table(statuses: list[StreamStatus]) -> None:
    console = Console(highlight=False)
    rows = [_cells(each) for each in statuses]
    widths = [max([len(name), *(len(row[index]) for row in rows)]) for index, name in enumerate(_COLUMNS)]
    if not console.is_terminal or sum(widths) + len(widths) <= console.width:
        table = Table(
            box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", width=sum(widths) + len(widths)
        )
        for name in _COLUMNS:
            table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        Console(highlight=False, width=max(console.width, sum(widths) + len(widths))).print(table)
    else:
        for row in rows:
            console.print(f"[bold]{row[0]}[/]")
            for name, cell in zip(_COLUMNS[1:], row[1:], strict=True):
                console.print(f"  {name:<17}{cell}", markup=False)
    for reason in sorted({f"{part}: {text}" for each in statuses for part, text in each.unknown.items()}):
        console.print(f"? {reason}", markup=False, style="yellow")


def _cells(status: StreamStatus) -> list[str]:
    counted = (
        ["?", "?", "?", "?"]
        if "catalog" in status.unknown
        else [thousands(status.rows), thousands(status.dead), ago(status.last_commit), ago(status.complete_through)]
    )
    return [
        status.stream,
        status.table,
        f"{status.state} ({status.holder})" if status.holder else status.state,
        thousands(status.epoch),
        thousands(status.batch),
        thousands(sum(status.position.values()) if status.position else None),
        "?" if "kafka" in status.unknown else thousands(status.lag),
        *counted,
    ]


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """A time as a person reads it: how long ago within a day, else the date and time in UTC."""
    if at is None:
        return "–"
    seconds = int(((now or datetime.now(UTC)) - at).total_seconds())
    if seconds < 60:
        return f"{max(seconds, 0)} s ago"
    if seconds < 3600:
        return f"{seconds // 60} min ago"
    if seconds < 86400:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min ago"
    return at.strftime("%Y-%m-%d %H:%M UTC")
