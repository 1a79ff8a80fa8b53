"""Backfill of a promoted column: rewrites data files whose rows have rescued values of it, a few files at a time.

Each group of files is one commit, on exactly the head that was read. So if a run is killed, the next one does the rest.
If a stream commits in between, the same files are committed on its head. If others have rewritten files or changed
columns, the backfill stops, and the next run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import DoubleType, FloatType

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.maintenance.backfill.filling import Filling
from jobs.maintenance.backfill.promotion import Promotion
from jobs.maintenance.backfill.rescued_values import files_with_rescued_data, places_of
from jobs.records.formats.json.seen_values import Place
from jobs.records.schema.declared import (
    JSON_AS_SENT,
    DeclaredType,
    ListType,
    MapType,
    Primitive,
    StructType,
)
from jobs.tables.commit.protocol.compare_and_swap import Backoff, compare_and_swap
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import ReplaceFiles
from jobs.tables.commit.stamp.errors import CommitRefusedError
from jobs.tables.commit.stamp.stamps import BACKFILL_KEY
from jobs.tables.write.data_file_rows import UnreadableFileError, data_files, stored_rows
from jobs.tables.write.manifest_doubles import positions_of_type
from jobs.tables.write.target_writer import TargetWriter

ROWS_SUMMARY = "frazil.backfilled-rows"
"""Entry of the summary of a backfill's snapshots: the number of filled rows."""
GROUP_BYTES = 256 * 1024 * 1024
GROUP_FILES = 64
"""Most files that one commit replaces, unless a single file exceeds the size limit."""
MOST_LEFT = 20


class TableChangedError(FrazilError):
    """Others rewrote files of the table, or changed its columns, during a backfill.

    Safe: Rows that are filled stay filled.
    Next: repeat the command, which carries on
    """


@dataclass(slots=True)
class LeftValue:
    """A rescued value that does not go to the column.

    Attributes:
        place: Coordinates of its record.
        error_class: Reason.
        field: JSON path of the fault.
    """

    place: Place
    error_class: str
    field: str


@dataclass(slots=True)
class Backfilled:
    """Result of a backfill, or its state so far.

    Attributes:
        rows: Filled rows.
        files: Replaced data files.
        commits: Its snapshots.
        left: Number of values that stay rescued, because the column does not take them.
        examples: Some of these values.
        by_class: Their number by reason.
        skipped: Data files that stay unchanged, with the reason.
        looked_at: Number of data files that were read.
        all_files: Number of data files that may have rescued values.
    """

    rows: int = 0
    files: int = 0
    commits: int = 0
    left: int = 0
    examples: list[LeftValue] = field(default_factory=list)
    by_class: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    looked_at: int = 0
    all_files: int = 0


def backfill(
    table: Table,
    promotion: Promotion,
    coordinates: tuple[str, str, str],
    *,
    verify: Callable[[], None],
    on_progress: Callable[[Backfilled], None] = lambda done: None,
    backoff: Callable[[], Backoff] = Backoff,
) -> Backfilled:
    """Fill a column with the rescued values of its field; what was done before is not done again.

    All other values and the number of rows stay. Memory is bounded by a block and a row group.

    Args:
        table: The table, which has the column.
        promotion: The promoted field.
        coordinates: The columns of topic, partition and offset.
        verify: Raises if somebody else may rewrite files of the table.
        on_progress: Called after each file and each commit.
        backoff: Makes the pauses between the attempts at a commit.

    Raises:
        TableChangedError: Others have changed the table meanwhile; commits stay, and the next run goes on.
        FrazilError: The table cannot be rewritten, or the catalog refuses; commits stay.
    """
    refuse_backfill(table, promotion)
    table.refresh()
    run = _Run(table, promotion, coordinates, verify, on_progress, backoff)
    filling, tasks, group = Filling(promotion, table.schema()), files_with_rescued_data(table), _FileGroup.of(table)
    run.done.all_files = len(tasks)
    try:
        for task in tasks:
            _look_at(run, filling, task, group)
            run.done.looked_at += 1
            on_progress(run.done)
            if group.full:
                whole, group = group, _FileGroup.of(table)
                _commit(run, whole)
                if not group.is_for(table):
                    raise _changed_meanwhile(run)
        whole, group = group, _FileGroup.of(table)
        _commit(run, whole)
    except BaseException:
        # A group that is being committed is no longer this one.
        group.abort()
        raise
    return run.done


@dataclass(frozen=True, slots=True)
class _Run:
    table: Table
    promotion: Promotion
    coordinates: tuple[str, str, str]
    verify: Callable[[], None]
    on_progress: Callable[[Backfilled], None]
    backoff: Callable[[], Backoff]
    done: Backfilled = field(default_factory=Backfilled)


@dataclass(slots=True)
class _FileGroup:
    """Files to replace others; nothing references the new ones yet.

    Attributes:
        schema_id, spec_id: Schema and partition spec of the new files.
        tasks: Files to replace.
        added: New files.
        writers: Writers of the new files.
        rows: Number of filled rows.
    """

    schema_id: int
    spec_id: int
    tasks: list[FileScanTask] = field(default_factory=list)
    added: list[DataFile] = field(default_factory=list)
    writers: list[TargetWriter] = field(default_factory=list)
    rows: int = 0

    @classmethod
    def of(cls, table: Table) -> _FileGroup:
        """An empty group for the table's present state."""
        return cls(table.metadata.current_schema_id, table.metadata.default_spec_id)

    @property
    def full(self) -> bool:
        """Whether it is as large as one commit may be."""
        size = sum(each.file.file_size_in_bytes for each in self.tasks)
        return size >= GROUP_BYTES or len(self.tasks) >= GROUP_FILES

    def is_for(self, table: Table) -> bool:
        """Whether the table still has the columns and the partitions of the new files."""
        metadata = table.metadata
        return (metadata.current_schema_id, metadata.default_spec_id) == (self.schema_id, self.spec_id)

    def abort(self) -> None:
        """Delete the new files."""
        for writer in self.writers:
            writer.abort()


def _look_at(run: _Run, filling: Filling, task: FileScanTask, group: _FileGroup) -> None:
    """Count a file's rescued values, and rewrite the file if some of them go to the column."""
    file = task.file
    try:
        moved = _count(run, filling, file)
        if not moved:
            return
        if task.delete_files:
            run.done.skipped[file.file_path] = "some of its rows are deleted by delete files"
            return
        _rewrite(run, filling, task, group, moved)
    except UnreadableFileError as problem:
        run.done.skipped[file.file_path] = problem.message


def _count(run: _Run, filling: Filling, file: DataFile) -> int:
    table, done, moved = run.table, run.done, 0
    for rows in stored_rows(table.io, file, table.schema(), {*filling.columns, *run.coordinates}):
        filled = filling.fill(rows)
        moved += filled.moved
        done.left += len(filled.left)
        for each in filled.left:
            done.by_class[each.error_class] = done.by_class.get(each.error_class, 0) + 1
        if filled.left and len(done.examples) < MOST_LEFT:
            places = list(places_of(rows, run.coordinates))
            found = [LeftValue(places[each.row], each.error_class, each.field) for each in filled.left]
            done.examples = [*done.examples, *found][:MOST_LEFT]
    return moved


def _rewrite(run: _Run, filling: Filling, task: FileScanTask, group: _FileGroup, expected: int) -> None:
    table, file = run.table, task.file
    writer = TargetWriter(table.metadata, table.io, file_prefix="backfill")
    moved = 0
    try:
        for rows in stored_rows(table.io, file, table.schema()):
            filled = filling.fill(rows)
            moved += filled.moved
            writer.write(filled.rows)
        added = writer.close()
        count = sum(each.record_count for each in added)
        if (count, moved) != (file.record_count, expected):
            raise FrazilError(
                f"table {_name(table)}: {file.file_path} has {file.record_count:,} rows by its manifest, and {count:,} "
                "were read. It is left as it is.",
                fix=f"frazil audit the stream of table {_name(table)}",
            )
    except BaseException:
        writer.abort()
        raise
    group.tasks.append(task)
    group.added += added
    group.writers.append(writer)
    group.rows += moved


def _commit(run: _Run, group: _FileGroup) -> None:
    """Commit a group on the table's present head.

    Raises:
        FrazilError: The files changed since they were read, and the new ones are deleted; or the catalog refuses, or
            the outcome is unknown, and the new ones are left to orphan removal.
    """
    if not group.tasks:
        return
    table, name, column = run.table, _name(run.table), run.promotion.column
    operation = ReplaceFiles([each.file for each in group.tasks], group.added)
    said = {BACKFILL_KEY: column, ROWS_SUMMARY: str(group.rows)}
    read = table.metadata.current_snapshot_id
    step("backfill_before_commit")

    def attempt() -> None:
        nonlocal read
        run.verify()
        table.refresh()
        if table.metadata.current_snapshot_id != read or not group.is_for(table):
            now = data_files(table)
            if {each.file_path for each in group.added} <= {each.file.file_path for each in now}:
                # A copy of the request has landed, although the request itself was refused.
                return
            if not _still_fits(table, group, now):
                group.abort()
                raise _changed_meanwhile(run)
        read = table.metadata.current_snapshot_id
        commit_once(table, operation, summary=said, properties={})

    def given_up(problem: str) -> CommitRefusedError:
        return CommitRefusedError(
            f"column {column} of table {name} could not be filled further: {problem}.",
            fix="run this again, which carries on",
        )

    compare_and_swap(name, attempt, given_up, run.backoff)
    step("backfill_after_commit")
    run.done.rows += group.rows
    run.done.files += len(group.tasks)
    run.done.commits += 1
    run.on_progress(run.done)


def _changed_meanwhile(run: _Run) -> TableChangedError:
    return TableChangedError(
        f"table {_name(run.table)}: its files or its columns were changed meanwhile; {run.done.rows:,} rows are "
        "filled, and nothing is lost.",
        fix="run this again, which carries on",
    )


def _still_fits(table: Table, group: _FileGroup, now: Iterable[FileScanTask]) -> bool:
    there = {each.file.file_path: _deletes(each) for each in now}
    return group.is_for(table) and all(there.get(each.file.file_path) == _deletes(each) for each in group.tasks)


def _deletes(task: FileScanTask) -> frozenset[str]:
    return frozenset(each.file_path for each in task.delete_files)


def refuse_backfill(table: Table, promotion: Promotion) -> None:
    """Raise if the rows of a table cannot be backfilled.

    Raises:
        FrazilError: An overwrite would not keep what the table's manifests record, or the column's values are lost.
    """
    without = "promote without --backfill: earlier rows keep the field, and are read with coalesce"
    if _as_sent(promotion.type):
        raise FrazilError("texts as they were sent are not kept, so no `json as sent` can be backfilled.", fix=without)
    metadata = table.metadata
    for spec in metadata.partition_specs:
        for kind in (DoubleType, FloatType):
            if positions_of_type(kind, spec, table.schema()):
                raise FrazilError(
                    f"table {_name(table)} is, or was, partitioned by a {kind()}, whose manifests cannot be rewritten "
                    "exactly: nothing is backfilled.",
                    fix=without,
                )
    data_files(table)


def _as_sent(declared: DeclaredType) -> bool:
    match declared:
        case Primitive():
            return declared == JSON_AS_SENT
        case StructType(fields):
            return any(_as_sent(each.type) for each in fields)
        case ListType(element):
            return _as_sent(element)
        case MapType(_, value):
            return _as_sent(value)


def _name(table: Table) -> str:
    return ".".join(table.name())
