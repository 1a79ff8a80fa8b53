"""Plan of a task: what the driver sends with a batch to each of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.base.system.carried import NOTHING, Carried
from jobs.config.stream.route import Route
from jobs.config.values.mask import NO_MASK, Mask
from jobs.config.values.targets import TargetSpec
from jobs.records.formats.interface.decoder_spec import ResolvedSchema
from jobs.records.formats.record_columns import RecordColumns
from jobs.streaming.pipeline.lanes import Lane
from jobs.streaming.pipeline.pipeline import fetched_parts
from jobs.streaming.pipeline.route_naming import NamingState
from jobs.streaming.pipeline.row_steps import RowSteps
from jobs.streaming.task.event_time import EventTimePlan
from jobs.tables.commit.stamp.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """What a task writes for one target.

    Attributes:
        metadata: The table's metadata as JSON, without its history.
        skip: Partitions that the target has entirely.
        floors: Of partitions it has in part, the first offset it needs.
        io_properties: For the table's files: a catalog may hand out credentials per table. Never logged, and left out
            of the repr.
        parked: Letters hold its place: `metadata` are those of the dead letters, and what it would get is kept there.
        fitted: Of a parked one, by which columns and partitions it is judged whether it can hold a record; None while
            that is left to the day when it comes back.
    """

    target: TargetSpec
    metadata: str
    skip: frozenset[TopicPartition] = frozenset()
    floors: Mapping[TopicPartition, int] = field(default_factory=dict)
    io_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    parked: bool = False
    fitted: tuple[Schema, PartitionSpec] | None = None


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """All that a task needs to know; travels to it pickled.

    Attributes:
        reader: Options of the consumer that reads the split. Never logged, and left out of the repr.
        timeout: Seconds without a record after which Kafka counts as unavailable.
        targets: The coordinator first.
        columns: Those of the rows that are not from the value.
        first_seen: When the batch was planned, UTC.
        mask: What of a failed record its dead letter does not keep.
        event_time: Which rows are late; None of a stream whose file names no event time.
        steps: The stream's own between decoding and the table; None where it has none.
        route: Which tables a row goes to; None of a stream without one.
        naming: Of a route with tables that values name, what is decided of values without one.
        lanes: Of a stream each of whose tables has columns of its own, the ways of its topics; `resolved`, `columns`
            and `steps` are then of no record.
        failed: Offsets of records that are ordinary letters of the batch already, and become nothing else.
        carried: What a task on another machine is given of the driver's.
        numbered: Whether dead letters name the batch, by which the topic of the dead letters follows them.
    """

    stream: str
    config: str
    batch: int
    epoch: int
    first_seen: datetime
    resolved: ResolvedSchema
    columns: RecordColumns
    targets: tuple[TargetPlan, ...]
    file_prefix: str
    reader: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeout: float = 20.0
    mask: Mask = NO_MASK
    event_time: EventTimePlan | None = None
    steps: RowSteps | None = None
    route: Route | None = None
    naming: NamingState | None = None
    late_table: str | None = None
    lanes: tuple[Lane, ...] = ()
    failed: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    carried: Carried = NOTHING
    numbered: bool = True

    @property
    def fetched(self) -> frozenset[str]:
        """What has to be fetched of a record beyond its value and coordinates."""
        own = frozenset[str]() if self.lanes else fetched_parts(self.resolved.decoder, self.columns, self.steps)
        return own.union(*(each.fetched for each in self.lanes))

    @property
    def several(self) -> bool:
        """Whether there are several tables of rows."""
        return self.route is not None or self.late_table is not None


def task_metadata(metadata: TableMetadata) -> str:
    """A table's metadata in a task's plan: schemas, partition specs and properties, without its history."""
    slim = metadata.model_copy(
        update={
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
            "current_snapshot_id": None,
            "properties": {k: v for k, v in metadata.properties.items() if not k.startswith("frazil.")},
        }
    )
    return slim.model_dump_json()
