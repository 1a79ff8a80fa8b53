"""Backfill of a promoted column: data files whose rows have kept values of it make room for others, a few at a time.

Each group of files is one commit of its own, on exactly the head that was read, so a run that is killed has done a part
and the next one does the rest. A stream commits in between: then the same files are committed on its head, if those
that they replace are still there as they were read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import DoubleType, FloatType

from jobs.commit.compare_and_swap import Backoff
from jobs.errors import FrazilError
from jobs.formats.json.seen_values import Place
from jobs.promote.backfill_group import FileGroup, commit_group
from jobs.promote.filling import Filling
from jobs.promote.kept_values import keeping_files, places_of
from jobs.promote.promotion import Promotion
from jobs.schema.declared import JSON_AS_SENT, DeclaredType, ListType, MapType, Primitive, StructType
from jobs.write.data_file_rows import UnreadableFileError, data_files, stored_rows
from jobs.write.manifest_doubles import positions_of_type
from jobs.write.target_writer import TargetWriter

MOST_LEFT = 20
_ROUNDS = 5


@dataclass(slots=True)
class LeftValue:
    """A kept value that does not go to the column.

    Attributes:
        place: Its record.
        error_class: Why.
        field: JSON path of what is at fault.
    """

    place: Place
    error_class: str
    field: str


@dataclass(slots=True)
class Backfilled:
    """What a backfill has come to, or has so far.

    Attributes:
        rows: Whose value has gone to the column.
        files: Data files that made room for others.
        commits: Snapshots of it.
        left: How many values stay kept, because the column does not take them.
        examples: Some of those.
        by_class: How many for which reason.
        skipped: Data files that are left as they are, with the reason.
        looked_at: Data files that were looked at.
        all_files: Those that may have kept anything.
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

    def forget_left(self) -> None:
        """Begin to count anew what stays kept: all files are looked at again."""
        self.left, self.looked_at = 0, 0
        self.examples, self.by_class, self.skipped = [], {}, {}


def backfill(
    table: Table,
    promotion: Promotion,
    coordinates: tuple[str, str, str],
    *,
    verify: Callable[[], None],
    on_progress: Callable[[Backfilled], None] = lambda done: None,
    backoff: Callable[[], Backoff] = Backoff,
) -> Backfilled:
    """Fill a column with what the rows of a table have kept of its field; what was done before is not done again.

    Every other value stays as it is, and so does the number of rows. Memory is bounded by a block and a row group.

    Args:
        table: That has the column.
        promotion: The field.
        coordinates: The columns of topic, partition and offset.
        verify: Raises unless nobody else may rewrite files of the table.
        on_progress: Told after each file that was looked at, and each commit.
        backoff: Between the attempts at a commit.

    Raises:
        FrazilError: The table cannot be rewritten so, or the catalog refuses; what was committed stays.
    """
    refuse_backfill(table, promotion)
    done = Backfilled()
    for _ in range(_ROUNDS):
        done.forget_left()
        if not _round(_Run(table, promotion, coordinates, verify, on_progress, backoff, done)):
            return done
    raise FrazilError(
        f"table {_name(table)}: others rewrote its files again and again meanwhile; {done.rows:,} rows are filled.",
        fix="let the other writers finish, then run this again, which carries on",
    )


@dataclass(frozen=True, slots=True)
class _Run:
    table: Table
    promotion: Promotion
    coordinates: tuple[str, str, str]
    verify: Callable[[], None]
    on_progress: Callable[[Backfilled], None]
    backoff: Callable[[], Backoff]
    done: Backfilled


def _round(run: _Run) -> bool:
    """Look at all files once; returns whether some of them have to be looked at again."""
    table, done = run.table, run.done
    table.refresh()
    filling = Filling(run.promotion, table.schema())
    tasks = keeping_files(table)
    done.all_files = len(tasks)
    stale = False
    group = FileGroup.of(table)
    try:
        for task in tasks:
            _look_at(run, filling, task, group)
            done.looked_at += 1
            run.on_progress(done)
            if group.full:
                whole, group = group, FileGroup.of(table)
                stale |= not _committed(run, whole)
                if not group.is_for(table):
                    return True
        whole, group = group, FileGroup.of(table)
        return not _committed(run, whole) or stale
    except BaseException:
        # A group that is being committed is no longer this one.
        group.abort()
        raise


def _look_at(run: _Run, filling: Filling, task: FileScanTask, group: FileGroup) -> None:
    """Count what a file has kept, and write it anew if some of that goes to the column."""
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


def _rewrite(run: _Run, filling: Filling, task: FileScanTask, group: FileGroup, expected: int) -> None:
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


def _committed(run: _Run, group: FileGroup) -> bool:
    if not group.tasks:
        return True
    if not commit_group(run.table, group, run.promotion.column, verify=run.verify, backoff=run.backoff):
        return False
    run.done.rows += group.rows
    run.done.files += len(group.tasks)
    run.done.commits += 1
    run.on_progress(run.done)
    return True


def refuse_backfill(table: Table, promotion: Promotion) -> None:
    """Say why the rows of a table cannot be given a column, if they cannot.

    Raises:
        FrazilError: An overwrite would not keep what the table's manifests say, or what the column is to have is lost.
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
