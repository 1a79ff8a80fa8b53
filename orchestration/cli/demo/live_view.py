"""Live view at the end of the demo: payments keep coming, and rows keep arriving, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.table import Table

from jobs.state.store import StateStore
from jobs.supervise.heartbeat import Heartbeat, read_heartbeat
from orchestration.cli.demo.producer import PaymentProducer

PER_SECOND = 50
_SHOW_SECONDS = 0.5
_LINE_SECONDS = 10.0


def show_arriving(
    console: Console,
    store: StateStore,
    producer: PaymentProducer,
    check: Callable[[], None],
    *,
    until: float = float("inf"),
) -> None:
    """Produce slowly and show what the stream's driver says of itself, until an interrupt.

    Args:
        store: The stream's part of the state store.
        producer: Not started yet; stopped on leaving.
        check: Raises if a service has ended.
        until: When to end, on the monotonic clock.
    """
    producer.start()
    try:
        if console.is_terminal:
            with Live(console=console, refresh_per_second=4, transient=False) as live:
                while time.monotonic() < until:
                    check()
                    live.update(_table(read_heartbeat(store), producer.acknowledged))
                    time.sleep(_SHOW_SECONDS)
            return
        told = 0.0
        while time.monotonic() < until:
            check()
            if time.monotonic() - told >= _LINE_SECONDS:
                told = time.monotonic()
                console.print(arriving(read_heartbeat(store), producer.acknowledged), markup=False, soft_wrap=True)
            time.sleep(_SHOW_SECONDS)
    finally:
        producer.stop()


def arriving(beat: Heartbeat | None, produced: int) -> str:
    """One line of the live view, on a stream that runs."""
    if beat is None:
        return f"{produced:,} more produced; the driver has not said anything yet"
    work = beat.work
    return (
        f"{produced:,} more produced; {beat.state}: batch {work.batch if work.batch is not None else '–'}, "
        f"{work.landed:,} landed, {work.dead:,} dead, lag {_lag(beat)}, last commit {_ago(work.last_commit_at)}"
    )


def _table(beat: Heartbeat | None, produced: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("state", "produced since", "batch", "landed", "dead", "rate", "lag", "last commit"):
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    if beat is None:
        table.add_row("no driver", f"{produced:,}", *("–" for _ in range(6)))
        return table
    work = beat.work
    table.add_row(
        beat.state if beat.error is None else f"{beat.state}: {beat.error.message[:60]}",
        f"{produced:,}",
        "–" if work.batch is None else str(work.batch),
        f"{work.landed:,}",
        f"{work.dead:,}",
        f"{work.recent.rate:,.0f}/s",
        _lag(beat),
        _ago(work.last_commit_at),
    )
    return table


def _lag(beat: Heartbeat) -> str:
    return "–" if beat.work.total_lag is None else f"{beat.work.total_lag:,}"


def _ago(at: float | None) -> str:
    return "–" if at is None else f"{max(0, time.time() - at):.0f} s ago"
