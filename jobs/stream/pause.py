"""Pause between the batches of a query: how long it is, and how often a query that has nothing asks for more."""

from __future__ import annotations

from datetime import timedelta

from jobs.spec.models import StreamSpec
from jobs.spec.trigger import Every
from jobs.stream.results import BatchDone

# How often a query without records to read asks Kafka for new ones; Spark's own 10 ms would keep a core busy.
_IDLE_POLL = timedelta(milliseconds=500)


def pause_after(
    spec: StreamSpec,
    done: BatchDone,
    took: float,
    between: float = 0.0,
    full: int | None = None,
    *,
    red: bool = False,
) -> float:
    """Seconds to wait after a batch before the next one may begin.

    None if the next one is full already, or if this one did nothing: what was in before costs no waiting.

    Args:
        done: The batch.
        took: Seconds since it began.
        between: What Spark needs at least from the end of the pause to the next batch, seconds.
        full: The most records that the next one reads; None: as the file says.
        red: Whether the table is.
    """
    if not isinstance(spec.trigger, Every) or not done.counts.read:
        return 0.0
    if sum(done.lag.values()) >= (full or spec.source.max_records_per_batch):
        return 0.0
    every = (red and spec.trigger.while_red) or spec.trigger.every
    return max(0.0, every.total_seconds() - took - between)


def poll_delay(spec: StreamSpec) -> timedelta:
    """How often a query that has nothing to read asks Kafka."""
    return min(_IDLE_POLL, spec.trigger.every) if isinstance(spec.trigger, Every) else _IDLE_POLL / 5
