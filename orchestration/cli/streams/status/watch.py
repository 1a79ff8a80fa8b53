"""Watched status: a compact table of streams within 80 columns, refreshed until Ctrl-C; and `frazil watch`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jobs.base.errors import FrazilError
from orchestration.cli.streams.status.output import COLUMNS, cells, passing_trouble, state_style, troubles
from orchestration.cli.streams.status.report import Looks, StatusReport, status_report
from orchestration.cli.streams.status.stream_status import StreamStatus
from resources.deployment import Deployment

WATCH_SECONDS = 2.0
_SHOWN = ("stream", "state", "lag", "rec/s", "last commit", "complete through", "rows", "dead")
_NUMBERS = {"lag", "rec/s", "rows", "dead"}
_WIDTH, _LEAST_NAME = 80, 12
# Interval of retries of a service that did not answer.
_CONNECT_AGAIN_SECONDS = 30.0


@click.command()
@click.argument("streams", nargs=-1)
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=WATCH_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document on a line for each look.")
@click.pass_obj
def watch(deployment: Deployment, streams: tuple[str, ...], every: float, as_json: bool) -> None:
    """Show every stream, or STREAMS, on a line, refreshed in place until Ctrl-C; as `frazil status --watch`.

    If standard output is no terminal, each refresh prints a block.
    """
    watch_status(deployment, streams, every, as_json=as_json)


def watch_status(deployment: Deployment, streams: Sequence[str], seconds: float, *, as_json: bool) -> None:
    """Show the status again and again, until the process is interrupted.

    Args:
        deployment: The deployment, whose files and settings are read again for each refresh.
        streams: Ids of streams; empty for all.
        seconds: Seconds between two refreshes.
        as_json: Whether to print each refresh as a line of JSON.

    Raises:
        FrazilError: The folder is no deployment, or the first refresh failed. Later failures are shown as lines.
    """
    deployment.require()
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    reports = _reports(deployment, streams, seconds)
    if as_json:
        for report in reports:
            facts = {"problems": [report.message]} if isinstance(report, FrazilError) else report.facts
            print(json.dumps({"at": _now(), **facts}, default=str), flush=True)
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            for report in reports:
                live.update(rendered(report, seconds, console.width), refresh=True)
    else:
        for report in reports:
            console.print(rendered(report, seconds, console.width))
            console.print()
            console.file.flush()


def _reports(deployment: Deployment, streams: Sequence[str], seconds: float) -> Iterator[StatusReport | FrazilError]:
    looks: Looks | None = None
    connected = 0.0
    first = True
    while True:
        began = time.monotonic()
        try:
            settings = deployment.settings()
            if looks is None or began - connected > _CONNECT_AGAIN_SECONDS:
                looks, connected = Looks(settings), began
            yield status_report(deployment, settings, streams, looks)
        except FrazilError as problem:
            if first:
                raise
            looks = None
            yield problem
        first = False
        time.sleep(max(0.0, seconds - (time.monotonic() - began)))


def rendered(report: StatusReport | FrazilError, seconds: float, width: int) -> RenderableType:
    """Rendered status: a line for each stream, then the problems that need attention."""
    head = Text(f"{_now()}, every {seconds:g} s, Ctrl-C ends", style="dim", no_wrap=True, overflow="ellipsis")
    if isinstance(report, FrazilError):
        return Group(head, _line(f"! {report.message}", "red"))
    return Group(head, _table(report.statuses, width), *_lines(report))


def _table(statuses: Sequence[StreamStatus], width: int) -> Table:
    titles = [name.removesuffix(" through") for name in _SHOWN]
    rows = [dict(zip(COLUMNS, cells(status), strict=True)) for status in statuses]
    texts = [[row[name].removesuffix(" ago") for name in _SHOWN] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    # If a line is too long, names are cut, but figures are not.
    names = max(_LEAST_NAME, width - sum(widths[1:]) - (len(widths) - 1))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name, title, wide in zip(_SHOWN, titles, widths, strict=True):
        table.add_column(
            title,
            justify="right" if name in _NUMBERS else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=min(names, wide) if name == "stream" else wide,
        )
    for status, row in zip(statuses, texts, strict=True):
        styles = (state_style(status) if name == "state" else "" for name in _SHOWN)
        table.add_row(*(Text(text, style=style) for text, style in zip(row, styles, strict=True)))
    return table


def _lines(report: StatusReport) -> Iterator[Text]:
    for status in report.statuses:
        for sentence, fix in troubles(status):
            yield _line(f"! {status.stream}: {sentence}", "red")
            if fix:
                yield _line(f"  Next: {fix}")
        if passing := passing_trouble(status):
            yield _line(f"~ {status.stream}: {passing}", "yellow")
    for stream, problems in report.mirrors.items():
        for sentence, fix in problems:
            yield _line(f"! {stream}: {sentence}", "red")
            yield _line(f"  Next: {fix}")
    if report.unsupervised:
        yield _line(f"! supervision: {report.supervision}", "red")
    for error in report.errors:
        yield _line(f"! {error.message}", "red")
        if error.fix:
            yield _line(f"  Next: {error.fix}")
    for reason in sorted({f"{part}: {text}" for each in report.statuses for part, text in each.unknown.items()}):
        yield _line(f"? {reason}", "yellow")


def _line(text: str, style: str = "") -> Text:
    return Text(" ".join(text.split()) if not text.startswith(" ") else text, style=style, overflow="fold")


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
