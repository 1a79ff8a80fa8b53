"""Open stream: a stream that this process may commit to, with its targets and its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.records.formats.interface.decoder_spec import ResolvedSchema
from jobs.records.formats.interface.writer_schema import SchemaId
from jobs.records.formats.record_columns import RecordColumns
from jobs.streaming.driver.context.column_refusals import ColumnRefusals
from jobs.streaming.driver.context.commit_pool import most_commits
from jobs.streaming.driver.context.writer_schemas import WriterSchemas
from jobs.streaming.pipeline.row_steps import asks_batch_time
from jobs.tables.commit.protocol.parked_target import ParkedTarget, held_by_letters, parked_target
from jobs.tables.commit.protocol.pending_record import PendingTarget
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.session import CommitSession
from jobs.tables.commit.protocol.target import MetadataCheck, Target, nothing_to_refuse
from jobs.tables.commit.recovery.rollback import refuse_restored, rolled_back_aside
from jobs.tables.commit.recovery.starting_point import StartingPoint
from jobs.tables.commit.stamp.errors import refuse_recreated
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import Ranges, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.write.table_remaking import is_as_made


@dataclass(slots=True, kw_only=True)
class OpenStream(CommitSession):
    """A stream that this process may commit to.

    Attributes:
        log: Its topics as last queried.
        former: Newest stamps of tables that the stream wrote under an earlier configuration.
        recovered: Number of batches that were committed from pending records of earlier drivers.
        positions: Position of each target; updated by every commit.
        refused: Refused fields and changes, by table.
        unsurveyed: Tables that get no further survey, as the last one led to nothing.
        refused_values: Values that name a table of another owner, with what they would have to be.
        unmade: Tables of topics that cannot be created yet, with the reason; tried again for each batch.
        schemas: Writer schemas of its records, if a registry has them.
        complete_ms: Time through which the stream was known to be complete when the present batch began; milliseconds
            since 1970.
        fits_parked: Whether tasks also fit records to suspended tables, by their known columns.
        batch_ms: Time of the present batch, which expressions may use; milliseconds since 1970.
    """

    spec: StreamSpec
    settings: Settings
    folder: StreamFolder
    log: LogState
    former: dict[str, Stamp | None] = field(default_factory=dict)
    recovered: int = 0
    positions: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    begin: StartingPoint = field(default_factory=lambda: StartingPoint({}))
    refused: dict[str, ColumnRefusals] = field(default_factory=dict)
    unsurveyed: set[str] = field(default_factory=set)
    refused_values: dict[str, str] = field(default_factory=dict)
    unmade: dict[str, str] = field(default_factory=dict)
    schemas: WriterSchemas | None = None
    complete_ms: int | None = None
    fits_parked: bool = False
    batch_ms: int | None = None

    @property
    def asks_batch_time(self) -> bool:
        """Whether an expression of the stream's file uses the time of the batch."""
        return asks_batch_time(self.spec)

    @property
    def batch_time(self) -> datetime:
        """Time of the present batch, UTC; the current time without one."""
        return datetime.now(UTC) if self.batch_ms is None else datetime.fromtimestamp(self.batch_ms / 1000, UTC)

    def commit(
        self, target: Target, planned: PendingTarget, batch: Ranges, check: MetadataCheck = nothing_to_refuse
    ) -> ProposalOutcome:
        """Commit as a commit session does, and put the coordinator's newest commit on other tables' stamps."""
        newest = self.anchor.newest
        if target is not self.anchor and newest is not None and newest.last_move:
            planned = replace(planned, stamp=replace(planned.stamp, coordinator=(self.anchor.uuid, newest.last_move)))
        return CommitSession.commit(self, target, planned, batch, check)

    def claim_anew(self, newest: Stamp | None) -> Stamp:
        """Claim of a table that was no target for a while: it gets the coordinator's position, whatever its stamp has.

        Its own stamp may be older than a reset of offsets, or than a recreated topic.
        """
        claimed, anchored = self.claim_of(newest), self.anchor.newest
        if anchored is None:
            return claimed
        if newest is not None:
            anchor = self.anchor
            refuse_restored(self.id, {anchor.name: anchored, "": newest}, anchor.name, {anchor.name: anchor.uuid})
        return replace(claimed, start=anchored.start, position=anchored.position, ends={}, rows={})

    def new_target(self, name: str) -> Target:
        """A table that becomes a target as records come; a former target is claimed with the coordinator's position.

        Raises:
            RolledBackError: The table was rolled back since.
        """
        target = Target(self.anchor.catalog, name, self.id, branch=self.spec.branch_of(name))
        past = target.history()
        if past.rolled_back:
            raise rolled_back_aside(self.id, name, past)
        if past.newest is not None or target.has_to_begin:
            target.claim(self.epoch, self.claim_anew, again=True)
        return target

    @property
    def most_commits(self) -> int:
        """Most of its tables that are committed to at the same time."""
        return most_commits(self.anchor.catalog)

    @property
    def rows_table(self) -> Table:
        """The stream's main table, as it was loaded last."""
        return self.targets[self.spec.table.name].table

    def refused_by(self, table: str) -> ColumnRefusals:
        """Fields and changes that a table refuses."""
        return self.refused.setdefault(table, ColumnRefusals())

    def resolved_for(
        self, table: TableMetadata, unknown: frozenset[SchemaId] = frozenset(), name: str | None = None
    ) -> ResolvedSchema:
        """Columns and decoder for values, by a table's present or former metadata.

        Args:
            unknown: Ids of writer schemas that count as unknown.
            name: Name of the table; None for the main table.
        """
        name = name or self.spec.table.name
        found = self.spec.for_table(name).resolved_for(table.schema(), table.properties, evolving=True)
        found = self.refused_by(name).known_to(found)
        return found.with_schemas(self.schemas.lookup(unknown)) if self.schemas else found

    def record_columns_for(
        self, table: TableMetadata, unknown: frozenset[SchemaId] = frozenset(), name: str | None = None
    ) -> RecordColumns:
        """Columns of the key, the headers and Kafka's coordinates, by a table as for values."""
        spec = self.spec.for_table(name or self.spec.table.name)
        columns = spec.record_columns_for(table.schema(), table.properties)
        return columns.with_schemas(self.schemas.lookup(unknown)) if self.schemas else columns

    @property
    def anchor(self) -> Target:
        """The coordinator, which is stamped first in every batch."""
        return self.targets[self.spec.coordinator]

    def refuse_taken_over(self) -> None:
        """Raise if a later driver has the lease, or has claimed the coordinator."""
        self.lease.verify()
        self.anchor.refuse_later_claim(self.epoch)

    @property
    def watermark_ms(self) -> int | None:
        """Event time before which no record is expected, by the newest stamp; milliseconds since 1970."""
        newest = self.anchor.newest
        return newest.event_time.watermark_ms if newest and newest.event_time else None

    @property
    def dead_letters(self) -> Target:
        """The dead-letter table."""
        return self.targets[self.spec.dead_letter_table]


def known_targets(
    spec: StreamSpec, catalog: Catalog, remembered: Mapping[str, str], *, parking: bool = False
) -> dict[str, Target]:
    """The stream's tables, the coordinator first, loaded and checked to be those that it wrote before.

    Args:
        spec: The stream, whose tables exist unless dead letters replace them.
        remembered: Uuids by name, from the lease.
        parking: Whether tables that are to be suspended get placeholders, too.

    Raises:
        StreamStopped: A table was rolled back, dropped or recreated; the message names the answer.
    """
    anchor = Target(catalog, spec.coordinator, spec.stream, branch=spec.branch_of(spec.coordinator))
    newest = anchor.read()
    before = {**remembered, **(newest.targets if newest else {})}
    held = held_by_letters(spec, catalog, before, newest, parking=parking)
    targets: dict[str, Target] = {anchor.name: anchor}
    for name in spec.target_names:
        if name in held:
            targets[name] = parked_target(spec, catalog, name, held[name])
        elif name != anchor.name:
            targets[name] = Target(catalog, name, spec.stream, branch=spec.branch_of(name))
            targets[name].read()
    read = {name: target for name, target in targets.items() if not isinstance(target, ParkedTarget)}
    stamps, uuids = ({name: getattr(each, what) for name, each in read.items()} for what in ("newest", "uuid"))
    refuse_restored(spec.stream, stamps, anchor.name, uuids)
    now = {name: target.identity for name, target in targets.items()}
    others = [name for name, uuid in now.items() if before.get(name, uuid) != uuid and name not in held]
    empty = [name for name in others if is_as_made(targets[name].table.metadata, spec.stream)]
    refuse_recreated(spec.stream, before, now, empty)
    return targets
