"""Small merge: an increment of few changes becomes the rows of a mirror in this process, without Spark.

It reads the changes, and of the mirror's files those columns that tell which rows they meet. New rows go into data
files, the positions of those that they replace into files of deletes, and one commit on the branch has both: what
Spark's MERGE makes of the same. Whatever is more than that is left to Spark: late changes, truncates, keys that have
to be folded again, and tables that are not written here.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.mirrors.fold.change_frame import AT, LINEAGE, OFFSET, PARTITION, POSITION, TOPIC, log_scans_here
from jobs.mirrors.fold.fold import (
    DELETE,
    FOLD_COLUMN,
    OP_COLUMN,
    REFOLD_COLUMN,
    UNAVAILABLE_COLUMN,
    UPSERT,
    sorted_rows,
)
from jobs.mirrors.fold.fold_tasks import FoldTask, OrderTask
from jobs.mirrors.fold.order import Order, increment_order
from jobs.mirrors.fold.refold import rows_behind
from jobs.mirrors.fold.row_filter import FILTERED_COLUMN, PROBLEM_COLUMN, UNJUDGED_COLUMN, RowFilter
from jobs.mirrors.merge.mirror_table import refuse_unread
from jobs.mirrors.merge.small_merge.changed_keys import KEY_TYPES, ChangedKeys
from jobs.mirrors.merge.small_merge.mirror_files import MirrorFiles, NotSmallError
from jobs.mirrors.merge.small_merge.new_rows import (
    in_types_of,
    new_rows,
    one_array,
    replaced_rows,
    unmet_rows,
    with_former_deletes,
)
from jobs.mirrors.merge.small_merge.rows_there import RowsThere, may_have_rows, rows_there
from jobs.mirrors.model.merge_plan import ORDER_COLUMN, MergePlan, MergeResult
from jobs.quality.incremental_scan.arrow_rows import table_batches
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import RowDelta
from jobs.tables.commit.stamp.errors import CommitRefusedError
from jobs.tables.write.data_file_rows import UnreadableFileError
from jobs.tables.write.file_access import delete_unreferenced
from jobs.tables.write.position_deletes import write_position_deletes
from jobs.tables.write.projection import ProjectionError
from jobs.tables.write.target_writer import TargetWriter

log = logging.getLogger(__name__)

MOST_ROWS = 100_000
MOST_BYTES = 32 * 1024**2
"""Of the values: a merge has several copies of them at once."""
_ROWS_AT_ONCE = 1_024
"""A large text that many rows have is once in a file, and as often in a batch as there are rows."""
_BYTES_AT_ONCE = 8 * 1024**2
_OPTIONAL: dict[str, pa.DataType] = {
    POSITION: pa.string(),
    LINEAGE: pa.string(),
    AT: pa.timestamp("us", "UTC"),
    UNAVAILABLE_COLUMN: pa.list_(pa.string()),
}
_MOST_MET = 400_000
"""Rows of the mirror with keys of changes; there are more than changes where keys stand there several times."""


def merge_small(
    changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
) -> MergeResult | None:
    """Merge the changes in data files into a branch of the mirror, in one commit.

    Merging the same files again, from where the branch stood before, gives the same.

    Args:
        changelog: With the schema by which its rows are read.
        files: What the increment added to the changelog.
        mirror: With the columns of the plan, `_change_order`, and `_change_deleted` if deletes are soft.
        branch: Of the mirror; nobody else writes it.

    Returns:
        None if the merge is left to Spark; nothing has changed then.

    Raises:
        NullKeyError, RestoredSourceError, UnorderedTruncateError, ScatteredChangesError: The mirror has to stop.
        CommitRefusedError, CommitDeniedError, CommitUnknownError: The branch is not as it was, or the catalog refuses.
        OSError: Files cannot be written.
        FrazilError: A table is none that Spark could read.
    """
    refuse_unread(plan.stream, changelog, mirror)
    if not files:
        return MergeResult(plan.state)
    try:
        _refuse_table(mirror, plan)
        changes = _small_increment(changelog, files, plan)
        if changes is None:
            raise NotSmallError("there are many changes")
        return _Merge(mirror, branch, plan, changes).run()
    except (NotSmallError, UnreadableFileError, ProjectionError, pa.ArrowException) as why:
        log.info("mirror %s: Spark merges: %s", ".".join(mirror.name()), why)
        return None


def _small_increment(changelog: Table, files: Sequence[DataFile], plan: MergePlan) -> pa.Table | None:
    """The changes in data files, in the columns that ordering and folding go by; None if they are many.

    Args:
        changelog: With the schema by which its rows are read.
        files: At least one.

    Raises:
        UnreadableFileError: A file is no Parquet file with field ids, or it cannot be read.
    """
    rows, size = sum(file.record_count for file in files), sum(file.file_size_in_bytes for file in files)
    if rows > MOST_ROWS or size > MOST_BYTES:
        return None
    places = dict(zip((TOPIC, PARTITION, OFFSET), plan.coordinates, strict=True))
    names = {name: name for name in (*plan.columns, OP_COLUMN, *_OPTIONAL)} | places
    schema = changelog.schema()
    wanted = {*names.values()} & {field.name for field in schema.fields}
    batches, size = list[pa.RecordBatch](), 0
    for file in files:
        for batch in table_batches(changelog.io, file, schema, wanted, rows=_ROWS_AT_ONCE, batch_bytes=_BYTES_AT_ONCE):
            size += batch.nbytes
            if size > MOST_BYTES:
                return None
            batches.append(batch)
    found = pa.Table.from_batches(batches)
    columns = {
        name: found[given] if given in wanted else pa.nulls(found.num_rows, _OPTIONAL[name])
        for name, given in names.items()
    }
    return pa.table(columns)


def _refuse_table(mirror: Table, plan: MergePlan) -> None:
    """See that the mirror is a table that is written here."""
    metadata = mirror.metadata
    if metadata.format_version != 2:
        raise NotSmallError(f"the table has format {metadata.format_version}")
    if metadata.properties.get("write.merge.mode") != "merge-on-read":
        raise NotSmallError("its files are to be written anew (write.merge.mode)")
    kinds = {name: mirror.schema().find_type(name) for name in plan.key}
    if others := [f"{name} {kind}" for name, kind in kinds.items() if not isinstance(kind, KEY_TYPES)]:
        raise NotSmallError(f"the key has {', '.join(others)}")


class _Merge:
    """One merge.

    Args:
        changes: All of the increment.
    """

    def __init__(self, mirror: Table, branch: str, plan: MergePlan, changes: pa.Table) -> None:
        self.mirror: Table = mirror
        self.branch: str = branch
        self.plan: MergePlan = plan
        self.changes: pa.Table = changes
        self.head: int = mirror.metadata.refs[branch].snapshot_id
        self.written_for: tuple[int, int] = _ids(mirror)

    def run(self) -> MergeResult:
        plan = self.plan
        scans = log_scans_here(self.changes, plan)
        order, counts = increment_order(plan, scans)
        if counts.late:
            raise NotSmallError("changes have come late")
        if order.state.floors != plan.state.floors:
            raise NotSmallError("the source was truncated")
        folded = self._folded(order)
        if folded is None:
            return MergeResult(order.state, counts)
        for column, why in (
            (REFOLD_COLUMN, "values were sent before the key was inserted"),
            (UNJUDGED_COLUMN, "the filter reads values that were not sent"),
        ):
            if pc.any(folded[column]).as_py():
                raise NotSmallError(why)
        if folded[PROBLEM_COLUMN].null_count < folded.num_rows:
            raise NotSmallError("the filter has no answer for a row")
        gone = pc.equal(folded[FOLD_COLUMN], DELETE)
        removed = pc.max(folded[ORDER_COLUMN].filter(gone)).as_py() or ""
        deletes = pc.sum(gone).as_py()
        counts = replace(
            counts,
            upserts=folded.num_rows - deletes,
            deletes=deletes,
            filtered=pc.sum(folded[FILTERED_COLUMN]).as_py(),
        )
        state = replace(order.state, removed=max(order.state.removed, removed))
        return MergeResult(state, counts, self._merged(folded))

    def _folded(self, order: Order) -> pa.Table | None:
        """One row for each key; None without one."""
        plan = self.plan
        ordered = list(OrderTask(order, plan.columns)(self.changes.to_batches()))
        rows = sorted_rows(pa.Table.from_batches(ordered), (*plan.key, ORDER_COLUMN)).combine_chunks()
        row_filter = RowFilter.of(plan.where, self.mirror.schema(), plan.columns)
        folded = list(FoldTask(plan.key, plan.columns, row_filter)(rows.to_batches()))
        return pa.Table.from_batches(folded).combine_chunks() if folded else None

    def _merged(self, folded: pa.Table) -> tuple[int, ...]:
        """Write and commit what becomes of the folded rows; the ids of the snapshots, one or none."""
        mirror, prefix = self.mirror, f"merge-{self.branch}"
        found = MirrorFiles.of(mirror, self.head)
        there = self._rows_there(found, folded)
        inserted = pc.and_(pa.array(unmet_rows(folded, there)), pc.equal(one_array(folded[FOLD_COLUMN]), UPSERT))
        behind = rows_behind(one_array(folded[ORDER_COLUMN]), self.plan.state.removed)
        if pc.any(pc.and_(inserted, behind)).as_py():
            raise NotSmallError("rows may have been removed by a later change")
        writer = TargetWriter(mirror.metadata, mirror.io, file_prefix=prefix)
        deletes, replaced = list[DataFile](), list[DataFile]()
        try:
            for batch in new_rows(mirror, folded, there, self.plan):
                writer.write(batch)
            files = writer.close()
            for at, positions in replaced_rows(there):
                former, positions = with_former_deletes(mirror, found, at, positions)
                replaced += former
                deletes.append(
                    write_position_deletes(mirror.metadata, mirror.io, at.file.partition, positions, prefix=prefix)
                )
        except Exception:
            with contextlib.suppress(Exception):
                writer.abort()
                delete_unreferenced(mirror.io, deletes)
            raise
        if not files and not deletes:
            return ()
        return (self._committed(RowDelta(self.branch, self.head, files, deletes, replaced)),)

    def _committed(self, delta: RowDelta) -> int:
        """Commit to the branch, whatever happens to main meanwhile; files of what is refused are orphans."""
        mirror = self.mirror
        name = ".".join(mirror.name())
        tables = itertools.chain([mirror], iter(lambda: mirror.catalog.load_table(mirror.name()), None))

        def attempt() -> int:
            table = next(tables)
            there = table.metadata.refs.get(self.branch)
            if there is None or there.snapshot_id != self.head:
                raise given_up(f"branch {self.branch} of mirror {name} is not as this merge began")
            if _ids(table) != self.written_for:
                # Manifests have the partitions of the table: those of the files would be taken for others.
                raise given_up(f"columns or partitions of mirror {name} were changed while a merge was made")
            return commit_once(table, delta, summary={}, properties={})

        def given_up(said: str) -> CommitRefusedError:
            return CommitRefusedError(
                f"stream {self.plan.stream}: {said}. Nothing was published.",
                fix=f"frazil mirror run {self.plan.stream}",
            )

        return compare_and_swap(name, attempt, given_up)

    def _rows_there(self, found: MirrorFiles, folded: pa.Table) -> list[RowsThere]:
        """The rows of the branch that the folded ones meet."""
        mirror = self.mirror
        keys = in_types_of(mirror.schema(), folded, self.plan.key)
        files = may_have_rows(found.data, mirror, keys, self.plan.key[0])
        try:
            there = rows_there(mirror, found, files, ChangedKeys(keys), one_array(folded[ORDER_COLUMN]))
        except (OSError, pa.ArrowException) as problem:
            raise NotSmallError(f"deletes cannot be read: {problem}") from problem
        if sum(len(part.positions) for part in there) > _MOST_MET:
            raise NotSmallError(f"the keys stand in more than {_MOST_MET:,} rows")
        return there


def _ids(table: Table) -> tuple[int, int]:
    """Those of a table's columns and partitions."""
    return table.metadata.current_schema_id, table.metadata.default_spec_id
