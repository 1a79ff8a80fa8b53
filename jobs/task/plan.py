"""What a batch asks of a task, and what the task tells of its slice: the data that travels between driver and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.offsets import TopicPartition
from jobs.formats.decoder_spec import ResolvedSchema
from jobs.spec.mask import NO_MASK, Mask
from jobs.spec.targets import TargetSpec

MOST_CAUSES = 50
"""Of one partition in one slice; records whose keys have no end must not make a tally without end."""


MOST_UNKNOWN = 100
"""Likewise of keys that the schema does not name."""


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """What a task writes for one target.

    Attributes:
        target: Which one it is.
        metadata: The table's metadata as JSON, without its history.
        skip: Partitions that the target has entirely.
        floors: Of partitions it has in part, the first offset it needs.
        io_properties: For the table's files: a catalog may hand out credentials per table. Never logged, and left out
            of the repr.
    """

    target: TargetSpec
    metadata: str
    skip: frozenset[TopicPartition] = frozenset()
    floors: Mapping[TopicPartition, int] = field(default_factory=dict)
    io_properties: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """All that a task needs to know; travels to it pickled.

    Attributes:
        reader: Options of the consumer that reads the slice. Never logged, and left out of the repr.
        patience: Seconds without a record after which Kafka counts as away.
        targets: The coordinator first.
        resolved: What values become, and how.
        first_seen: When the batch was planned, UTC.
        mask: What of a failed record its letter does not keep.
    """

    stream: str
    config: str
    batch: int
    epoch: int
    first_seen: datetime
    resolved: ResolvedSchema
    kafka_columns: bool
    targets: tuple[TargetPlan, ...]
    file_prefix: str
    reader: Mapping[str, Any] = field(default_factory=dict, repr=False)
    patience: float = 20.0
    mask: Mask = NO_MASK


class Example(msgspec.Struct, frozen=True):
    """A failed record, as an example of its kind: where it is and why it failed, never what stands in it.

    Attributes:
        field: Path of the field at fault, if it is one.
        needs: What was needed, and what kind of thing was found, if it can be told without the value.
        detail: Where frazil itself failed, if it did.
    """

    topic: str
    partition: int
    offset: int
    stage: str
    error_class: str
    field: str | None = None
    detail: str | None = None
    needs: str | None = None


class UnknownExample(msgspec.Struct, frozen=True):
    """A record with a key that the schema does not name.

    Attributes:
        within: JSON path of the struct that has the key.
        column: What would take it, as a guess; None if its name cannot be declared.
    """

    offset: int
    within: str
    column: str | None


class Cause(msgspec.Struct):
    """Failed records of one kind: the same class, field and need, so the same thing to correct.

    Attributes:
        example: One of them.
    """

    example: Example
    count: int = 0


class Tally(msgspec.Struct):
    """What a task counted in one (topic, partition), of the records that the coordinator had not yet read.

    Attributes:
        rows: Rows written, by target; one may have lacked other records than the coordinator.
        after: The offset behind the last record of the slice, whoever lacked it; None without any.
        leader_epoch: Of that record, the epoch of the leader that took it; None where the log does not say.
        appended_ms: Of that record, when the broker took it, milliseconds since 1970; None where it says the producer's
            time.
        reasons: Failed records by class.
        examples: One failed record of each class.
        causes: Failed records by class, field and need; of the first `MOST_CAUSES` that were met.
        unexpected: One that made frazil itself fail; the stream goes on past it with tolerance `all` only.
        unknown_fields: Records by the path of a key that the schema does not name; `MOST_UNKNOWN` of them at most.
        unknown_examples: One record for each, as far as one was found.
    """

    topic: str
    partition: int
    read: int = 0
    landed: int = 0
    dead: int = 0
    tombstones: int = 0
    rows: dict[str, int] = {}
    after: int | None = None
    leader_epoch: int | None = None
    appended_ms: int | None = None
    reasons: dict[str, int] = {}
    examples: dict[str, Example] = {}
    causes: dict[str, Cause] = {}
    unexpected: Example | None = None
    unknown_fields: dict[str, int] = {}
    unknown_examples: dict[str, UnknownExample] = {}


def task_metadata(metadata: TableMetadata) -> str:
    """A table's metadata as a task needs it: schemas, partition specs and properties, without its history."""
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
