"""The few questions that the supervisor asks a network, each with a deadline, and all of them within a budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyiceberg.table.snapshots import Operation

from assets.metadata import offsets as by_topic
from assets.stream_checks import totals_of
from jobs.commit.offsets import TopicPartition
from jobs.commit.stamp_fields import Counts
from jobs.commit.stamp_history import history
from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from jobs.spec.validation import SpecError
from orchestration.reconcile.verdicts import Lag

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from jobs.kafka.metadata import KafkaLog

T = TypeVar("T")

# A tick has 60 s in all.
BUDGET_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a table says of itself at one snapshot.

    Attributes:
        rows: The table's.
        added: Records added since the snapshot reported before; None if that is not among its ancestors any more.
        totals: What became of all records of the stream, by the table's newest stamp, which may be a newer snapshot's.
    """

    rows: int
    added: int | None
    totals: Counts

    @property
    def metadata(self) -> dict[str, Any]:
        """As a report of the table carries it."""
        added = {} if self.added is None else {"records_added": self.added}
        return {"dagster/row_count": self.rows, **added}


class Lookups:
    """The catalog and Kafka, as far as one tick asks them. Who did not answer once is not asked again in the tick.

    Args:
        catalog: Connects to the catalog.
        kafka: Connects to Kafka; None if it is not to be asked at all.
        budget_seconds: After so long nothing is asked any more.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        kafka: Callable[[], KafkaLog] | None,
        *,
        budget_seconds: float = BUDGET_SECONDS,
    ) -> None:
        self._ask_catalog: Callable[[], Catalog] = catalog
        self._ask_kafka: Callable[[], KafkaLog] | None = kafka
        self._deadline: float = time.monotonic() + budget_seconds
        self._catalog: Catalog | FrazilError | None = None
        self._kafka: KafkaLog | FrazilError | None = None
        self._tables: dict[str, Table | None] = {}
        self.problems: dict[str, str] = {}

    @property
    def kafka_is_away(self) -> bool:
        """Whether Kafka was asked and did not answer."""
        return "kafka" in self.problems

    def table(self, name: str, stream: str, snapshot_id: int | None, since: int | None) -> TableFacts | None:
        """A table's rows at a snapshot; None if the catalog does not say in time."""
        table = self.loaded(name)
        return None if table is None else table_facts(table, stream, snapshot_id, since)

    def loaded(self, name: str) -> Table | None:
        """A table as it stood when this tick first asked for it; None if the catalog does not say in time."""
        from jobs.catalog import find_table

        if name in self._tables:
            return self._tables[name]
        catalog = self.catalog()
        if isinstance(catalog, FrazilError):
            return None
        try:
            self._tables[name] = find_table(catalog, name)
        except FrazilError as problem:
            self._catalog = problem
            self.problems["catalog"] = problem.message
            return None
        return self._tables[name]

    def refusal(self, spec: StreamSpec, find_file: Callable[[], Path | None]) -> SpecError | None:
        """Why the stream's table cannot hold what its file declares; None if it can, or is not there yet.

        Args:
            find_file: The stream's file; asked only if there is something to say.

        Raises:
            FrazilError: The catalog does not say in time.
        """
        from jobs.catalog import NoCatalogYet
        from jobs.supervise.spec_check import refusal

        catalog = self.catalog()
        if isinstance(catalog, NoCatalogYet):
            return None
        if isinstance(catalog, FrazilError):
            raise catalog
        table = self.loaded(spec.table.name)
        if spec.table.name not in self._tables:
            raise FrazilError(self.problems.get("catalog", "the catalog did not answer"))
        file = Path(f"{spec.stream}.yaml")
        found = refusal(spec, file, table)
        return found if found is None else refusal(spec, find_file() or file, table)

    def lag(self, spec: StreamSpec, now: float) -> Lag | None:
        """How far a stream without a driver is behind, by its stamps; None if that cannot be found out in time.

        What its last driver said of lag is of no use here: records have come since.
        """
        if self._ask_kafka is None:
            return None
        from jobs.catalog import NoCatalogYet, find_table

        kafka, catalog = self._connected(self._ask_kafka), self.catalog()
        if isinstance(kafka, FrazilError):
            return None
        table = None
        if not isinstance(catalog, NoCatalogYet):
            if isinstance(catalog, FrazilError):
                return None
            try:
                table = find_table(catalog, spec.table.name)
            except FrazilError as problem:
                self._catalog = problem
                self.problems["catalog"] = problem.message
                return None
        try:
            return _lag(spec, table, kafka, now)
        except FrazilError as problem:
            self._kafka = problem
            self.problems["kafka"] = problem.message
            return None

    def catalog(self) -> Catalog | FrazilError:
        """A connection, or why there is none."""
        if self._catalog is None:
            self._catalog = self._asked("catalog", self._ask_catalog)
        return self._catalog if not self.late else FrazilError("there was no time left to ask")

    def _connected(self, ask_kafka: Callable[[], KafkaLog]) -> KafkaLog | FrazilError:
        if self._kafka is None:
            self._kafka = self._asked("kafka", ask_kafka)
        return self._kafka if not self.late else FrazilError("there was no time left to ask")

    @property
    def late(self) -> bool:
        """Whether there is no time left to ask anything."""
        return time.monotonic() > self._deadline

    def _asked(self, part: str, question: Callable[[], T]) -> T | FrazilError:
        try:
            return question()
        except FrazilError as problem:
            self.problems[part] = problem.message
            return problem
        except Exception as problem:
            self.problems[part] = f"{type(problem).__name__}: {problem}"
            return FrazilError(self.problems[part])


def _lag(spec: StreamSpec, table: Table | None, kafka: KafkaLog, now: float) -> Lag | None:
    newest = history(table.metadata, spec.stream).newest if table is not None else None
    topics = kafka.topics(spec.source)
    partitions = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]
    if not partitions:
        return None
    position = dict(newest.position) if newest else {}
    unread = [partition for partition in partitions if partition not in position]
    begin = {**(kafka.earliest(unread) if unread else {}), **position}
    ends = kafka.ends(partitions)
    waiting = {at: max(0, end - begin[at]) for at, end in ends.latest.items()}
    records = sum(waiting.values())
    stamped = newest.valid_through_ms / 1000 if newest and newest.valid_through_ms is not None else None
    undecided = sum(ends.undecided().values())
    return Lag(records, now, now if records + undecided == 0 else stamped, by_topic(waiting), undecided)


def table_facts(table: Table, stream: str, snapshot_id: int | None, since: int | None) -> TableFacts:
    """What a table says of itself and of a stream at a snapshot, or at its newest if it does not keep that one."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    newest = (by_id.get(snapshot_id) if snapshot_id is not None else None) or table.current_snapshot()
    added = 0
    snapshot = newest
    while snapshot is not None and snapshot.snapshot_id != since:
        added += _added(snapshot)
        snapshot = by_id.get(snapshot.parent_snapshot_id or -1)
    rows = _count(newest, "total-records") if newest else 0
    return TableFacts(rows, None if snapshot is None else added, totals_of(table, stream))


def _added(snapshot) -> int:
    """Rows that came with a snapshot; those that it only wrote anew, as the life of a letter does, are none."""
    operation = snapshot.summary.operation if snapshot.summary else Operation.APPEND
    gone = 0 if operation == Operation.APPEND else _count(snapshot, "deleted-records")
    return max(0, _count(snapshot, "added-records") - gone)


def _count(snapshot, name: str) -> int:
    return int(snapshot.summary.additional_properties.get(name, 0)) if snapshot.summary else 0
