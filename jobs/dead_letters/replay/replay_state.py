"""Replay state of dead letters: the outcome of a replay for each, and the commit that sets it.

Their rows are rewritten on exactly the head that was read, or not at all.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from jobs.dead_letters.replay.landed import record_keys
from jobs.records.formats.interface.decoder import Failure
from jobs.tables.commit.protocol.proposals import Proposal
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import ReplaceFiles
from jobs.tables.commit.stamp.errors import CommitRefusedError, FencedError, unaccounted
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition, pointwise_max
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.dead_letter_table.parked_letters import TABLE_PARKED
from jobs.tables.dead_letter_table.reader import (
    KEYS,
    UnreadableDeadLettersError,
    data_files,
    read_data_file,
)
from jobs.tables.dead_letter_table.selection import letters_within
from jobs.tables.dead_letter_table.table import REPLAY_STATE_ARROW
from jobs.tables.write.target_writer import TargetWriter

# Dead letters to change, with their new replay state.
CHANGE_ARROW = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("first_seen", pa.timestamp("us", tz="UTC")),
        *REPLAY_STATE_ARROW,
    ]
)

# Placeholder for the snapshot of the present batch, which has no id before its commit.
THIS_BATCH = 0


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """Files to replace others; nothing references the new ones yet."""

    letters: int
    tasks: Sequence[FileScanTask]
    files: Sequence[DataFile]
    writer: TargetWriter
    schema_id: int
    spec_id: int

    def abort(self) -> None:
        """Delete the new files."""
        self.writer.abort()

    def still_fits(self, metadata: TableMetadata, tasks: Sequence[FileScanTask]) -> bool:
        """Whether the replaced files are unchanged: others only added files."""
        now = {task.file.file_path: _deletes(task) for task in tasks}
        return (metadata.current_schema_id, metadata.default_spec_id) == (self.schema_id, self.spec_id) and all(
            now.get(task.file.file_path) == _deletes(task) for task in self.tasks
        )


def replay_state_changes(letters: pa.RecordBatch, *, keep: bool = False, **columns: Any) -> pa.Table:
    """Changes to the replay state of dead letters as of now, in the columns of `CHANGE_ARROW`.

    Args:
        letters: Dead letters in the columns of `DEAD_LETTER_ARROW`.
        keep: Whether other columns stay; otherwise they are null.
        columns: One value for all dead letters, or a list or array with one for each.
    """
    columns = {"state_at": datetime.now(UTC)} | columns

    def column(field: pa.Field) -> pa.Array:
        if field.name not in columns:
            kept = keep or field.name in KEYS
            return letters.column(field.name) if kept else pa.nulls(letters.num_rows, field.type)
        value = columns[field.name]
        return pa.array(value if isinstance(value, list) else [value] * letters.num_rows, field.type)

    return pa.table([column(field) for field in CHANGE_ARROW], schema=CHANGE_ARROW)


def attempts_after(letters: pa.RecordBatch) -> list[int]:
    """Attempts of dead letters plus one."""
    return [(known or 0) + 1 for known in letters.column("attempts").to_pylist()]


def update_replay_state(
    target: Target, changes: pa.Table, *, epoch: int, stamp: Stamp | None = None, undo: bool = False
) -> int:
    """Set the replay state of dead letters by `changes`; idempotent.

    A replayed dead letter stays replayed, a failed replay does not change a dismissed one, and attempts only grow.

    Args:
        target: The dead-letter table, under the replays' id.
        changes: Changes in the columns of `CHANGE_ARROW`.
        epoch: Epoch of the replay; it stops if a later one has claimed the table.
        stamp: Stamp of the commit.
        undo: Whether replayed dead letters are set back as well, because their rows are known to be gone.

    Returns:
        Number of dead letters whose state changed.

    Raises:
        FencedError: A later replay has claimed the table.
        UnreadableDeadLettersError: Some of them are in no readable file, and an unreadable one may have them; nothing
            is changed.
    """
    made: _Rewritten | None = None

    def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[int]:
        nonlocal made
        tasks = data_files(target.table, letters_within(_ranges(changes))) if changes.num_rows else []
        if made is None or not made.still_fits(metadata, tasks):
            if made is not None:
                made.abort()
            made = _rewritten(target, changes, tasks, undo)
        if not made.letters and stamp is None:
            return Proposal(0)
        replaced = ReplaceFiles([task.file for task in made.tasks], made.files)
        return Proposal(made.letters, replaced, _advanced(newest, stamp), {"frazil.letters-changed": str(made.letters)})

    def given_up(said: str) -> CommitRefusedError:
        fix = "if others write to the table, let them finish; then run this again"
        return CommitRefusedError(f"the dead letters of {target.name} could not be changed: {said}", fix=fix)

    try:
        return target.swap(propose, epoch=epoch, given_up=given_up)
    except FencedError:
        if made is not None:
            made.abort()
        raise


def _advanced(newest: Stamp | None, stamp: Stamp | None) -> Stamp | None:
    """The stamp, never behind what the dead letters have recorded already."""
    if stamp is None or newest is None:
        return stamp
    return replace(stamp, position=pointwise_max([newest.position, stamp.position]))


def _rewritten(target: Target, changes: pa.Table, tasks: Sequence[FileScanTask], undo: bool) -> _Rewritten:
    table = target.table
    topics: dict[str, int] = {}
    wanted = record_keys(changes, topics, KEYS)
    writer = TargetWriter(table.metadata, table.io, file_prefix="letters")
    letters, touched = 0, []
    met = np.zeros(changes.num_rows, dtype=bool)
    unreadable: UnreadableDeadLettersError | None = None
    try:
        for task in tasks:
            try:
                before = list(read_data_file(table, task, (*KEYS, "state", "attempts")))
            except UnreadableDeadLettersError as problem:
                # By its statistics it may have some of them; it does only if no other file has them.
                unreadable = problem
                continue
            for batch in before:
                met |= pc.is_in(wanted, value_set=record_keys(batch, topics, KEYS)).to_numpy(zero_copy_only=False)
            if not any(_changed(batch, changes, wanted, topics, undo)[1] for batch in before):
                continue
            touched.append(task)
            for batch in read_data_file(table, task):
                rows, count = _changed(batch, changes, wanted, topics, undo)
                letters += count
                writer.write(rows)
        if unreadable is not None and not met.all():
            raise unreadable
        files = writer.close()
    except BaseException:
        writer.abort()
        raise
    metadata = table.metadata
    return _Rewritten(letters, touched, files, writer, metadata.current_schema_id, metadata.default_spec_id)


def _changed(
    rows: pa.RecordBatch, changes: pa.Table, wanted: pa.Array, topics: dict[str, int], undo: bool
) -> tuple[pa.RecordBatch, int]:
    """Rows with their allowed changes, and the number of changes."""
    at = pc.index_in(record_keys(rows, topics, KEYS), value_set=wanted)
    state, attempts = changes.column("state").take(at), changes.column("attempts").take(at)
    before = pc.fill_null(rows.column("state").cast(pa.string()), "new")
    tried = pc.fill_null(rows.column("attempts"), 0)
    settled = pc.equal(before, "replayed")
    allowed = pc.case_when(
        pc.make_struct(
            pc.equal(state, "replayed"),
            pc.equal(state, "dismissed"),
            pc.equal(state, "new"),
            pc.is_in(state, value_set=pa.array(["failed_again", "parked"])),
        ),
        pc.invert(settled),
        pc.and_(pc.invert(settled), pc.not_equal(before, "dismissed")),
        pc.and_(pc.or_(pc.invert(settled), undo), pc.not_equal(before, "new")),
        pc.and_(
            pc.invert(pc.is_in(before, value_set=pa.array(["replayed", "dismissed"]))),
            pc.less(tried, pc.fill_null(attempts, 0)),
        ),
    )
    change = pc.fill_null(allowed, False)
    count = pc.sum(change).as_py() or 0
    arrays = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if count and name in REPLAY_STATE_ARROW.names:
            new = changes.column(name).take(at).cast(column.type)
            column = pc.if_else(change, new, column)
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names), count


def _ranges(changes: pa.Table) -> dict[TopicPartition, OffsetRange]:
    grouped = changes.group_by(["topic", "partition"]).aggregate([("offset", "min"), ("offset", "max")])
    return {
        TopicPartition(row["topic"], row["partition"]): OffsetRange(row["offset_min"], row["offset_max"] + 1)
        for row in grouped.to_pylist()
    }


def _deletes(task: FileScanTask) -> frozenset[str]:
    return frozenset(file.file_path for file in task.delete_files)


@dataclass(frozen=True, slots=True)
class ReplayAttempt:
    """One replay, as its dead letters record it.

    Attributes:
        park_after: Number of failed attempts after which a dead letter is exhausted.
    """

    replay: str
    by: str | None
    run_id: str | None
    correction: str | None
    park_after: int


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Outcome of a replay for a batch's dead letters, by index: each is in one of the three.

    Attributes:
        landed: Dead letters with rows in the batch's files.
        already_landed: Dead letters whose records have rows already.
        failures: Failures of the others; those of class `table_parked` wait for a table, and count no attempt.
    """

    landed: np.ndarray
    already_landed: np.ndarray
    failures: list[Failure]

    def refuse_unaccounted(self, stream: str, count: int) -> None:
        """Raise if a batch does not add up, before anything of it is committed.

        Args:
            count: Number of dead letters in the batch.

        Raises:
            UnaccountedRecordsError: The number differs from those that landed, had landed already or failed.
        """
        parts = (len(self.landed), len(self.already_landed), len(self.failures))
        if sum(parts) != count:
            landed, before, failed = parts
            raise unaccounted(
                stream,
                f"of {count:,} dead letters {landed:,} landed, {before:,} had landed already and {failed:,} failed, "
                f"which is {sum(parts):,} in all",
            )


def changes_after(letters: pa.RecordBatch, outcome: ReplayOutcome, attempt: ReplayAttempt) -> pa.Table:
    """Complete new replay state of dead letters, in the columns of `CHANGE_ARROW`; setting it twice is harmless.

    Returns:
        Changes; dead letters that wait for a table without commits stay unchanged.
    """
    why = [failure for failure in outcome.failures if failure.error_class != TABLE_PARKED]
    failed = np.array([failure.row for failure in why], np.int64)
    taken = letters.take(pa.array(np.concatenate([outcome.landed, outcome.already_landed, failed]).astype(np.int64)))
    attempts = attempts_after(taken)
    landed, before = len(outcome.landed), len(outcome.already_landed)
    good = landed + before
    return replay_state_changes(
        taken,
        state=["replayed"] * good
        + ["parked" if tried >= attempt.park_after else "failed_again" for tried in attempts[good:]],
        attempts=attempts,
        replay=attempt.replay,
        run_id=attempt.run_id,
        replay_snapshot_id=[THIS_BATCH] * landed + [None] * (taken.num_rows - landed),
        replay_error_class=[None] * good + [failure.error_class for failure in why],
        replay_message=[None] * good + [_message(failure) for failure in why],
        correction=attempt.correction,
        changed_by=attempt.by,
        note=[None] * landed + ["the record's row was in the table already"] * before + [None] * len(why),
    )


def with_snapshot(changes: pa.Table, snapshot: int | None) -> pa.Table:
    """The changes with the id of the batch's snapshot."""
    index = changes.schema.get_field_index("replay_snapshot_id")
    known = [snapshot if each == THIS_BATCH else each for each in changes.column(index).to_pylist()]
    return changes.set_column(index, changes.schema.field(index), pa.array(known, pa.int64()))


def _message(failure: Failure) -> str:
    text = failure.message + (f" at {failure.field}" if failure.field else "")
    return text.encode("utf-8", "backslashreplace").decode()


def changes_as_parquet(changes: pa.Table) -> bytes:
    """The changes of replay state as Parquet, stored until the dead letters have them."""
    sink = pa.BufferOutputStream()
    pq.write_table(changes, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def changes_from_parquet(content: bytes) -> pa.Table:
    """The inverse of `changes_as_parquet`."""
    return pq.read_table(pa.BufferReader(content))
