"""A small world in memory for the commit protocol: a Kafka log, some tables, and what outlives the drivers.

Of the protocol only the outermost calls are replaced: Kafka, the catalog, the append and Spark's tasks. The drivers,
which run the project's code, are in `protocol_driver`.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import product, starmap
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField, StringType

from jobs.clients.kafka.metadata import LogEnds
from jobs.config.stream.error_handling import Errors
from jobs.config.stream.source import Source
from jobs.config.values.targets import TargetSpec
from jobs.records.formats.interface.writer_schema import SchemaId
from jobs.records.schema.name_matching import NAME_MAPPING
from jobs.streaming.task.needs import UnnamedTable
from jobs.tables.commit.history.stamp_history import history, stamps_along_main
from jobs.tables.commit.schema.operations import Append, Operation
from jobs.tables.commit.stamp.errors import CommitDeniedError, HeadMovedError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, Ranges, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import LastReads
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.ledger.ledger_row import LedgerRow
from jobs.tables.ledger.stamp_conversion import StampedSnapshot, StampedTable, ledger_rows
from tests.helpers.memory_store import InMemoryStore
from tests.helpers.targets import pair, spec_with
from tests.unit.tables.commit.protocol_pauses import pause, write_hangs

if TYPE_CHECKING:
    from tests.unit.tables.commit.protocol_driver import Driver

TABLE, DEAD = "orders.payments", "orders.payments_dead"
TARGETS = (
    *pair(TABLE, DEAD),
    TargetSpec("orders.often", "rows"),
    TargetSpec("orders.seldom", "rows"),
    TargetSpec("orders.copies", "rows"),
    *(TargetSpec(f"orders.copies{number}", "rows") for number in range(7)),
)
PAIR = TARGETS[:2]
TOPIC = "payments"
SCHEMAS = (
    Schema(NestedField(1, "id", StringType()), schema_id=0),
    Schema(NestedField(2, "id", LongType()), schema_id=1),
)
NOW = datetime(2026, 11, 1, tzinfo=UTC)


MAPPING = '[{"field-id": 1, "names": ["other"]}, {"field-id": 2, "names": ["other"]}]'
LATE_ID = SchemaId(9)
"""Of a writer schema that the registry gets at some time."""


class Way(NamedTuple):
    """By what records are decided on.

    Attributes:
        schema: Of the stream's table.
        named: Whether the table's name mapping has further names for its columns.
        known: Whether the registry knows the late id.
    """

    config: str
    schema: int = 0
    named: bool = False
    known: bool = False


WAYS = tuple(starmap(Way, product(("one", "two"), range(len(SCHEMAS)), (False, True), (False, True))))


def destinations(partition: TopicPartition, offset: int, way: Way, among: Sequence[TargetSpec] = PAIR) -> set[str]:
    """The targets that a record becomes a row of, see `destinations_of`."""
    return set(destinations_of(partition, offset, way, frozenset(target.name for target in among)))


@cache
def destinations_of(partition: TopicPartition, offset: int, way: Way, names: frozenset[str]) -> frozenset[str]:
    """The targets that a record becomes a row of, of those with such names. Worked out once: every check asks anew.

    Some are tombstones and become none; some fail under one configuration and not under the other, some under one
    schema of the stream's table, some without further names of its columns, and some as long as the registry does not
    know the schema that they name. Of the others some go to a table that receives rows often, some to one that does
    seldom, and some to two tables.
    """
    kind = (offset * 7 + partition.partition * 3) % 10
    if kind == 0:
        return frozenset()
    fails = kind == 1 or (kind in (2, 3) and way.config == "one") or (kind in (4, 5) and way.config == "two")
    # Not of every ten records, or more would fail than a stream goes on with.
    lacks = (kind == 6 and not way.named) if offset // 10 % 2 == 0 else (kind == 9 and not way.known)
    if fails or lacks or kind == 8 - way.schema:
        return frozenset({DEAD}) & names
    table = "orders.often" if kind in (3, 5, 6) else "orders.seldom" if offset % 11 == 4 else TABLE
    copied = {"orders.copies"} if (offset + partition.partition) % 6 == 1 else set[str]()
    if (offset + partition.partition) % 6 in (2, 3):
        copied.add(f"orders.copies{offset % 7}")
    return frozenset({table} & names or {TABLE}) | copied & names


@dataclass
class FakeSummary:
    """A snapshot's summary: what was said with the commit, and how many files the table has."""

    additional_properties: dict[str, str]
    files: int

    def __getitem__(self, key: str) -> str:
        return {"total-data-files": str(self.files), "total-delete-files": "0"}[key]


@dataclass
class FakeTable:
    """A table: its chain of snapshots, the newest stamps as properties, and which files are in it."""

    uuid: str
    snapshots: list[SimpleNamespace] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    schema: int = 0
    alterations: int = 0

    @property
    def head(self) -> int | None:
        return self.snapshots[-1].snapshot_id if self.snapshots else None

    def add(self, summary: Mapping[str, str]) -> None:
        self.snapshots.append(
            SimpleNamespace(
                snapshot_id=len(self.snapshots) + 1,
                parent_snapshot_id=self.head,
                sequence_number=len(self.snapshots) + 1,
                summary=FakeSummary(dict(summary), len(self.files)),
            )
        )

    def metadata(self) -> Any:
        head, schema, count = self.head, SCHEMAS[self.schema], len(self.snapshots)
        made = SimpleNamespace(
            table_uuid=self.uuid,
            snapshots=list(self.snapshots),
            refs={"main": SimpleNamespace(snapshot_id=head)} if head else {},
            properties=dict(self.properties),
            schema=lambda: schema,
            alterations=self.alterations,
            current_schema_id=self.schema,
            schemas=SCHEMAS,
            default_spec_id=0,
            spec=lambda: UNPARTITIONED_PARTITION_SPEC,
            specs=lambda: {0: UNPARTITIONED_PARTITION_SPEC},
            default_sort_order_id=0,
            sort_order_by_id=lambda _: UNSORTED_SORT_ORDER,
            location="mem://",
            next_sequence_number=lambda: count + 1,
            current_snapshot=lambda: self.snapshots[head - 1] if head else None,
        )
        made.model_copy = lambda update: SimpleNamespace(**vars(made) | update)
        return made


class World:
    """Everything that outlives a driver."""

    def __init__(self, targets: Sequence[TargetSpec] = PAIR) -> None:
        self.targets = tuple(targets)
        self.names = tuple(target.name for target in targets)
        self.tables: dict[str, FakeTable] = {name: FakeTable(f"uuid of {name}") for name in self.names}
        self.files: dict[str, list[tuple]] = {}
        self.log: dict[TopicPartition, int] = {TopicPartition(TOPIC, 0): 3}
        self.store = InMemoryStore()
        self.store.before |= {"put": lambda: pause("before write"), "delete": lambda: pause("before remove")}
        self.store.after |= {"put": write_hangs, "delete": lambda: pause("after remove")}
        self.lease_epoch = 0
        self.registry_knows = False
        self.pending_was_lost = False
        self.configs: set[str] = set()
        self.drivers: list[Driver] = []
        self.copies: list[Callable[[], None]] = []
        self.dropped: dict[str, list[FakeTable]] = {}
        self.refusing: set[str] = set()
        self.forbidden: set[str] = set()
        self.misfits: set[str] = set()
        self.parkable: tuple[str, ...] = ()
        self.own_columns: bool = False

    # What the project's code asks of Kafka.
    def state(self, source: Any) -> LogState:
        return LogState({TOPIC: "topic-id"}, self.earliest(self.log), dict(self.log))

    def first_start(self, source: Any, log: LogState) -> Mapping[TopicPartition, int]:
        return log.earliest

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        pause("asks for the log's end")
        return {partition: self.log[partition] for partition in partitions}

    def ends(self, partitions: Iterable[TopicPartition]) -> LogEnds:
        latest = self.latest(partitions)
        return LogEnds(latest, latest, {})

    def departures(self, marks: LastReads) -> dict[TopicPartition, int]:
        return {}

    def record(self, partition: TopicPartition, offset: int) -> tuple:
        """What a task writes of the record that stands there now."""
        return partition, offset

    def last_of(self, range_: OffsetRange, partition: TopicPartition) -> dict[str, Any]:
        """What a task tells of the last record of a range."""
        return {}

    def identities(self, topics: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "topic-id")

    # What it asks of the catalog.
    def table_exists(self, name: str) -> bool:
        self._refuse_forbidden(name)
        return name in self.tables

    def _refuse_forbidden(self, name: str) -> None:
        if name in self.forbidden:
            raise ForbiddenError(f"{name} may not be loaded")

    def load_table(self, name: str) -> Any:
        pause(f"loads {name}")
        self._refuse_forbidden(name)
        if name not in self.tables:
            raise NoSuchTableError(name)
        return SimpleNamespace(
            name=lambda: name,
            metadata=self.tables[name].metadata(),
            io=SimpleNamespace(
                properties={},
                delete=lambda path: self.files.pop(path, None),
                new_input=lambda path: SimpleNamespace(exists=lambda: path in self.files),
            ),
        )

    def commit_once(
        self,
        table: Any,
        operation: Operation,
        *,
        summary: Mapping[str, str],
        properties: Mapping[str, str],
        on_written: Callable[[], None],
    ) -> int:
        """As `pyiceberg_commit.commit_once` promises: on exactly the head and schema in memory, or not at all."""
        pause("before an append")
        if table.name() in self.refusing | self.forbidden:
            raise CommitDeniedError(f"the catalog refuses what is asked of {table.name()}")
        if table.name() not in self.tables:
            raise HeadMovedError(f"{table.name()} is gone")
        now, seen = self.tables[table.name()], table.metadata
        assert isinstance(operation, Append)
        paths = [file.file_path for file in operation.files]

        def carry_out() -> None:
            if self.tables.get(table.name()) is not now or now.uuid != seen.table_uuid:
                raise HeadMovedError("it is another table")
            if now.metadata().refs != seen.refs or now.alterations != seen.alterations:
                raise HeadMovedError("head or schema moved")
            assert all(path in self.files for path in paths), "a file was committed that had been deleted"
            now.files += paths
            now.add(summary)
            now.properties |= properties

        driver: Driver | None = getattr(threading.current_thread(), "driver", None)
        if driver is not None and driver.sends_twice:
            driver.sends_twice = False
            self.copies.append(carry_out)
            raise HeadMovedError("a copy of this very commit is under way")
        carry_out()
        table.metadata = now.metadata()
        pause("after an append")
        return now.head or 0

    def copies_arrive(self) -> None:
        """What a proxy had sent a second time reaches the catalog now."""
        for carry_out in self.copies:
            with contextlib.suppress(HeadMovedError):
                carry_out()
        self.copies.clear()

    # What happens around the drivers.
    def lose_state(self) -> None:
        """Somebody deletes the stream's folder: lease, pending records, checkpoints."""
        if self.store.documents:
            self.pending_was_lost = True
        self.store.documents.clear()
        self.lease_epoch = 0

    def named(self, number: int) -> str:
        """One of the tables, by any number."""
        return self.names[number % len(self.names)]

    def alter(self, name: str) -> None:
        """Somebody changes a table so that files written before no longer fit: a pending record may be of no use."""
        if name not in self.tables:
            return
        self.tables[name].schema ^= 1
        self.tables[name].alterations += 1
        self.pending_was_lost = True

    def drop(self, name: str) -> None:
        """Somebody drops a table, or renames it; nobody does with the stream's own, or before it is known."""
        if name != TABLE and name in self.tables and self.tables[TABLE].snapshots:
            self.dropped.setdefault(name, []).append(self.tables.pop(name))

    def known(self) -> Mapping[str, str]:
        """The stream's tables with their uuids, as the coordinator knows them."""
        newest = history(self.tables[TABLE].metadata(), "payments").newest
        return newest.targets if newest else {}

    def forbid(self, name: str) -> None:
        """The catalog lets the stream's user load a table no more, or again; one that the stream has."""
        newest = history(self.tables[TABLE].metadata(), "payments").newest
        if name in self.forbidden or (newest is not None and name != TABLE):
            self.forbidden ^= {name}

    def former(self, name: str) -> FakeTable | None:
        """Of the tables of a name that were dropped, the one to put back: that which the coordinator knows.

        Without such a one it is the last that has rows, or the last.
        """
        known = self.known().get(name)
        latest = reversed(self.dropped.get(name, ()))
        return max(latest, key=lambda table: (table.uuid == known, bool(table.files)), default=None)

    def put_back(self, name: str) -> None:
        """Somebody gives it its name again, unless another table has that."""
        if name not in self.tables and (former := self.former(name)) is not None:
            self.dropped[name].remove(former)
            self.tables[name] = former

    def unpark(self, name: str) -> None:
        """An operator says that a parked table takes commits again."""
        raise AssertionError("no table is parked in this world")

    def mend(self) -> None:
        """All tables are back, and none refuses its commits, to be loaded, or its columns.

        A driver that slept may have made an empty table in the place of one that was dropped: it makes room for the one
        that the coordinator knows, whether or not that had got any rows.
        """
        for name in self.dropped:
            known, there = self.former(name), self.tables.get(name)
            if there is not None and known is not None and known.uuid == self.known().get(name):
                assert not there.files, f"{there.uuid} has rows, and the coordinator knows {known.uuid}"
                del self.tables[name]
            self.put_back(name)
        self.refusing.clear()
        self.forbidden.clear()
        self.misfits.clear()

    def map_names(self) -> None:
        """Somebody gives the columns of the stream's table further names, or takes them away."""
        properties = self.tables[TABLE].properties
        if properties.pop(NAME_MAPPING, None) is None:
            properties[NAME_MAPPING] = MAPPING

    def existing(self, name: str) -> Any:
        """A table that values name, if it exists."""
        raise AssertionError("no record names a table in this world")

    def ensure(self, name: str) -> None:
        """Make it if it is not."""
        raise AssertionError("no record names a table in this world")

    def unnamed(self, ranges: Ranges, targets: Collection[str], way: Way) -> tuple[UnnamedTable, ...]:
        """The tables that records wait for."""
        return ()

    def spec(self, config: str) -> Any:
        """The stream's file as a driver has it."""
        source = Source(topics=(TOPIC,))
        table = SimpleNamespace(name=TABLE)
        return spec_with(
            *("payments", self.targets),
            config_hash=config,
            source=source,
            errors=Errors(),
            table=table,
            publish=None,
            dead_letter_table=DEAD,
            parkable=self.parkable,
        )

    def destinations(self, partition: TopicPartition, offset: int, way: Way) -> set[str]:
        """The targets that a record becomes a row of."""
        return set(destinations_of(partition, offset, way, frozenset(self.names)))

    def unfit(self, partition: TopicPartition, offset: int, way: Way) -> set[str]:
        """The further tables whose own columns cannot hold a record that is for them."""
        further = sorted(self.destinations(partition, offset, way) - {TABLE, DEAD})
        at = offset + 2 * partition.partition
        return set(further[at % len(further) :]) if self.own_columns and further and at % 5 < 2 else set()

    def failed_letters(self, letters: Any, stream: str, ranges: Ranges, batch: int) -> dict[Any, frozenset[int]]:
        """As `batch_letters`: no offset is read twice in this world."""
        there = [each for each in self.counted(DEAD) if len(each) == 2 and each[0] in ranges]
        return {
            p: frozenset(at for each, at in there if each == p and r.start <= at < r.end) for p, r in ranges.items()
        }

    def ledger(self, target: TargetSpec) -> list[LedgerRow]:
        """What the ledger would hold of a table if it were filled in now."""
        if target.name not in self.tables:
            return []
        metadata = self.tables[target.name].metadata()
        sequences = {each.snapshot_id: each.sequence_number for each in metadata.snapshots}
        known, rows = None, []
        for snapshot_id, stamp in reversed(stamps_along_main(metadata, "payments")):
            # As from a snapshot, and not as it was made.
            stamped = StampedSnapshot(Stamp.from_json(stamp.to_json()), snapshot_id, sequences[snapshot_id], NOW)
            made, known = ledger_rows(stamped, known, StampedTable(target, metadata.table_uuid))
            rows += made
        return rows

    def counted(self, name: str) -> Counter[tuple]:
        if name not in self.tables:
            return Counter()
        return Counter(record for path in self.tables[name].files for record in self.files[path])


# Its snapshots are what a client wrote, as in a catalog of SQL: none is asked whether it forgets them.
MetastoreCatalog.register(World)


def assert_ledger_says_so(world: World, *, dropped: Collection[str] = ()) -> None:
    """The ledger's ranges follow each other, nothing is unknown, and its counts are the rows of the tables.

    Args:
        dropped: Tables of which it has the rows of some time only.
    """
    rows = {target.name: world.ledger(target) for target in world.targets}
    assert not [row for each in rows.values() for row in each if row.kind == "unknown"]
    stands: dict[TopicPartition, int] = {}
    for row in rows[TABLE]:
        if row.kind in ("batch", "passed", "again"):
            before, after = row.range[:: -1 if row.kind == "again" else 1]
            assert stands.get(row.partition, before) == before, row
            stands[row.partition] = after
    for target in world.targets:
        if target.name in dropped:
            continue
        there = world.counted(target.name)
        for partition in world.log:
            told = [row.counts for row in rows[target.name] if row.partition == partition and row.counts]
            # The coordinator's counts are of records, wherever they landed.
            if not target.coordinator or len(world.targets) <= len(PAIR):
                in_table = sum(times for (p, *_), times in there.items() if p == partition)
                assert sum(counts.rows(target.role) for counts in told) == in_table, (target, rows)
    for row in rows[TABLE]:
        if row.counts:
            counts = row.counts
            assert row.range.end - row.range.start == counts.read == counts.landed + counts.dead + counts.tombstones
