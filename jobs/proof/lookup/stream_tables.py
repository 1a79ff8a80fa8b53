"""Tables of a stream for lookups: loaded once, one of them on a chosen branch, with their recorded stamps.

Nothing is written, so a reader needs no right to write, and collides with no writer.
"""

# PyIceberg's conditions take a column and a value, which a type checker does not see.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThan, LessThanOrEqual, NotEqualTo, Or
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import find_table
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import TargetSpec
from jobs.proof.audit.ledger_fill import filled_through, rows_to_fill
from jobs.proof.lookup.reading import (
    Condition,
    Published,
    instant,
    published,
)
from jobs.tables.commit.history.branch import branches, seen_on
from jobs.tables.commit.history.stamp_history import history, stamped_snapshots, written_branch
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_directory import TargetDirectory
from jobs.tables.ledger.ledger_checkpoints import FillCheckpoint
from jobs.tables.ledger.ledger_row import LedgerRow
from jobs.tables.ledger.ledger_table import find_ledger, ledger_from_arrow
from jobs.tables.ledger.stamp_conversion import StampedSnapshot, StampedTable, ledger_rows


@dataclass(frozen=True, slots=True)
class RecordedRows:
    """Ledger rows of a stream's tables, and rows of stamps that the ledger lacks.

    Attributes:
        stream: Its id.
        ledger: The ledger; None if nothing was ever filled in, or if it does not cover the chosen branch.
        tables: Tables of the stream, with their stamps.
        known: Whether the ledger covers these branches.
    """

    stream: str
    ledger: Table | None
    tables: Sequence[tuple[StampedTable, TableMetadata]]
    known: bool = True

    def of_offset(self, partition: TopicPartition, offset: int) -> list[LedgerRow]:
        """All rows except batches without the offset; see `offset_history`."""
        topic, number = partition
        holds = And(
            EqualTo("topic", topic),
            EqualTo("partition", number),
            LessThanOrEqual("start_offset", offset),
            GreaterThan("end_offset", offset),
        )

        def wanted(row: LedgerRow) -> bool:
            return row.kind != "batch" or (row.partition == partition and row.range.start <= offset < row.range.end)

        return self._rows(Or(NotEqualTo("kind", "batch"), holds), wanted)

    def of_snapshot(self, snapshot_id: int) -> list[LedgerRow]:
        """Rows of one commit."""
        return self._rows(EqualTo("snapshot_id", snapshot_id), lambda row: row.snapshot_id == snapshot_id)

    def first_offset(self, uuid: str, partition: TopicPartition) -> int | None:
        """Least offset of a partition in a table's rows; None if it was never read."""
        first = [row.range.start for row in self._newer() if row.partition == partition and row.table_uuid == uuid]
        if self.ledger is not None:
            its = And(
                EqualTo("stream", self.stream),
                EqualTo("table_uuid", uuid),
                EqualTo("topic", partition.topic),
                EqualTo("partition", partition.partition),
                # Answers that give a range back name it from 0, while a topic may begin later.
                Or(EqualTo("kind", "batch"), EqualTo("kind", "passed")),
            )
            found = self.ledger.scan(row_filter=its, selected_fields=("start_offset",)).to_arrow()
            least = pc.min(found.column("start_offset")).as_py()  # pyright: ignore[reportAttributeAccessIssue]
            first += [] if least is None else [least]
        return min(first, default=None)

    def _rows(self, condition: BooleanExpression, wanted: Callable[[LedgerRow], bool]) -> list[LedgerRow]:
        rows = [row for row in self._newer() if wanted(row)]
        if self.ledger is not None:
            scan = self.ledger.scan(row_filter=And(EqualTo("stream", self.stream), condition))
            rows += ledger_from_arrow(scan.to_arrow())
        return sorted(rows, key=lambda row: row.place)

    def _newer(self) -> Iterator[LedgerRow]:
        """Rows that the ledger lacks; computed for each query, as they may be many."""
        known: dict[str, FillCheckpoint] = {}
        if self.ledger is not None:
            known = filled_through(self.ledger, self.stream, self.tables)
        if self.known:
            for rows in rows_to_fill(self.tables, self.stream, known):
                yield from rows
            return
        # The table's properties are about the branch that the stream writes, so only the snapshots count.
        for table, metadata in self.tables:
            for snapshot, stamp in stamped_snapshots(metadata, self.stream):
                at, number = instant(snapshot.timestamp_ms), snapshot.sequence_number or 0
                stamped = StampedSnapshot(stamp, snapshot.snapshot_id, number, at)
                rows, known[table.uuid] = ledger_rows(stamped, known.get(table.uuid), table)
                yield from rows


def recorded_rows(
    stream: str,
    settings: Settings,
    catalog: Catalog,
    tables: Mapping[TargetSpec, TableMetadata],
    *,
    known: bool = True,
) -> RecordedRows:
    """Recorded rows of a stream.

    Args:
        tables: Its tables, loaded before, so that rows which the ledger gets meanwhile are in neither twice.
        known: Whether the ledger covers these branches; for others only the stamps count.
    """
    stamped = [(StampedTable(target, str(metadata.table_uuid)), metadata) for target, metadata in tables.items()]
    return RecordedRows(stream, find_ledger(catalog, settings) if known else None, stamped, known)


@dataclass(frozen=True, slots=True)
class LookedAt:
    """One table of a lookup.

    Attributes:
        table: The whole table, whatever the branch.
        metadata: Metadata seen from the chosen branch.
        branch: The chosen branch.
    """

    target: TargetSpec
    table: Table
    metadata: TableMetadata
    branch: str

    @property
    def written(self) -> bool:
        """Whether the stream writes the chosen branch."""
        return self.branch == self.target.branch

    @property
    def uuid(self) -> str:
        """Uuid of the table."""
        return str(self.metadata.table_uuid)

    def conditions(self, stream: str, topic: str, partition: int, offset: int) -> list[Condition]:
        """Conditions that match a record's row; empty if rows lack coordinates."""
        names = self.target.coordinates
        if not set(names) <= set(self.table.schema().column_names):
            return []
        stream_too: list[Condition] = [("stream", stream)] if self.target.role == "dead_letters" else []
        return [*stream_too, *zip(names, (topic, partition, offset), strict=True)]


@dataclass(frozen=True, slots=True)
class StreamTables:
    """A stream's tables with their recorded rows.

    Attributes:
        sink: Main table, which is stamped in every batch.
        dead: Dead-letter table; None if it does not exist.
        newest: Newest stamp on the main table, seen from the chosen branch.
        others: Other tables of its rows: those of its present and former routes.
        asked: Name of the requested table.
    """

    spec: StreamSpec
    settings: Settings
    sink: LookedAt
    dead: LookedAt | None
    recorded: RecordedRows
    newest: Stamp | None
    asked: str
    others: tuple[LookedAt, ...] = ()

    @property
    def positions(self) -> Positions:
        """Positions of the stream, by its newest stamp."""
        return self.newest.position if self.newest else {}

    @property
    def of_rows(self) -> tuple[LookedAt, ...]:
        """Every table with its rows, the main table first."""
        return self.sink, *self.others

    @property
    def every(self) -> tuple[LookedAt, ...]:
        """All of its existing tables."""
        return (*self.of_rows, *([self.dead] if self.dead else []))

    @property
    def table(self) -> LookedAt:
        """The requested table.

        Raises:
            FrazilError: It does not exist yet.
        """
        found = next((each for each in self.every if each.target.name == self.asked), None)
        if found is None:
            raise FrazilError(f"table {self.asked} does not exist yet.", fix=f"frazil run {self.spec.stream}")
        return found

    def with_snapshot(self, snapshot_id: int) -> LookedAt | None:
        """The table with a snapshot; the requested one is preferred."""
        asked = [each for each in self.every if each.target.name == self.asked]
        every = (*asked, *self.every)
        return next((each for each in every if each.metadata.snapshot_by_id(snapshot_id) is not None), None)

    def asking(self, name: str) -> StreamTables:
        """The same tables with another requested one."""
        return replace(self, asked=name)

    def published(self, sequence: int) -> Published | None:
        """Whether main has a commit of the stream's branch; None on main, and for a stream with a route."""
        if self.sink.branch == MAIN_BRANCH or self.spec.route is not None:
            return None
        return published(self.sink.table.metadata, self.spec.stream, self.sink.branch, sequence)

    @property
    def store(self) -> StateStore:
        """The stream's part of the state store."""
        return stream_folder(self.settings, self.spec.stream).store


def load_stream_tables(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    *,
    asked: str | None = None,
    branch: str | None = None,
) -> StreamTables:
    """Load the tables of a stream.

    Args:
        asked: Name of the requested table; None: the main table.
        branch: Branch of that table; None, and for other tables: the one that the stream writes.

    Raises:
        FrazilError: The main table, or the branch, does not exist, or the catalog does not answer.
    """
    asked = asked or spec.table.name
    loaded: dict[str, LookedAt] = {}
    for target in spec.targets:
        table = find_table(catalog, target.name)
        if table is None:
            continue
        on = branch if branch is not None and target.name == asked else target.branch
        has = sorted(branches(table.metadata))
        if has and on not in has and target.name not in (asked, spec.table.name):
            # The file's branch is created with the first row; until then the formerly written branch counts.
            on = written_branch(table.metadata, spec.stream) or MAIN_BRANCH
        if has and on not in has:
            raise FrazilError(
                f"table {target.name} has no branch {on}" + (" yet." if on == target.branch else "."),
                fix=f"frazil run {spec.stream}" if on == target.branch else f"--branch {' or '.join(has)}",
            )
        loaded[target.name] = LookedAt(target, table, seen_on(table.metadata, on), on)
    sink = loaded.get(spec.table.name)
    if sink is None:
        raise FrazilError(
            f"table {spec.table.name} of stream {spec.stream} does not exist yet.", fix=f"frazil run {spec.stream}"
        )
    others = [each for each in loaded.values() if each.target.role == "rows" and each is not sink]
    others += _former_tables(spec, catalog, sink, {each.uuid for each in loaded.values()})
    every = {each.uuid: each for each in (*loaded.values(), *others)}
    if asked not in spec.target_names and asked not in {each.target.name for each in others}:
        raise FrazilError(
            f"stream {spec.stream} has no table {asked}: no value of a record has named it.",
            fix=f"frazil audit {spec.stream}, which lists its tables",
        )
    recorded = recorded_rows(
        spec.stream,
        settings,
        catalog,
        {each.target: each.metadata for each in every.values()},
        # The ledger covers the branches that streams write.
        known=all(each.written for each in every.values()),
    )
    past = history(sink.metadata, spec.stream)
    newest = past.newest if sink.written else past.stamped_ancestor
    dead = loaded.get(spec.dead_letter_table)
    return StreamTables(spec, settings, sink, dead, recorded, newest, asked, tuple(others))


def _former_tables(spec: StreamSpec, catalog: Catalog, sink: LookedAt, known: set[str]) -> Iterator[LookedAt]:
    """Tables that got rows from a former route and still have them, seen from their written branch.

    Args:
        known: Uuids of the stream's tables by its file.
    """
    coordinates, names = sink.target.coordinates, {each.name for each in spec.targets}
    for name, uuid in TargetDirectory.of(sink.table.metadata.properties, spec.stream).entries:
        table = find_table(catalog, name) if name not in names and uuid not in known else None
        if table is None or str(table.metadata.table_uuid) != uuid:
            continue
        # Dead-letter tables, which the coordinator also lists, have other columns.
        if set(coordinates) <= set(table.schema().column_names):
            known = known | {uuid}
            branch = written_branch(table.metadata, spec.stream) or MAIN_BRANCH
            target = TargetSpec(name, "rows", coordinates=coordinates, branch=branch)
            yield LookedAt(target, table, seen_on(table.metadata, branch), branch)
