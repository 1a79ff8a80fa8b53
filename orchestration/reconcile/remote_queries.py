"""Queries of the supervisor to the catalog and to Kafka: each with a deadline, all of a tick within a time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyiceberg.table.snapshots import Operation

from assets.schema_history import history_metadata
from assets.stream_checks import totals_of
from jobs.base.errors import FrazilError
from jobs.config.documents.validation import SpecError
from jobs.config.stream.models import StreamSpec
from jobs.quality.publishing.main_freshness import UNKNOWN, MainFreshness, main_freshness
from jobs.tables.commit.history.stamp_history import as_written
from jobs.tables.commit.stamp.stamp_fields import Counts
from orchestration.reconcile.lag import Lag, lag_by_stamps

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from jobs.clients.kafka.metadata import KafkaLog

T = TypeVar("T")

# After so long nothing more is asked; a tick has 60 s in all.
_BUDGET_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class QueriedTable:
    """Result of a query about a table at one snapshot.

    Attributes:
        rows: The table's.
        added: Records added since the snapshot reported before; None if that is not among its ancestors any more.
        totals: What became of all records of the stream, by the table's newest stamp, which may be a newer snapshot's.
        history: Of its schema, as metadata; empty while it has had one only.
    """

    rows: int
    added: int | None
    totals: Counts
    history: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        """The result as metadata of a report."""
        added = {} if self.added is None else {"records_added": self.added}
        return {"dagster/row_count": self.rows, **added, **self.history}


class RemoteQueries:
    """The queries of one tick. Whichever of catalog and Kafka did not answer once is not asked again in it.

    Args:
        kafka: Connects to Kafka; None if it is not to be asked at all.
    """

    def __init__(self, catalog: Callable[[], Catalog], kafka: Callable[[], KafkaLog] | None) -> None:
        self._connect_catalog: Callable[[], Catalog] = catalog
        self._connect_kafka: Callable[[], KafkaLog] | None = kafka
        self._deadline: float = time.monotonic() + _BUDGET_SECONDS
        self._catalog: Catalog | FrazilError | None = None
        self._kafka: KafkaLog | FrazilError | None = None
        self._tables: dict[str, Table | None] = {}

    @property
    def kafka_unavailable(self) -> bool:
        """Whether Kafka was asked and did not answer."""
        return isinstance(self._kafka, FrazilError)

    @property
    def late(self) -> bool:
        """Whether there is no time left to ask anything."""
        return time.monotonic() > self._deadline

    def table_rows(
        self, name: str, stream: str, snapshot_id: int | None, since: int | None, *, on_main: bool = False
    ) -> QueriedTable | None:
        """A table's rows at a snapshot; None if the catalog does not say in time.

        Args:
            on_main: Whether main is meant, whatever branch the stream writes.
        """
        table = self.table(name)
        return None if table is None else queried_table(table, stream, snapshot_id, since, on_main=on_main)

    def main_freshness(self, spec: StreamSpec) -> MainFreshness | None:
        """Freshness of main of a write-audit-publish stream; unknown if the catalog does not answer in time.

        None for other streams, and before the branch exists.
        """
        from jobs.clients.catalog.catalog import NoCatalogYet

        if spec.publish is None:
            return None
        table = self._loaded(spec.table.name)
        if isinstance(table, FrazilError):
            return None if isinstance(table, NoCatalogYet) else UNKNOWN
        return None if table is None else main_freshness(table.metadata, spec.stream, spec.publish.branch)

    def table(self, name: str) -> Table | None:
        """A table as it stood when this tick first asked for it; None if the catalog does not answer in time."""
        found = self._loaded(name)
        return None if isinstance(found, FrazilError) else found

    def has_answered(self, name: str) -> bool:
        """Whether the catalog has answered: with the table, or that there is none."""
        return name in self._tables

    def refusal(self, spec: StreamSpec, find_file: Callable[[], Path | None]) -> SpecError | None:
        """Error of a stream's table that does not fit its file; None if it fits, or does not exist yet.

        Args:
            spec: Spec of the stream.
            find_file: Function that finds the stream's file; called only for an error.

        Raises:
            FrazilError: The catalog does not answer in time.
        """
        from jobs.clients.catalog.catalog import NoCatalogYet
        from jobs.streaming.supervision.state.spec_check import spec_refusal

        table = self._loaded(spec.table.name)
        if isinstance(table, NoCatalogYet):
            return None
        if isinstance(table, FrazilError):
            raise table
        file = Path(f"{spec.stream}.yaml")
        found = spec_refusal(spec, file, table)
        return found if found is None else spec_refusal(spec, find_file() or file, table)

    def lag(self, spec: StreamSpec, now: float) -> Lag | None:
        """The lag of a stream without a driver, by its stamps; None if it cannot be found out in time.

        What its last driver said of lag is of no use here: records have come since.
        """
        if self._connect_kafka is None:
            return None
        from jobs.clients.catalog.catalog import NoCatalogYet

        if self._kafka is None:
            self._kafka = _connected(self._connect_kafka)
        if isinstance(self._kafka, FrazilError) or self.late:
            return None
        table = self._loaded(spec.table.name)
        if isinstance(table, FrazilError) and not isinstance(table, NoCatalogYet):
            return None
        try:
            return lag_by_stamps(spec, None if isinstance(table, FrazilError) else table, self._kafka, now)
        except FrazilError as problem:
            self._kafka = problem
            return None

    def _loaded(self, name: str) -> Table | FrazilError | None:
        """A table, None if there is none; or why that is not known."""
        from jobs.clients.catalog.catalog import find_table

        if name in self._tables:
            return self._tables[name]
        if self._catalog is None:
            self._catalog = _connected(self._connect_catalog)
        if self.late:
            return FrazilError("there was no time left to ask")
        if isinstance(self._catalog, FrazilError):
            return self._catalog
        try:
            self._tables[name] = find_table(self._catalog, name)
        except FrazilError as problem:
            self._catalog = problem
            return problem
        return self._tables[name]


def _connected(connect: Callable[[], T]) -> T | FrazilError:
    try:
        return connect()
    except FrazilError as problem:
        return problem
    except Exception as problem:
        return FrazilError(f"{type(problem).__name__}: {problem}")


def queried_table(
    table: Table, stream: str, snapshot_id: int | None, since: int | None, *, on_main: bool = False
) -> QueriedTable:
    """Query a table and a stream at a snapshot, or at the newest if the table no longer keeps that one."""
    metadata = table.metadata if on_main else as_written(table.metadata, stream)
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    newest = (by_id.get(snapshot_id) if snapshot_id is not None else None) or metadata.current_snapshot()
    added = 0
    snapshot = newest
    while snapshot is not None and snapshot.snapshot_id != since:
        added += _added(snapshot)
        snapshot = by_id.get(snapshot.parent_snapshot_id or -1)
    rows = _count(newest, "total-records") if newest else 0
    return QueriedTable(
        rows, None if snapshot is None else added, totals_of(table, stream), history_metadata(table, stream)
    )


def _added(snapshot) -> int:
    """Rows that a snapshot added; rewritten rows, such as a dead letter with a new replay state, do not count."""
    operation = snapshot.summary.operation if snapshot.summary else Operation.APPEND
    gone = 0 if operation == Operation.APPEND else _count(snapshot, "deleted-records")
    return max(0, _count(snapshot, "added-records") - gone)


def _count(snapshot, name: str) -> int:
    return int(snapshot.summary.additional_properties.get(name, 0)) if snapshot.summary else 0
