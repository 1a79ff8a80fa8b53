"""Published rows: main's rows of a stream that writes a branch, compared with the published part of the branch.

Each published row of the branch is in main once, unless an operator has left it out, and main has no other row at the
audited offsets. Unpublished rows are reported, and are no problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import FileScanTask, Table

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.proof.audit.audit_ranges import OffsetRanges
from jobs.proof.audit.audit_result import AuditProblem, ProblemKind
from jobs.proof.audit.other_writers import with_foreign_changes
from jobs.quality.publishing.gate import Gate
from jobs.quality.publishing.interval import PART_MARK, Interval, left_out_property
from jobs.quality.publishing.publishing import unpublished
from jobs.tables.commit.history.branch import TableOnBranch, whole_table
from jobs.tables.commit.history.discards import Discards, is_discarded
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.publications import published_through
from jobs.tables.commit.history.reissue import as_landed
from jobs.tables.commit.stamp.errors import RolledBackError
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    PartitionRange,
    TopicPartition,
    describe_ranges,
)
from jobs.tables.commit.stamp.stamps import PUBLISH_PART, SUMMARY_KEY, Stamp
from jobs.tables.ledger.ledger_checkpoints import AuditCheckpoint
from jobs.tables.ledger.ledger_table import read_ledger
from jobs.tables.ledger.row_counter import RowCounter, missing_column

_SENTENCES: Mapping[ProblemKind, str] = {
    "missing": "lacks {rows} of what was published",
    "doubled": "has {rows} too many, of offsets that stand there more often than they were published",
    "unexpected": "has {rows} of the stream that no publication brought",
}


@dataclass(slots=True)
class PublishedRows:
    """Audit result of a branch in main.

    Attributes:
        table: Name for a sentence.
        rows: Rows of main that were counted at the audited offsets.
        left_out: Rows before the published sequence number that main lacks, because an operator has left them out.
        waiting: Unpublished snapshots; None if unknown.
        checkpoint: New audit checkpoint; None if nothing was counted.
    """

    table: str
    problems: list[AuditProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: int = 0
    left_out: int = 0
    waiting: Interval | None = None
    checkpoint: AuditCheckpoint | None = None


def checkpoint_key(table: Table) -> str:
    """Key of main's audit checkpoint, beside the table's uuid for the branch."""
    return f"{table.metadata.table_uuid}@main"


def published_rows(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    table: Table,
    before: AuditCheckpoint | None,
    *,
    window: int,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> PublishedRows | None:
    """Compare main with the published part of the stream's branch; None if the branch is not published.

    Args:
        table: Table of the stream, seen from its branch, with its ledger filled.
        before: Earlier checkpoint; None: everything is audited.
        window: Number of offsets counted at a time.
        on_rows: Called with the number of rows read, as reading goes on.

    Raises:
        FrazilError: The table cannot be read.
    """
    if not isinstance(table, TableOnBranch) or table.branch not in table.whole.refs:
        return None
    if spec.publish is None and published_through(table.whole, spec.stream, table.branch) is None:
        return None
    main, name, columns = whole_table(table), spec.table.name, spec.targets[0].coordinates
    found = PublishedRows(f"main of {name}")
    try:
        found.waiting = unpublished(spec, main, unfinished=True)
    except FrazilError as problem:
        kind: ProblemKind = "rolled_back" if isinstance(problem, RolledBackError) else "not_counted"
        said = f"{problem.message} Next: {problem.fix}"
        found.problems.append(AuditProblem(kind, found.table, None, None, 0, said))
        return found
    waiting = found.waiting
    if waiting is None:
        return None
    found.notes += _waits(spec, main, found)
    if lacking := missing_column(main, columns):
        found.notes.append(f"{found.table} was not counted: it has no column {lacking}")
        return found
    uuid = str(main.metadata.table_uuid)
    ledger = read_ledger(catalog, settings, spec.stream, name, before.sequence if before else None, uuid)
    ranges = [PartitionRange(each.partition, each.range) for each in ledger if each.kind in ("batch", "unknown")]
    if before is not None:
        ranges += _replayed(spec, table, columns, before.sequence)
    unpublished_paths = waiting.paths | _discarded(table, spec.stream)
    counting = _Counting(main, table, columns, unpublished_paths, _passed_over(table), on_rows)
    for some in _windows(ranges, window):
        counting.count(some)
    found.rows, found.left_out = counting.rows, counting.left_out
    found.problems += with_foreign_changes(counting.problems(found.table), main, columns, None)
    if found.left_out:
        found.notes.append(f"{found.table} lacks {found.left_out:,} rows that an operator has left out of it")
    head = main.current_snapshot()
    if head is not None:
        sequence = _audited_through(table, waiting)
        found.checkpoint = AuditCheckpoint(sequence, head.snapshot_id, datetime.now(UTC), complete=True)
    return found


def _waits(spec: StreamSpec, main: Table, found: PublishedRows) -> Iterator[str]:
    waiting = found.waiting
    if waiting is None or not waiting.files:
        return
    since = f", the first of {waiting.first_at:%Y-%m-%d %H:%M} UTC" if waiting.first_at else ""
    offsets = f", offsets {describe_ranges(waiting.ranges)}" if waiting.ranges else ""
    rows = f"{waiting.rows:,} rows of branch {waiting.branch}"
    yield f"{found.table} lacks {rows} that are not published yet{offsets}{since}"
    if (held := Gate.standing(main.metadata, spec.stream, waiting.branch, spec.table.name).held) is not None:
        yield f"of them {held.rows:,} rows are quarantined: {'; '.join(held.reasons[:2])}"


def _audited_through(table: TableOnBranch, waiting: Interval) -> int:
    """Sequence number of the checkpoint: unpublished snapshots are audited after publication, by their own numbers."""
    numbers = {each.snapshot_id: each for each in table.metadata.snapshots}
    landed = [as_landed(numbers[each]).sequence_number or 0 for each in waiting.snapshots if each in numbers]
    return min([waiting.after, *(each - 1 for each in landed)])


def _passed_over(table: TableOnBranch) -> frozenset[str]:
    """Files of the branch with rows that an operator may have left out of main."""
    text = table.whole.properties.get(left_out_property(table.branch), "")
    return _paths_through(table, int(text)) if text.isdigit() else frozenset()


def _discarded(table: TableOnBranch, stream: str) -> frozenset[str]:
    """Files of the branch whose rows are dead letters instead of main's; those of other streams are ignored."""
    discards = Discards.of(table.whole.properties, stream).on(table.branch)
    head = table.current_snapshot()
    if not discards or head is None:
        return frozenset()
    others: set[int] = set()
    for each in ancestors(table.metadata):
        text = each.summary.additional_properties.get(SUMMARY_KEY) if each.summary else None
        if text and Stamp.from_json(text).stream.partition(PART_MARK)[0] != stream:
            others.add(each.snapshot_id)
    return frozenset(
        entry.data_file.file_path
        for manifest in head.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
        if is_discarded(discards, entry.sequence_number or 0) and entry.snapshot_id not in others
    )


def _paths_through(table: Table, until: int) -> frozenset[str]:
    head = table.current_snapshot()
    return frozenset(
        entry.data_file.file_path
        for manifest in (head.manifests(table.io) if head else ())
        for entry in manifest.fetch_manifest_entry(table.io)
        if (entry.sequence_number or 0) <= until
    )


def _replayed(spec: StreamSpec, table: Table, columns: tuple[str, str, str], after: int) -> list[PartitionRange]:
    """Offsets of records that replays brought back since, whose ranges were audited long before."""
    tasks: list[FileScanTask] = []
    for each in ancestors(table.metadata):
        text = each.summary.additional_properties.get(SUMMARY_KEY) if each.summary else None
        if not text or (as_landed(each).sequence_number or 0) <= after or PART_MARK not in text:
            continue
        stream = Stamp.from_json(text).stream
        if stream.partition(PART_MARK)[0] != spec.stream or stream.endswith(PUBLISH_PART) or PART_MARK not in stream:
            continue
        for manifest in each.manifests(table.io):
            if manifest.added_snapshot_id == each.snapshot_id:
                entries = manifest.fetch_manifest_entry(table.io)
                tasks += [FileScanTask(one.data_file) for one in entries if one.status == ManifestEntryStatus.ADDED]
    if not tasks:
        return []
    schema = table.schema().select(*columns)
    found: list[PartitionRange] = []
    for batch in ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_record_batches(tasks):
        rows = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
        found += [PartitionRange(TopicPartition(t, p), OffsetRange(at, at + 1)) for t, p, at in rows if at is not None]
    return found


def _windows(ranges: Iterable[PartitionRange], size: int) -> Iterator[list[PartitionRange]]:
    """Offsets of all the ranges, each once, in windows of at most `size`."""
    window: list[PartitionRange] = []
    used = 0
    for partition, (start, end) in _joined(ranges):
        while start < end:
            stop = min(end, start + size - used)
            window.append(PartitionRange(partition, OffsetRange(start, stop)))
            used, start = used + stop - start, stop
            if used == size:
                yield window
                window, used = [], 0
    if window:
        yield window


def _joined(ranges: Iterable[PartitionRange]) -> Iterator[PartitionRange]:
    last: PartitionRange | None = None
    for each in sorted(ranges):
        if last is not None and last.partition == each.partition and each.range.start <= last.range.end:
            end = max(last.range.end, each.range.end)
            last = PartitionRange(last.partition, OffsetRange(last.range.start, end))
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


@dataclass(slots=True)
class _Off:
    rows: int = 0
    where: OffsetRanges = field(default_factory=OffsetRanges)
    start: int = 0
    end: int = 0

    def add(self, many: np.ndarray, range_: OffsetRange) -> None:
        at = np.flatnonzero(many)
        if len(at):
            first, last = int(at[0]) + range_.start, int(at[-1]) + range_.start + 1
            self.start, self.end = (first if not self.rows else min(self.start, first)), max(self.end, last)
            self.rows += int(many.sum(dtype=np.int64))
            self.where.add(at, range_.start)


class _Counting:
    """Counts windows of offsets in main and on the branch, with the unpublished and left-out parts of the branch."""

    def __init__(
        self,
        main: Table,
        branch: Table,
        columns: tuple[str, str, str],
        waiting: frozenset[str],
        passed_over: frozenset[str],
        on_rows: Callable[[int], None],
    ) -> None:
        self.rows: int = 0
        self.left_out: int = 0
        self._main: RowCounter = RowCounter(main, columns, on_rows=on_rows)
        self._branch: RowCounter = RowCounter(branch, columns, on_rows=on_rows)
        self._waiting: RowCounter | None = None
        self._passed: RowCounter | None = None
        if waiting:
            self._waiting = RowCounter(branch, columns, files=waiting, on_rows=on_rows)
        if passed_over:
            self._passed = RowCounter(branch, columns, files=passed_over, on_rows=on_rows)
        self._off: dict[tuple[TopicPartition, ProblemKind], _Off] = {}

    def count(self, ranges: Sequence[PartitionRange]) -> None:
        main, branch = self._main.count(ranges), self._branch.count(ranges)
        none = [np.zeros(len(each), np.uint8) for each in main]
        waiting = self._waiting.count(ranges) if self._waiting else none
        passed = self._passed.count(ranges) if self._passed else none
        for each, there, landed, waits, left in zip(ranges, main, branch, waiting, passed, strict=True):
            self.rows += int(there.sum(dtype=np.int64))
            published = landed.astype(np.int16) - waits
            difference = there.astype(np.int16) - published
            lacks = np.maximum(-difference, 0)
            forgiven = np.minimum(lacks, left)
            self.left_out += int(forgiven.sum(dtype=np.int64))
            over = np.maximum(difference, 0)
            self._add("missing", each, lacks - forgiven)
            self._add("doubled", each, np.where(published > 0, over, 0))
            self._add("unexpected", each, np.where(published > 0, 0, over))

    def _add(self, kind: ProblemKind, at: PartitionRange, many: np.ndarray) -> None:
        if many.any():
            self._off.setdefault((at.partition, kind), _Off()).add(many, at.range)

    def problems(self, table: str) -> Iterator[AuditProblem]:
        for (partition, kind), off in sorted(self._off.items(), key=lambda item: item[0]):
            rows = "1 row" if off.rows == 1 else f"{off.rows:,} rows"
            said, more = _SENTENCES[kind].format(rows=rows), off.where.more
            within = OffsetRange(off.start, off.end)
            where = tuple(off.where.kept)
            yield AuditProblem(kind, table, partition, within, off.rows, said, where, exact=not more, more=more)
