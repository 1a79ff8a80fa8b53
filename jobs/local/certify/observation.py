"""Observations of a certificate's stream: its tables' stamps and rows, its pending records and checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.clients.state_store.lease_record import read_lease
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder
from jobs.config.values.targets import DEAD_LETTER_COORDINATES
from jobs.local.certify.comparison import (
    Comparison,
    Offsets,
    TableRows,
    Values,
    compare,
    stamp_problems,
    with_values,
)
from jobs.local.certify.load import NO_VALUE, Expected, Fate
from jobs.local.certify.shapes import TYPES
from jobs.local.certify.workspace import STREAM, Workspace
from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import StreamAudit
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.history.stamp_history import history, stamps_along_main
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition, from_spark_offsets
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import target_positions

_SETTLED = 10


@dataclass(frozen=True, slots=True)
class Observation:
    """Tables at one moment. Later commits do not change the observation.

    Attributes:
        tables: Tables by name, the main table first; None before they are created.
    """

    workspace: Workspace
    tables: Mapping[str, Table | None]

    @property
    def table(self) -> Table | None:
        """The stream's own, as the branch has it that the stream writes."""
        return self.tables[self.workspace.table]

    def stamps(self) -> list[Stamp]:
        """The stamps on the stream's table, oldest first."""
        if self.table is None:
            return []
        return [stamp for _, stamp in reversed(stamps_along_main(self.table.metadata, STREAM))]

    @property
    def newest(self) -> Stamp | None:
        """The newest stamp on the stream's table."""
        return _newest(self.table)

    @property
    def heads(self) -> tuple[int | None, ...]:
        """The newest snapshot of each table."""
        return tuple(map(_head, self.tables.values()))

    @property
    def position(self) -> Positions:
        """Position of the stream's table."""
        newest = self.newest
        return newest.position if newest else {}

    def first_commit(self, above: int) -> float | None:
        """Time of the first batch committed under an epoch greater than this; None without one.

        On any table, by its snapshot, in seconds since 1970. That is a driver's own batch, or one that it has
        committed from the pending record of the driver before.
        """
        return min(self._commits(above), default=None)

    def commit_behind(self, moment: float) -> float | None:
        """Time of the first batch committed after a moment, both in seconds since 1970; None without one."""
        return min((at for at in self._commits(-1) if at > moment), default=None)

    def _commits(self, above: int) -> Iterator[float]:
        """Times of batches committed under epochs greater than this, on any table."""
        for table in self.tables.values():
            newest = _newest(table)
            if table is None or newest is None or newest.epoch <= above:
                continue
            times = {snapshot.snapshot_id: snapshot.timestamp_ms / 1000 for snapshot in table.metadata.snapshots}
            for snapshot, stamp in stamps_along_main(table.metadata, STREAM):
                if stamp.epoch <= above:
                    break
                if stamp.kind == "batch":
                    yield times[snapshot]

    def compared(self, expected: Expected) -> Comparison:
        """Compare actual with expected rows, as far as the stamps are complete."""
        own, dead = self.workspace.table, self.workspace.dead_letters
        of_rows = self.workspace.row_tables_of(expected.names)
        # A table of a type that came later was not there, and no record of it had been read.
        stamps = {name: _newest(self.tables.get(name)) for name in (*self.tables, *of_rows)}
        through = {name: _by_number(at) for name, at in target_positions(stamps, own).items()}
        landed = [
            TableRows(
                "the table" if name == own else f"table {name}",
                self._offsets(name),
                expected.landed(types),
                through[name],
            )
            for name, types in of_rows.items()
        ]
        lost = {partition: fates == Fate.DEAD for partition, fates in expected.fates.items()}
        letters = TableRows("the dead letters", self._offsets(dead), lost, through[dead])
        compared = compare(expected.fates, landed, letters)
        return with_values(compared, expected.added, _values(self.table, list(expected.added)))

    def problems(self, expected: Expected) -> list[str]:
        """Problems of rows and stamps, as sentences."""
        return [*self.compared(expected).problems, *stamp_problems(self.stamps())]

    def rows(self) -> Offsets:
        """Offsets of the main table's rows, seen from the branch that the stream writes."""
        return self._offsets(self.workspace.table)

    def _offsets(self, name: str) -> Offsets:
        columns = DEAD_LETTER_COORDINATES if name == self.workspace.dead_letters else KAFKA_COLUMNS.coordinates
        return _offsets(self.tables.get(name), self.workspace.name, *columns)


class Observer:
    """Observes a certificate's tables and state folder.

    Args:
        workspace: Workspace of the stream.
        catalog: Open for as long as this is used.
        types: Returns the records' types, by which tables may be named.
    """

    def __init__(
        self, workspace: Workspace, catalog: Catalog, types: Callable[[], Sequence[str]] = lambda: TYPES
    ) -> None:
        self._types: Callable[[], Sequence[str]] = types
        self._workspace: Workspace = workspace
        self._catalog: Catalog = catalog
        self.folder: StreamFolder = stream_folder(workspace.settings, STREAM)
        spec = workspace.spec()
        # In the order of a batch's commits.
        self._branches: dict[str, str] = {name: spec.branch_of(name) for name in spec.target_names}

    def now(self) -> Observation:
        """Observe all tables at one moment, while a driver may be at work."""
        own, *others = dict.fromkeys([*self._branches, *self._workspace.row_tables_of(self._types())])
        found = {name: self._loaded(name) for name in others}
        for _ in range(_SETTLED):
            table = self._loaded(own)
            again = {name: self._loaded(name) for name in others}
            if [*map(_head, again.values())] == [*map(_head, found.values())]:
                break
            found = again
        else:
            table = self._loaded(own)
        return Observation(self._workspace, {own: table, **found})

    def main(self) -> Offsets:
        """Offsets of the main table's rows in main."""
        table = existing_table(self._catalog, self._workspace.table)
        return _offsets(table, self._workspace.name, *KAFKA_COLUMNS.coordinates)

    def _loaded(self, name: str) -> Table | None:
        return existing_table(self._catalog, name, self._branches.get(name, MAIN_BRANCH))

    def epoch(self) -> int:
        """The greatest epoch that any driver has taken."""
        lease = read_lease(self.folder.store, STREAM)
        return lease.epoch if lease else 0

    def pending(self) -> bool:
        """Whether a pending record exists."""
        return bool(self.folder.pending_records())

    def to_read_again(self, position: Positions, since: float) -> int:
        """Number of records of the present batch that the next driver's tasks will read again.

        0 if a pending record exists, from which they are committed.

        Args:
            position: Position of the stream's table.
            since: Start of the driver, seconds since 1970: a batch recorded before was not its own.
        """
        if self.pending():
            return 0
        planned = planned_end(self.folder.root / "checkpoints", since)
        return sum(max(0, end - position.get(partition, 0)) for partition, end in planned.items())

    def audited(self) -> StreamAudit:
        """Result of `frazil audit` for the stream, by a ledger of the certificate's own."""
        # With several tables, the audit also proves that each row is in a table of its route.
        full = self._workspace.shape in ("routed", "named")
        return audit(self._workspace.spec(), self._workspace.settings, self._catalog, full=full)


def planned_end(checkpoints: Path, since: float) -> dict[TopicPartition, int]:
    """Observe in Spark's checkpoint where a query's newest batch is to end; empty if nothing was noted since."""
    numbered: list[tuple[int, Path]] = []
    for path in checkpoints.glob("*/offsets/*"):
        if path.name.isdigit():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime >= since:
                    numbered.append((int(path.name), path))
    if not numbered:
        return {}
    with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
        # A version, what Spark notes for itself, and the offsets, a line each.
        return from_spark_offsets(max(numbered)[1].read_text().splitlines()[-1])
    return {}


def _newest(table: Table | None) -> Stamp | None:
    return history(table.metadata, STREAM).newest if table is not None else None


def _head(table: Table | None) -> int | None:
    snapshot = table.metadata.current_snapshot() if table is not None else None
    return snapshot.snapshot_id if snapshot else None


def _by_number(positions: Positions) -> Mapping[int, int]:
    return {partition.partition: at for partition, at in positions.items()}


def _offsets(
    table: Table | None, topic_name: str, topic: str, partition: str, offset: str
) -> dict[int, npt.NDArray[np.int64]]:
    if table is None or table.metadata.current_snapshot() is None:
        return {}
    rows = table.scan(selected_fields=(topic, partition, offset)).to_arrow()
    topics = [each for each in rows[topic].unique().to_pylist() if each != topic_name]
    if topics:
        raise FrazilError(f"table {'.'.join(table.name())} has rows of other topics: {topics}.")
    numbers = rows[partition].to_numpy()
    offsets = rows[offset].to_numpy().astype(np.int64, copy=False)
    return {int(number): offsets[numbers == number] for number in np.unique(numbers)}


def _values(table: Table | None, columns: Sequence[str]) -> dict[str, Values]:
    """The values of columns of whole numbers; as if they were null where the table has no such column."""
    if table is None or table.metadata.current_snapshot() is None or not columns:
        return {}
    _, partition, offset = KAFKA_COLUMNS.coordinates
    there = [name for name in columns if name in table.schema().column_names]
    rows = table.scan(selected_fields=(partition, offset, *there)).to_arrow()
    numbers, offsets = rows[partition].to_numpy(), rows[offset].to_numpy().astype(np.int64, copy=False)
    found: dict[str, Values] = {}
    for name in columns:
        values = rows[name].fill_null(NO_VALUE).to_numpy() if name in there else np.full(rows.num_rows, NO_VALUE)
        of = {int(number): numbers == number for number in np.unique(numbers)}
        found[name] = {number: (offsets[which], values[which]) for number, which in of.items()}
    return found
