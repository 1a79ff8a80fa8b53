"""Record counts of the demo: by the stamps for this demo's records, by the tables' own rows for all there ever were."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.catalog import find_table
from jobs.commit.branch import stream_table
from jobs.commit.offsets import TopicPartition
from jobs.commit.stamp_fields import Counts
from jobs.commit.stamp_history import history
from jobs.commit.target_positions import restart_positions, target_positions
from jobs.kafka.metadata import KafkaLog
from jobs.spec.models import StreamSpec


@dataclass(frozen=True, slots=True)
class StampedCounts:
    """What the stamps on the stream's table say.

    Attributes:
        totals: Records since the stream's first run.
        position: Next offset per partition.
        whole: Whether the dead letters have what the table has: they are committed a moment later.
    """

    totals: Counts
    position: dict[TopicPartition, int]
    whole: bool = True

    @property
    def passed(self) -> int:
        """Records that became a row, a dead letter or a tombstone."""
        return self.totals.landed + self.totals.dead + self.totals.tombstones


def stamped_counts(catalog: Catalog, spec: StreamSpec) -> StampedCounts:
    """What the newest stamps count; all zero before its first run."""
    tables = {name: find_table(catalog, name, spec.branch_of(name)) for name in spec.target_names}
    stamps = {name: history(table.metadata, spec.stream).newest if table else None for name, table in tables.items()}
    stamp = stamps[spec.coordinator]
    if stamp is None:
        return StampedCounts(Counts(), {})
    complete = restart_positions(target_positions(stamps, spec.coordinator))
    return StampedCounts(stamp.totals, dict(stamp.position), whole=complete == dict(stamp.position))


@dataclass(frozen=True, slots=True)
class TableSums:
    """What the tables hold, counted row by row through PyIceberg, against what the topic was given.

    Attributes:
        produced: Records between the topic's first and last offset.
        rows: Rows of the stream's table.
        dead: Rows of the dead-letter table.
        distinct: Different (partition, offset) among both together; None if the rows do not carry them.
        tombstones: By the stamps, since a tombstone leaves no row.
        reasons: Dead letters by class.
    """

    produced: int
    rows: int
    dead: int
    distinct: int | None
    tombstones: int
    reasons: dict[str, int]

    @property
    def right(self) -> bool:
        """Every record exactly once: nothing lost, nothing doubled."""
        once = self.distinct is None or self.distinct == self.rows + self.dead
        return once and self.produced == self.rows + self.dead + self.tombstones


def table_sums(catalog: Catalog, spec: StreamSpec, kafka: KafkaLog) -> TableSums:
    """Count what the tables hold of the stream's topics."""
    log = kafka.state(spec.source)
    produced = sum(end - log.earliest[at] for at, end in log.latest.items())
    columns = spec.kafka_columns
    with_offsets = set(columns.coordinates) <= columns.names
    landed = _scan(stream_table(catalog, spec, spec.table.name), columns.coordinates if with_offsets else ())
    failed = _scan(catalog.load_table(spec.dead_letter_table), ("topic", "partition", "offset", "error_class"))
    distinct = None
    if with_offsets:
        names = ["topic", "partition", "offset"]
        both = pa.concat_tables([landed.rename_columns(names), failed.select(names)], promote_options="permissive")
        distinct = both.group_by(names).aggregate([]).num_rows
    reasons = Counter(failed.column("error_class").to_pylist())
    return TableSums(
        produced,
        landed.num_rows,
        failed.num_rows,
        distinct,
        stamped_counts(catalog, spec).totals.tombstones,
        dict(reasons.most_common()),
    )


def some_rows(catalog: Catalog, spec: StreamSpec, count: int) -> list[dict[str, Any]]:
    """A few rows of the stream's table."""
    return stream_table(catalog, spec, spec.table.name).scan(limit=count).to_arrow().to_pylist()


def _scan(table: Table, columns: tuple[str, ...]) -> pa.Table:
    scan = table.scan(selected_fields=columns) if columns else table.scan()
    return scan.to_arrow()
