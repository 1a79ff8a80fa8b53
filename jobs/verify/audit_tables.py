"""The tables of a stream as an audit looks at them: what is new since they were audited last, or all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from jobs.commit.offsets import Positions
from jobs.deadletter.retention import EXPIRED_BEFORE
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.spec.targets import TargetSpec
from jobs.verify import ledger
from jobs.verify.audit import Expected, expected
from jobs.verify.audit_changes import others_since
from jobs.verify.audit_facts import Problem, StreamAudit, TableAudit
from jobs.verify.audit_questions import rolled_back
from jobs.verify.ledger_marks import AuditMark
from jobs.verify.ledger_row import WHOLE, LedgerRow
from jobs.verify.rows_in_ranges import COORDINATES
from jobs.verify.table_rows import RowCounter

# Letters are dated when their batch is planned, and recorded when it is committed.
_BATCH_AT_MOST = timedelta(days=1)


@dataclass(slots=True)
class Audited:
    """One table of the stream.

    Attributes:
        table: None if it is not there.
        after: Sequence number through which its rows were counted before; 0 if all of them are to be.
        marked: Sequence number through which it was audited before; None if it was not.
        counted_in: The snapshot in which what was audited before was counted, if others have changed rows since.
    """

    target: TargetSpec
    table: Table | None
    expected: Expected
    facts: TableAudit
    after: int = 0
    marked: int | None = None
    counted_in: int | None = None

    @property
    def name(self) -> str:
        """The table's full name."""
        return self.target.name

    @property
    def columns(self) -> tuple[str, str, str]:
        """Names of the columns of topic, partition and offset."""
        return COORDINATES[self.target.role]

    def rows_of(self, stream: str) -> str | None:
        """The stream whose rows count, where those of others may stand in the table, too; None where all count."""
        return stream if self.target.role == "dead_letters" else None

    def counter(self, stream: str, on_rows: Callable[[int], None]) -> RowCounter | None:
        """Counts its rows; None if they do not say where they came from."""
        if self.table is None:
            return None
        made = RowCounter(self.table, self.columns, stream=self.rows_of(stream), on_rows=on_rows)
        return None if made.missing_column() else made


def looked_at(
    spec: StreamSpec, settings: Settings, catalog: Catalog, wanted: Sequence[TargetSpec], found: StreamAudit
) -> list[Audited]:
    """Load the tables, fill the ledger, and follow what it says of them; what stands out is added to `found`.

    Args:
        wanted: The coordinator before the others.
    """
    # Before the ledger is filled: it then knows all that these versions of the tables hold, and what it knows more is
    # left aside. The coordinator first: it is committed first.
    names = [target.name for target in wanted]
    tables = {name: load(catalog, name) for name in names}
    found.recorded = ledger.fill(catalog, settings, [spec]).rows
    marks = {} if found.full else _marks(spec, settings, catalog, tables, found)
    rows = {name: _since(spec, settings, catalog, name, tables, marks) for name in names}
    begins: dict[str, Positions] = {
        name: mark.positions for name, mark in marks.items() if mark.positions or not mark.sequence
    }
    fewer = len(begins) < sum(table is not None for table in tables.values())
    if (
        fewer
        or found.since is not None
        or any(_reaches_below(rows[name], mark) or _skips(rows[name], mark) for name, mark in marks.items())
    ):
        # All of it is followed again, for what an answer says of records audited before, or for lack of a beginning.
        rows = {name: ledger.read(catalog, settings, spec.stream, name, uuid=_uuid(tables[name])) for name in names}
        begins = {}
    followed = [
        _followed(each, tables[each.name], rows[each.name], marks.get(each.name), begins.get(each.name), found)
        if tables[each.name] is not None or not rows[each.name]
        else _gone(each, catalog, found)
        for each in wanted
    ]
    # The coordinator alone tells that a topic was retired, so that a later one's dead letters come where others were.
    again = {row.partition for name in names for row in rows[name] if row.answer == "retired"}
    for each in followed:
        if not each.target.coordinator:
            kept = [p for p in each.expected.problems if p.kind != "overlap" or p.partition not in again]
            each.expected.problems[:] = kept
    return followed


def _marks(
    spec: StreamSpec, settings: Settings, catalog: Catalog, tables: dict[str, Table | None], found: StreamAudit
) -> dict[str, AuditMark]:
    by_uuid = ledger.audited(catalog, settings, spec.stream)
    marks: dict[str, AuditMark] = {}
    for name, table in tables.items():
        mark = by_uuid.get(_uuid(table) or "")
        if table is None or mark is None:
            continue
        if rolled_back(name, table, spec.stream):
            continue
        if _still_holds(table.metadata, mark):
            marks[name] = mark
        else:
            said = f"snapshot {mark.snapshot_id}, in which it was audited last, is not in its history any more"
            found.notes.append(f"table {name} was counted from its first batch on: {said}")
    return marks


def _still_holds(metadata: TableMetadata, mark: AuditMark) -> bool:
    """Whether what was counted then is what the table holds, but for what came since.

    A snapshot that has expired says nothing. Whether the table was rolled back or replaced is then told by the stamps.
    One that is kept, and is no ancestor of main's head, tells that the rows which were counted may not be there.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    if mark.snapshot_id not in by_id:
        return True
    head = metadata.refs.get(MAIN_BRANCH)
    current = by_id.get(head.snapshot_id) if head else None
    while current is not None and current.snapshot_id != mark.snapshot_id:
        current = by_id.get(current.parent_snapshot_id or -1)
    return current is not None


def _since(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    name: str,
    tables: dict[str, Table | None],
    marks: dict[str, AuditMark],
) -> list[LedgerRow]:
    mark = marks.get(name)
    table = tables[name]
    rows = ledger.read(catalog, settings, spec.stream, name, mark.sequence if mark else None, _uuid(table))
    # Another table of the name counts its sequence numbers from 1 again.
    return [row for row in rows if mark is None or table is None or row.table_uuid == str(table.metadata.table_uuid)]


def _uuid(table: Table | None) -> str | None:
    return str(table.metadata.table_uuid) if table is not None else None


def _reaches_below(rows: Iterable[LedgerRow], mark: AuditMark) -> bool:
    """Whether something among new rows concerns records that were audited before."""
    return any(
        (row.since or 0) < mark.sequence
        if row.kind == "removed"
        else row.kind != "noted" and row.range.start < mark.positions.get(row.partition, 0)
        for row in rows
    )


def _skips(rows: Iterable[LedgerRow], mark: AuditMark) -> bool:
    """Whether a partition goes on past where it stood: a gap, or a later topic of a name that was retired."""
    stood, of_commits = dict(mark.positions), sorted(rows, key=lambda row: row.sequence)
    return any(row.anchor and row.range.start > stood.pop(row.partition, row.range.start) for row in of_commits)


def _followed(
    target: TargetSpec,
    table: Table | None,
    rows: list[LedgerRow],
    mark: AuditMark | None,
    begin: Positions | None,
    found: StreamAudit,
) -> Audited:
    name, facts = target.name, TableAudit(target)
    if table is None:
        found.pending.append(f"table {name} is not there yet")
        return Audited(target, None, Expected(target), facts)
    metadata = table.metadata
    uuid = str(metadata.table_uuid)
    if former := {row.table_uuid for row in rows} - {uuid}:
        words = "a former one is" if len(former) == 1 else f"{len(former)} former ones are"
        found.notes.append(f"table {name} was dropped and created anew; {words} not audited")
    if problem := rolled_back(name, table, found.stream):
        found.problems.append(problem)
    known = [
        row for row in rows if row.table_uuid == uuid and row.sequence <= getattr(metadata, "last_sequence_number", 0)
    ]
    if expired := letters_expired(table):
        known = _without_counts(known, expired)
        before = metadata.properties[EXPIRED_BEFORE]
        found.notes.append(f"dead letters from before {before} have expired, so they are not counted")
    made = Audited(target, table, expected(target, known, begin), facts)
    if mark is not None:
        facts.since = mark.at
        taken = [row.since or 0 for row in known if row.kind == "removed" and row.sequence > mark.sequence]
        # What a rollback took out, or brought back, may have been counted before.
        made.after = min([mark.sequence, *taken])
        made.expected.sequence = max(made.expected.sequence, mark.sequence)
        made.marked = mark.sequence
        if found.since is not None:
            made.after = min(made.after, _before(known, found.since))
        elif others := others_since(metadata, mark.snapshot_id, mark.sequence):
            made.counted_in = mark.snapshot_id
            found.notes.append(_changed_by_others(found.stream, name, others))
    return made


def _before(rows: Iterable[LedgerRow], since: datetime) -> int:
    """The sequence number of the last commit before an instant; 0 without one."""
    return max((row.sequence for row in rows if row.committed_at < since), default=0)


def _changed_by_others(stream: str, table: str, others: Sequence[Snapshot]) -> str:
    newest = others[-1]
    did = newest.summary.operation.value if newest.summary else "changed"
    at = datetime.fromtimestamp(newest.timestamp_ms / 1000, UTC)
    said = f"snapshot {newest.snapshot_id} ({did}, {at:%Y-%m-%d %H:%M} UTC)"
    said += f" and {len(others) - 1:,} more" if len(others) > 1 else ""
    return (
        f"others have changed rows of table {table} since it was audited last, {said}; what had been audited was not "
        f"counted again. Next: frazil audit {stream} --full, or --since 24h"
    )


def letters_expired(table: Table) -> datetime | None:
    """Batches that were committed before this instant may have had letters that are gone; None if none is gone."""
    expired = table.metadata.properties.get(EXPIRED_BEFORE)
    return datetime.fromisoformat(expired) + _BATCH_AT_MOST if expired else None


def _without_counts(rows: Iterable[LedgerRow], before: datetime) -> list[LedgerRow]:
    """Rows of earlier commits no longer say how many letters stand there."""
    return [
        replace(row, counts=None) if row.kind == "batch" and row.committed_at < before else row
        for row in rows
        if row.partition != WHOLE or row.kind != "batch" or row.committed_at >= before
    ]


def _gone(target: TargetSpec, catalog: Catalog, found: StreamAudit) -> Audited:
    name = target.name
    if load(catalog, name) is None:
        said = f"table {name} is gone; what the ledger says of it cannot be held against anything"
        found.problems.append(Problem("not_counted", name, None, None, 0, said))
    else:
        found.pending.append(f"table {name} was created this moment")
    return Audited(target, None, Expected(target), TableAudit(target))


def load(catalog: Catalog, name: str) -> Table | None:
    """A table; None if it is not there."""
    try:
        return catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
