"""Points of the growth curves: what each reads, how, and into which table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from bench.growth_records import PAYMENT_SCHEMA, fill, payments, wide, wide_schema
from bench.time_lapse import TimeLapse

BATCHES = 5
STREAM = "growth"
_KAFKA_PARTITIONS = 4
_TRIGGER = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Point:
    """Point of a curve.

    Args:
        curve: The curve's name.
        value: Position on the axis.
        records: Number of records in the topic.
        partitions: Number of partitions of the topic.
        days: Number of days that the records spread over, so of table partitions that each batch has rows in.
        columns: Number of columns of the records; None for payments.
        snapshots: Number of snapshots that the table has when the stream begins.
    """

    curve: str
    value: int
    records: int
    partitions: int = _KAFKA_PARTITIONS
    days: int = 1
    columns: int | None = None
    snapshots: int = 0

    @property
    def topic(self) -> str:
        """Points with the same records share a topic."""
        kind = f"wide-{self.columns}" if self.columns else f"payments-{self.days}"
        return f"{kind}-{self.partitions}-{self.records}"

    def values(self) -> Iterator[bytes]:
        """The records' values."""
        return wide(self.records, self.columns) if self.columns else payments(self.records, self.days)


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve.

    Args:
        title: Title of the axis.
        points: Given the number of small records.
    """

    title: str
    points: Callable[[int], list[Point]]


def _wide_records(records: int, columns: int) -> int:
    # Fewer of the wide ones, as each takes longer; in whole batches.
    return max(BATCHES, records // (1, 4, 20)[len(str(columns)) - 1] // BATCHES * BATCHES)


CURVES: dict[str, Curve] = {
    "kafka-partitions": Curve(
        "Kafka partitions",
        lambda records: [Point("kafka-partitions", n, records, partitions=n) for n in (1, 8, 64, 256)],
    ),
    "snapshots": Curve(
        "Kept snapshots",
        lambda records: [Point("snapshots", n, records, snapshots=n) for n in (10, 100, 1000)],
    ),
    "table-partitions": Curve(
        "Table partitions in each batch",
        lambda records: [Point("table-partitions", n, records, days=n) for n in (1, 10, 25, 50)],
    ),
    "columns": Curve(
        "Columns",
        lambda records: [Point("columns", n, _wide_records(records, n), columns=n) for n in (5, 50, 500)],
    ),
}


def made_topics(address: str, points: Sequence[Point], tell: Callable[[str], None]) -> dict[str, float]:
    """Make and fill the points' topics; returns the average size of a value in each, in bytes."""
    sizes: dict[str, float] = {}
    for point in points:
        if point.topic in sizes:
            continue
        sizes[point.topic] = fill(address, point.topic, point.partitions, point.values()) / point.records
        tell(f"topic {point.topic}: records of {sizes[point.topic]:,.0f} bytes\n")
    return sizes


def opened_deployment(home: Path, address: str, point: Point) -> None:
    """Write the settings and the stream of a point, and make its table if it is to have a past."""
    settings: dict[str, Any] = {"kafka": {"bootstrap_servers": address}}
    table = f"bench.{STREAM}"
    if point.snapshots:
        lapse = _past(home / "lapse", point.snapshots)
        table = ".".join(lapse.table.name())
        settings["catalog"] = {"name": lapse.catalog.name, "properties": {"type": "sql", **lapse.catalog.properties}}
        lapse.close()
    (home / "frazil.yaml").write_text(yaml.safe_dump(settings))
    document = {
        "stream": STREAM,
        "source": {"topics": [point.topic], "max_records_per_batch": point.records // BATCHES},
        "decode": {"value": "json", "schema": wide_schema(point.columns) if point.columns else PAYMENT_SCHEMA},
        "table": {"name": table, "partition_by": [] if point.columns else ["day(created_at)"]},
        "errors": {"dead_letters": {"table": f"bench.{STREAM}_dead"}},
        "trigger": "available_now",
    }
    (home / "streams").mkdir()
    (home / "streams" / f"{STREAM}.yaml").write_text(yaml.safe_dump(document))


def _past(folder: Path, snapshots: int) -> TimeLapse:
    """The demo's table with so many snapshots of its own stream, one a minute, whose data files nobody wrote."""
    begin = datetime.now(UTC) - (snapshots + 10) * _TRIGGER
    lapse = TimeLapse(folder, begin, _TRIGGER, tasks=2, bytes_per_minute=4 * 1024**2)
    claims = len(lapse.table.metadata.snapshots)
    with lapse.collecting():
        for _ in range(snapshots - claims):
            lapse.commit()
    return lapse
