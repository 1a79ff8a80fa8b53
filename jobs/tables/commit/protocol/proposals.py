"""Proposals of what to commit to a target in the state of its table: pure functions, repeated if the head moved."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.records.schema.compatibility import still_fits
from jobs.tables.commit.schema.operations import Append, Operation
from jobs.tables.commit.stamp.errors import table_recreated
from jobs.tables.commit.stamp.offsets import Positions, Ranges, pointwise_max
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import need
from jobs.tables.write.partition_limits import in_manifests

T = TypeVar("T")


class ProposalOutcome(enum.Enum):
    """What became of a proposed commit."""

    LANDED = "landed"
    RUN_AGAIN = "run again"


@dataclass(frozen=True, slots=True)
class Seen:
    """State of a table when the tasks wrote the proposed files.

    Attributes:
        mapping: Name mapping, as the property's text; None for a pending record, whose stamps have the names.
        decoded: Digest of the decoded columns that the table keeps for the stream; None for a pending record.
    """

    uuid: str
    schema: Schema
    schema_id: int
    spec_id: int
    mapping: str | None = field(default=None, compare=False)
    decoded: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Proposal(Generic[T]):
    """What to commit on a table exactly as it was read.

    Attributes:
        answer: Result for the caller once the commit has landed.
        operation: None if there is nothing to commit.
        properties: Table properties, set in the same commit.
    """

    answer: T
    operation: Operation | None = None
    stamp: Stamp | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


# Arguments: the stream's newest stamp on the table, and the table's metadata.
Propose = Callable[["Stamp | None", TableMetadata], Proposal[T]]


def claim(make: Callable[[Stamp | None], Stamp]) -> Propose[Stamp]:
    """Propose an empty snapshot with a stamp made from the newest one."""

    def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[Stamp]:
        stamp = make(newest)
        return Proposal(stamp, Append(), stamp)

    return propose


def restamp(stamp: Stamp) -> Propose[None]:
    """Propose an empty snapshot with this stamp, whatever was committed before it."""
    return lambda newest, metadata: Proposal(None, Append(), stamp)


def batch(
    table: str, stamp: Stamp, files: Sequence[DataFile], *, seen: Seen, ranges: Ranges, position: Positions
) -> Propose[ProposalOutcome]:
    """Propose the files of a batch, as long as they fit the table and are what it still needs.

    Args:
        stamp: The batch's stamp; its position is raised to what the target already has.
        files: The data files that the tasks wrote for this target.
        position: Where the target stood when the tasks were planned.

    Returns:
        The answer LANDED with nothing to commit if an earlier attempt of the batch has landed; RUN_AGAIN if the files
        no longer fit. Raises TargetRecreatedError if the table was recreated.
    """
    wanted = need(ranges, position)

    def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[ProposalOutcome]:
        at = newest.position if newest else {}
        again = need(ranges, pointwise_max([at, position]))
        if again.nothing:
            return Proposal(ProposalOutcome.LANDED)
        if not wanted.same_part(again):
            return Proposal(ProposalOutcome.RUN_AGAIN)
        if str(metadata.table_uuid) != seen.uuid:
            raise table_recreated(stamp.stream, table, seen.uuid, str(metadata.table_uuid))
        if not _fits(seen, files, metadata):
            return Proposal(ProposalOutcome.RUN_AGAIN)
        carried = newest.totals if newest else Counts()
        full = replace(
            stamp,
            position=_known_to(pointwise_max([at, stamp.position]), stamp),
            totals=carried + stamp.counts,
            rows=_still_named(newest, stamp),
        ).as_known(newest)
        return Proposal(ProposalOutcome.LANDED, Append(files), full)

    return propose


def _fits(seen: Seen, files: Sequence[DataFile], metadata: TableMetadata) -> bool:
    if not files:
        return True
    if metadata.default_spec_id != seen.spec_id:
        return False
    if not in_manifests((file.partition for file in files), metadata.spec(), metadata.schema()):
        # Comes from a pending record of a version that did not refuse such values when it wrote the files.
        return False
    return metadata.current_schema_id == seen.schema_id or still_fits(seen.schema, metadata.schema())


def _still_named(newest: Stamp | None, stamp: Stamp) -> Mapping[str, int]:
    """Rows of a batch per target, with those of the previous batch while some target may still lack it.

    If a target is ahead of the batch, it has committed a later range that others may lack. That is why the batch runs.
    """
    if newest and any(newest.position.get(partition, 0) > end for partition, end in stamp.position.items()):
        return {**newest.rows, **stamp.rows}
    return stamp.rows


def _known_to(position: Positions, stamp: Stamp) -> Positions:
    """Positions of the partitions that the stream still reads: retired topics leave the stamps."""
    return {partition: offset for partition, offset in position.items() if partition in stamp.start}
