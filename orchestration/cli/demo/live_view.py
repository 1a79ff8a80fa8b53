"""Live view at the end of the demo: payments keep coming, and rows keep arriving, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.text import Text

from jobs.state.store import StateStore
from jobs.supervise.heartbeat import Heartbeat, read_heartbeat
from orchestration.cli.demo.producer import PaymentProducer
from orchestration.cli.status.output import ago
from orchestration.cli.status.stream_status import utc
from orchestration.formatting import thousands

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
                    live.update(Text(arriving(read_heartbeat(store), producer.acknowledged)))
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
    work, state = beat.work, beat.state if beat.error is None else f"{beat.state}: {beat.error.message[:60]}"
    return (
        f"{produced:,} more produced; {state}: batch {thousands(work.batch)}, {work.landed:,} landed, "
        f"{work.dead:,} dead, {work.recent.rate:,.0f}/s, lag {thousands(work.total_lag)}, "
        f"last commit {ago(utc(work.last_commit_at))}"
    )
