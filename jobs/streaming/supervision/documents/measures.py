"""Measures of a stream: each figure of its driver's heartbeat, with its meaning and all of its names.

A new figure is a field of the heartbeat and an entry here. The metrics and their table in the docs, `frazil
status` with its JSON, and the metadata of assets in Dagster go through this list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args

from jobs.streaming.supervision.documents.heartbeat import Heartbeat, State, Work
from jobs.tables.commit.stamp.lateness import LATENESS_NAMES

T = TypeVar("T")
_SUFFIXES = {"counter": "_total", "histogram": "_bucket", "info": "_info"}


@dataclass(frozen=True, slots=True)
class Measure(Generic[T]):
    """One figure. An empty name means that a place does not show it.

    Args:
        metric: Name in OpenMetrics, without the `_total` of a counter. Its suffix is the unit.
        help: Description, one sentence.
        source: Reads the figure, or None if it is unknown. With one label it returns a number for each of the label's
            values; with `topic` and `partition` a number for each partition.
        type: Type in OpenMetrics. A counter begins at 0 with every driver.
        labels: Labels of the metric besides `stream`.
        status: Key in `frazil status --json`.
        line: Label of its line in `frazil status STREAM`.
        metadata: Key in Dagster. With the suffix `_ms` seconds are shown as milliseconds.
    """

    metric: str
    help: str
    source: Callable[[T], Any]
    type: Literal["counter", "gauge", "histogram", "info"] = "gauge"
    labels: tuple[str, ...] = ()
    status: str = ""
    line: str = ""
    metadata: str = ""

    @property
    def unit(self) -> str:
        """Unit in OpenMetrics; empty for a plain number."""
        return next((unit for unit in ("seconds", "records") if self.metric.endswith(f"_{unit}")), "")

    @property
    def sample(self) -> str:
        """Name of its samples in a query of Prometheus; for a histogram, of its buckets."""
        return f"{self.metric}{_SUFFIXES.get(self.type, '')}"

    @property
    def is_time(self) -> bool:
        """Whether it is a point in time, in seconds since 1970."""
        return self.metric.endswith("_timestamp_seconds")


def _seconds(millis: int | None) -> float | None:
    return None if millis is None else millis / 1000


def _if_timed(work: Work, value: Any) -> Any:
    """A figure of lateness; None for a stream whose file has no event time."""
    return None if work.watermark_ms is None and not work.late else value


PROGRESS: tuple[Measure[Work], ...] = (
    Measure("frazil_records_read", "Records read from Kafka since the driver started.", lambda w: w.read, "counter"),
    Measure("frazil_records_landed", "Records that reached the table.", lambda w: w.landed, "counter"),
    Measure(
        "frazil_records_dead", "Records in the dead letters, by error class.", lambda w: w.reasons, "counter",
        labels=("reason",), status="dead_letters_by_reason",
    ),
    Measure(
        "frazil_unknown_fields",
        "Landed records with a key that the schema does not declare; of the first 20 paths.",
        lambda w: w.unknown_fields, "counter", labels=("path",),
    ),
    Measure("frazil_tombstones", "Records without a value, which land nowhere.", lambda w: w.tombstones, "counter"),
    Measure("frazil_filtered", "Records that the stream's transforms dropped.", lambda w: w.filtered, "counter"),
    Measure(
        "frazil_rule_warnings",
        "Landed rows that broke a rule which only warns. The rule `_kafka_timestamp` counts rows without a time in "
        "Kafka, or with one beyond the year 9999.",
        lambda w: w.warned, "counter", labels=("rule",),
    ),
    Measure(
        "frazil_parked_letters", "Dead letters written for a suspended table.", lambda w: w.parked_letters,
        "counter", labels=("table",),
    ),
    Measure(
        "frazil_parked_since_timestamp_seconds", "Time at which a table was suspended, since 1970.",
        lambda w: {name: at / 1000 for name, at in w.parked.items()}, labels=("table",),
    ),
    Measure("", "Number of the newest batch.", lambda w: w.batch, status="batch", line="batch"),
    Measure("frazil_batches", "Batches that committed something.", lambda w: w.batches, "counter"),
    Measure(
        "frazil_batch_seconds", "Time spent in batches, commits included.", lambda w: w.batch_seconds, "counter"
    ),
    Measure("frazil_commit_seconds", "Time spent in commits.", lambda w: w.commit_seconds, "counter"),
    Measure(
        "frazil_commit_refusals",
        "Commits that were refused and repeated, because another writer had committed first.",
        lambda w: w.refusals, "counter",
    ),
    Measure(
        "frazil_last_batch_seconds", "Duration of the newest batch.", lambda w: w.last_batch_seconds,
        metadata="batch_duration_ms",
    ),
    Measure(
        "frazil_last_commit_seconds", "Duration of its commits.", lambda w: w.last_commit_seconds,
        metadata="commit_ms",
    ),
    Measure(
        "frazil_last_commit_timestamp_seconds", "Time of the newest batch's commit, since 1970.",
        lambda w: w.last_commit_at, status="last_commit", line="last commit", metadata="last_commit",
    ),
    Measure(
        "", "Records read per second within the last five minutes.",
        lambda w: w.recent.rate if w.recent.seconds else None,
        status="records_per_second", line="records/s", metadata="records_per_second",
    ),
    Measure(
        "frazil_position_offset", "The next offset to be landed.", lambda w: w.position,
        labels=("topic", "partition"), status="position", metadata="offsets",
    ),
)  # fmt: skip
EVENT_TIMES: tuple[Measure[Work], ...] = (
    Measure(
        "frazil_event_time_least_timestamp_seconds", "The least event time of the newest batch's rows; since 1970.",
        lambda w: w.event_ms and w.event_ms[0] / 1000, metadata="event_time_least",
    ),
    Measure(
        "frazil_event_time_greatest_timestamp_seconds",
        "The greatest event time of the newest batch's rows; since 1970.",
        lambda w: w.event_ms and w.event_ms[1] / 1000, metadata="event_time_greatest",
    ),
)  # fmt: skip
LATENESS: tuple[Measure[Work], ...] = (
    Measure(
        "frazil_records_late", "Records later than the watermark: landed, dead letters, or in a table of their own.",
        lambda w: _if_timed(w, w.late), "counter", status="records_late", metadata="records_late",
    ),
    Measure(
        "frazil_lateness_seconds", "Distance of late records behind the watermark; without a sum.",
        lambda w: _if_timed(w, dict(zip(LATENESS_NAMES, w.late_by, strict=True))), "histogram",
        labels=("le",), status="late_by", metadata="late_by",
    ),
    Measure(
        "frazil_lateness_greatest_seconds",
        "Distance of the latest record behind the watermark since the driver started.",
        lambda w: _if_timed(w, w.latest_ms / 1000), status="latest_late_seconds", metadata="latest_late_s",
    ),
)  # fmt: skip
# Freshness of the stream. The supervisor may know more than the heartbeat, and reports that.
FRESHNESS: tuple[Measure[Work], ...] = (
    Measure(
        "frazil_valid_through_timestamp_seconds",
        ("Every record that had arrived by this time is in the tables, or on the branch of a write-audit-publish "
         "stream; since 1970."),
        lambda w: _seconds(w.valid_through_ms), metadata="complete_through",
    ),
    Measure(
        "frazil_watermark_timestamp_seconds", "No record with an earlier event time is awaited any more; since 1970.",
        lambda w: _seconds(w.watermark_ms), metadata="watermark",
    ),
    Measure(
        "", "Records not read yet.", lambda w: w.total_lag, status="lag", line="lag", metadata="consumer_lag_records"
    ),
    Measure(
        "frazil_consumer_lag_records", "Records between the position and the log's end.",
        lambda w: w.lag if w.knows_lag else {}, labels=("topic", "partition"), status="lag_by_partition",
    ),
    Measure(
        "frazil_consumer_lag_timestamp_seconds", "Time at which the consumer lag was measured, since 1970.",
        lambda w: w.lag_at,
    ),
    Measure(
        "frazil_undecided_records",
        "Records of open transactions, which the consumer lag does not count.",
        lambda w: w.total_undecided, status="undecided_records", metadata="undecided_records",
    ),
    Measure(
        "frazil_undecided_since_timestamp_seconds",
        "Time since which such records have waited, where they wait longest, since 1970.",
        lambda w: w.undecided_since, status="undecided_since",
    ),
)  # fmt: skip
OF_WORK = PROGRESS + EVENT_TIMES + LATENESS + FRESHNESS
OF_DRIVER: tuple[Measure[Heartbeat], ...] = (
    Measure(
        "frazil_unpublished_letters", "Dead letters that are not in their topic yet.",
        lambda beat: beat.unpublished_letters, status="unpublished_letters",
    ), Measure("frazil_driver_start_timestamp_seconds", "Time of the driver's start, since 1970.", lambda beat:
    beat.since), Measure(
        "frazil_driver_state", "1 for the driver's state, else 0.",
        lambda beat: {state: float(state == beat.state) for state in get_args(State)}, labels=("state",),
    ),
    Measure(
        "frazil_driver", "The driver that answers; always 1.",
        lambda b: {"generation": b.generation, "attempt": str(b.attempt), "epoch": str(b.epoch)}, "info",
        labels=("generation", "attempt", "epoch"),
    ),
)  # fmt: skip
MEASURES: tuple[Measure[Any], ...] = (*OF_WORK, *OF_DRIVER)
"""All measures, in the order of the pages that list them."""
