"""Tables of a stream as they are looked at: loaded once, one of them on a branch, with what is recorded of them.

Nothing is written: a reader needs no right to write, and meets no other writer.
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
    """What the ledger says of a stream's tables, and what their stamps say that it does not have yet.

    Attributes:
        stream: Its id.
        ledger: None if nothing was ever filled in, or if a branch is looked at that it does not know.
        tables: The stream's, with their stamps.
        known: Whether these are the branches that the ledger knows.
    """

    stream: str
    ledger: Table | None
    tables: Sequence[tuple[StampedTable, TableMetadata]]
    known: bool = True

    def of_offset(self, partition: TopicPartition, offset: int) -> list[LedgerRow]:
        """All rows but those of batches that do not hold the offset; see `offset_history`."""
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
        """The rows of one commit."""
        return self._rows(EqualTo("snapshot_id", snapshot_id), lambda row: row.snapshot_id == snapshot_id)

    def first_offset(self, uuid: str, partition: TopicPartition) -> int | None:
        """The least offset that any row of a table has of a partition; None if it was never read."""
        first = [row.range.start for row in self._newer() if row.partition == partition and row.table_uuid == uuid]
        if self.ledger is not None:
            its = And(
                EqualTo("stream", self.stream),
                EqualTo("table_uuid", uuid),
                EqualTo("topic", partition.topic),
                EqualTo("partition", partition.partition),
                # Answers that give a range back name it from 0, where a topic may begin later.
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
        """The rows that the ledger lacks; made anew for each question, for they may be many."""
        known: dict[str, FillCheckpoint] = {}
        if self.ledger is not None:
            known = filled_through(self.ledger, self.stream, self.tables)
        if self.known:
            for rows in rows_to_fill(self.tables, self.stream, known):
                yield from rows
            return
        # The table's properties speak of the branch that the stream writes, so the snapshots alone count.
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
    """What is recorded of a stream.

    Args:
        tables: Its tables, loaded before: what the ledger gets meanwhile is then in neither twice.
        known: Whether these are the branches that the ledger knows; of others the stamps alone tell.
    """
    stamped = [(StampedTable(target, str(metadata.table_uuid)), metadata) for target, metadata in tables.items()]
    return RecordedRows(stream, find_ledger(catalog, settings) if known else None, stamped, known)


@dataclass(frozen=True, slots=True)
class LookedAt:
    """One table.

    Attributes:
        table: As it is, whatever the branch.
        metadata: With the branch that is looked at in the place of main.
        branch: That one.
    """

    target: TargetSpec
    table: Table
    metadata: TableMetadata
    branch: str

    @property
    def written(self) -> bool:
        """Whether the stream writes the branch that is looked at."""
        return self.branch == self.target.branch

    @property
    def uuid(self) -> str:
        """Iceberg's identity of it."""
        return str(self.metadata.table_uuid)

    def conditions(self, stream: str, topic: str, partition: int, offset: int) -> list[Condition]:
        """What the row of a record fulfils; nothing if rows do not say which records they are of."""
        names = self.target.coordinates
        if not set(names) <= set(self.table.schema().column_names):
            return []
        stream_too: list[Condition] = [("stream", stream)] if self.target.role == "dead_letters" else []
        return [*stream_too, *zip(names, (topic, partition, offset), strict=True)]


@dataclass(frozen=True, slots=True)
class StreamTables:
    """A stream's tables, and what is recorded of them.

    Attributes:
        sink: Its own table, which is stamped in every batch.
        dead: Its dead letters; None if the table is not there.
        newest: Its newest stamp on its own table, as the branch that is looked at has it.
        others: The other tables of its rows: those of a route, and those of a route that it had before.
        asked: The name of the table that is asked about.
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
        """Where the stream stands, by its newest stamp."""
        return self.newest.position if self.newest else {}

    @property
    def of_rows(self) -> tuple[LookedAt, ...]:
        """Every table that has rows of it, its own first."""
        return self.sink, *self.others

    @property
    def every(self) -> tuple[LookedAt, ...]:
        """All of its tables that are there."""
        return (*self.of_rows, *([self.dead] if self.dead else []))

    @property
    def table(self) -> LookedAt:
        """The table that is asked about.

        Raises:
            FrazilError: It is not there yet.
        """
        found = next((each for each in self.every if each.target.name == self.asked), None)
        if found is None:
            raise FrazilError(f"table {self.asked} is not there yet.", fix=f"frazil run {self.spec.stream}")
        return found

    def with_snapshot(self, snapshot_id: int) -> LookedAt | None:
        """The table that has a snapshot; the one that is asked about, if it does."""
        asked = [each for each in self.every if each.target.name == self.asked]
        every = (*asked, *self.every)
        return next((each for each in every if each.metadata.snapshot_by_id(snapshot_id) is not None), None)

    def asking(self, name: str) -> StreamTables:
        """The same, with another table that is asked about."""
        return replace(self, asked=name)

    def published(self, sequence: int) -> Published | None:
        """Whether main has what the stream committed to its branch; None on main, and of a stream with a route."""
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
        asked: The name of the table that is asked about; None: the stream's own.
        branch: Of that table; None, and for the others: that which the stream writes.

    Raises:
        FrazilError: The stream's own table, or the branch, is not there, or the catalog does not answer.
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
            # What the file names is made with the first row that comes; until then it has what the stream wrote before.
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
            f"table {spec.table.name} of stream {spec.stream} is not there yet.", fix=f"frazil run {spec.stream}"
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
        # The ledger knows the branches that streams write.
        known=all(each.written for each in every.values()),
    )
    past = history(sink.metadata, spec.stream)
    newest = past.newest if sink.written else past.stamped_ancestor
    dead = loaded.get(spec.dead_letter_table)
    return StreamTables(spec, settings, sink, dead, recorded, newest, asked, tuple(others))


def _former_tables(spec: StreamSpec, catalog: Catalog, sink: LookedAt, known: set[str]) -> Iterator[LookedAt]:
    """The tables that a route sent rows to once, and whose rows stay there; as the branch has them that it wrote.

    Args:
        known: Uuids of the stream's tables as its file has them.
    """
    coordinates, names = sink.target.coordinates, {each.name for each in spec.targets}
    for name, uuid in TargetDirectory.of(sink.table.metadata.properties, spec.stream).entries:
        table = find_table(catalog, name) if name not in names and uuid not in known else None
        if table is None or str(table.metadata.table_uuid) != uuid:
            continue
        # Tables of dead letters, which are told of as well, have other ones.
        if set(coordinates) <= set(table.schema().column_names):
            known = known | {uuid}
            branch = written_branch(table.metadata, spec.stream) or MAIN_BRANCH
            target = TargetSpec(name, "rows", coordinates=coordinates, branch=branch)
            yield LookedAt(target, table, seen_on(table.metadata, branch), branch)
