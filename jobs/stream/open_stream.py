"""Open stream: one that this process may commit to, with its targets and its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.errors import refuse_recreated
from jobs.commit.log_state import LogState
from jobs.commit.offsets import TopicPartition
from jobs.commit.parked_target import held_by_letters, parked_target
from jobs.commit.session import CommitSession
from jobs.commit.stamps import Stamp
from jobs.commit.starting_point import StartingPoint
from jobs.commit.target import Target
from jobs.formats.decoder_spec import ResolvedSchema
from jobs.formats.record_columns import RecordColumns
from jobs.formats.writer_schema import SchemaId
from jobs.pipeline.row_steps import asks_batch_time
from jobs.schema.needs import Change, Path
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.state.stream_folder import StreamFolder
from jobs.stream.commit_pool import most_commits
from jobs.stream.writer_schemas import WriterSchemas


@dataclass(slots=True, kw_only=True)
class OpenStream(CommitSession):
    """A stream that this process may commit to.

    Attributes:
        folder: What it keeps outside its tables.
        log: Its topics as they were looked at last.
        former: The newest stamps of tables that the stream wrote under an earlier configuration.
        recovered: How many batches of earlier drivers were committed from their pending records.
        positions: Where each target stands; follows every commit.
        begin: Where reading begins.
        refused: Fields that the table does not take, by their JSON path, with the reason.
        refused_changes: Changes of its columns that the table refuses, where decoders have to know: records that need
            them are not left to wait, but have their values land as text.
        refused_values: Values that name no table, as it is another's, with what they would have to be.
        schemas: The writer schemas of its records, if a registry keeps them.
        complete_ms: Every record with an older timestamp was in when the batch at hand began, as far as known;
            milliseconds since 1970.
        batch_ms: The time of the batch at hand, which its expressions may ask for; milliseconds since 1970.
    """

    spec: StreamSpec
    settings: Settings
    folder: StreamFolder
    log: LogState
    former: dict[str, Stamp | None] = field(default_factory=dict)
    recovered: int = 0
    positions: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    begin: StartingPoint = field(default_factory=lambda: StartingPoint({}))
    refused: dict[str, str] = field(default_factory=dict)
    refused_changes: set[tuple[Change, Path]] = field(default_factory=set)
    refused_values: dict[str, str] = field(default_factory=dict)
    schemas: WriterSchemas | None = None
    complete_ms: int | None = None
    batch_ms: int | None = None

    @property
    def asks_batch_time(self) -> bool:
        """Whether an expression of its file asks for the time of the batch."""
        return asks_batch_time(self.spec)

    @property
    def batch_time(self) -> datetime:
        """The time of the batch at hand, UTC; without one, now."""
        return datetime.now(UTC) if self.batch_ms is None else datetime.fromtimestamp(self.batch_ms / 1000, UTC)

    @property
    def most_commits(self) -> int:
        """How many of its tables are committed to together."""
        return most_commits(self.anchor.catalog)

    @property
    def rows_table(self) -> Table:
        """The stream's table, as it was loaded last."""
        return self.targets[self.spec.table.name].table

    def resolved_for(self, table: TableMetadata, unknown: frozenset[SchemaId] = frozenset()) -> ResolvedSchema:
        """The rows that values become by the stream's table as it is, or was, and their decoder.

        Args:
            table: Its metadata.
            unknown: Ids of writer schemas that count as unknown.
        """
        found = self.spec.resolved_for(table.schema(), table.properties, evolving=True)
        if self.refused:
            refused = dict(found.decoder.options.get("refused", ())) | self.refused
            found = found.with_options({"refused": tuple(refused.items())})
        if self.refused_changes:
            found = found.with_options({"refused_changes": tuple(sorted(self.refused_changes))})
        return found.with_schemas(self.schemas.lookup(unknown)) if self.schemas else found

    def record_columns_for(self, table: TableMetadata, unknown: frozenset[SchemaId] = frozenset()) -> RecordColumns:
        """The columns that rows have of the key, the headers and Kafka's own, by the stream's table as for values."""
        columns = self.spec.record_columns_for(table.schema(), table.properties)
        return columns.with_schemas(self.schemas.lookup(unknown)) if self.schemas else columns

    @property
    def anchor(self) -> Target:
        """The coordinator: stamped in every batch, before the others."""
        return self.targets[self.spec.coordinator]

    @property
    def watermark_ms(self) -> int | None:
        """Before which event time no record is awaited any more, by the newest stamp; milliseconds since 1970."""
        newest = self.anchor.newest
        return newest.event_time.watermark_ms if newest and newest.event_time else None

    @property
    def dead_letters(self) -> Target:
        """The table of the records that failed."""
        return self.targets[self.spec.dead_letter_table]


def known_targets(
    spec: StreamSpec, catalog: Catalog, remembered: Mapping[str, str], *, parking: bool = False
) -> dict[str, Target]:
    """The stream's tables, the coordinator first, read and seen to be the ones that it wrote before.

    Args:
        spec: The stream, whose tables are there, unless letters hold their places.
        catalog: Where they are.
        remembered: Uuids by name, from the lease.
        parking: Whether letters hold the places of tables, too, that are to be parked.

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
    refuse_recreated(spec.stream, before, {name: target.identity for name, target in targets.items()})
    return targets
