"""Plan of a task: what the driver sends to each task of a batch."""

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
    """A task's output to one target.

    Attributes:
        metadata: The table's metadata as JSON, without its history.
        skip: Partitions that the target has completely.
        floors: First needed offset of partitions that the target has in part.
        io_properties: Properties for the table's files: a catalog may issue credentials per table. Never logged, and
            left out of the repr.
        parked: Whether it is a placeholder: `metadata` are those of the dead letters, which keep its records.
        fitted: For a placeholder, columns and partitions that decide whether the table can hold a record; None if that
            is decided when the table is resumed.
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
    """Everything that a task needs to know; sent to it pickled.

    Attributes:
        reader: Options of the split's consumer. Never logged, and left out of the repr.
        timeout: Seconds without a record after which Kafka counts as unavailable.
        targets: Targets, the coordinator first.
        columns: Columns of the rows that do not come from the value.
        first_seen: Time when the batch was planned, UTC.
        mask: Parts of a failed record that its dead letter does not keep.
        event_time: Bounds of late rows; None if the stream's file has no event time.
        steps: The stream's own steps between decoding and the table; None without any.
        route: Route of the rows; None without one.
        naming: For a route with dynamic tables, decisions about values without a table.
        lanes: If each table has its own columns, the outputs of the topics; `resolved`, `columns` and `steps` are then
            unused.
        failed: Offsets of records that already are dead letters of the batch, and are skipped.
        carried: Variables and files of the driver for tasks on other machines.
        numbered: Whether dead letters have the batch number, by which their topic follows them.
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
        """Parts to fetch of a record beyond its value and coordinates."""
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
