"""Small merge: few new changes are merged into a mirror in this process, without Spark.

It reads the changes, and the key columns of the mirror's files to find the rows that the changes meet. One commit on
the branch adds new rows in data files, and the positions of the rows that they replace in delete files, as Spark's
MERGE does. Spark merges everything else: late changes, truncates, keys that need all their changes, and tables that
this module cannot write.
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
"""Limit of bytes in the changes: a merge has several copies of them at once."""
_ROWS_AT_ONCE = 1_024
"""Rows in a batch. A large text of many rows is in a file once, but in a batch once for each row."""
_BYTES_AT_ONCE = 8 * 1024**2
_OPTIONAL: dict[str, pa.DataType] = {
    POSITION: pa.string(),
    LINEAGE: pa.string(),
    AT: pa.timestamp("us", "UTC"),
    UNAVAILABLE_COLUMN: pa.list_(pa.string()),
}
_MOST_MET = 400_000
"""Limit of the mirror's rows that changes meet; duplicate keys in the mirror may make them more than the changes."""


def merge_small(
    changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
) -> MergeResult | None:
    """Merge the changes in data files into a branch of the mirror, in one commit.

    If the same files are merged again into the branch's former head, the result is the same.

    Args:
        changelog: Changelog with the schema to read its rows with.
        files: Data files with the new changes.
        mirror: Mirror with the plan's columns, `_change_order`, and `_change_deleted` if deletes are soft.
        branch: Branch of the mirror; nobody else writes it.

    Returns:
        None if the merge is left to Spark; nothing has changed then.

    Raises:
        NullKeyError, RestoredSourceError, UnorderedTruncateError, ScatteredChangesError: The mirror has to stop.
        CommitRefusedError, CommitDeniedError, CommitUnknownError: The branch has moved, or the catalog refuses.
        OSError: Files cannot be written.
        FrazilError: Spark cannot read one of the tables.
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
    """Read the changes in data files, with the columns that ordering and collapsing need; None if there are many.

    Args:
        changelog: Changelog with the schema to read its rows with.
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
    """Refuse a mirror that this module cannot write.

    Raises:
        NotSmallError: Its format version, write mode or key is not supported here.
    """
    metadata = mirror.metadata
    if metadata.format_version != 2:
        raise NotSmallError(f"the table has format {metadata.format_version}")
    if metadata.properties.get("write.merge.mode") != "merge-on-read":
        raise NotSmallError("its files are to be rewritten (write.merge.mode)")
    kinds = {name: mirror.schema().find_type(name) for name in plan.key}
    if others := [f"{name} {kind}" for name, kind in kinds.items() if not isinstance(kind, KEY_TYPES)]:
        raise NotSmallError(f"the key has {', '.join(others)}")


class _Merge:
    """One merge.

    Args:
        changes: All new changes.
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
        """Collapse the changes by key; None if no change is left."""
        plan = self.plan
        ordered = list(OrderTask(order, plan.columns)(self.changes.to_batches()))
        rows = sorted_rows(pa.Table.from_batches(ordered), (*plan.key, ORDER_COLUMN)).combine_chunks()
        row_filter = RowFilter.of(plan.where, self.mirror.schema(), plan.columns)
        folded = list(FoldTask(plan.key, plan.columns, row_filter)(rows.to_batches()))
        return pa.Table.from_batches(folded).combine_chunks() if folded else None

    def _merged(self, folded: pa.Table) -> tuple[int, ...]:
        """Write and commit the collapsed rows; return the ids of the new snapshots, one or none."""
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
        """Commit to the branch, whatever happens to main meanwhile; a refused commit leaves its files as orphans."""
        mirror = self.mirror
        name = ".".join(mirror.name())
        tables = itertools.chain([mirror], iter(lambda: mirror.catalog.load_table(mirror.name()), None))

        def attempt() -> int:
            table = next(tables)
            there = table.metadata.refs.get(self.branch)
            if there is None or there.snapshot_id != self.head:
                raise given_up(f"branch {self.branch} of mirror {name} is not as this merge began")
            if _ids(table) != self.written_for:
                # A manifest has the table's present partitioning, which would not be that of the files.
                raise given_up(f"columns or partitions of mirror {name} were changed while a merge was made")
            return commit_once(table, delta, summary={}, properties={})

        def given_up(said: str) -> CommitRefusedError:
            return CommitRefusedError(
                f"stream {self.plan.stream}: {said}. Nothing was published.",
                fix=f"frazil mirror run {self.plan.stream}",
            )

        return compare_and_swap(name, attempt, given_up)

    def _rows_there(self, found: MirrorFiles, folded: pa.Table) -> list[RowsThere]:
        """Return the rows of the branch that the collapsed rows meet."""
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
    """Return the ids of a table's schema and partitioning."""
    return table.metadata.current_schema_id, table.metadata.default_spec_id
