"""Places of a record: the tables of a stream that have its row, each with the commit that brought it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.commit.offsets import TopicPartition
from jobs.commit.stamp_history import history
from jobs.commit.target_positions import target_positions
from jobs.state.epochs import EpochRecord, has_exact_file, read_epoch, read_file
from jobs.time_travel.offset_history import OffsetHistory, Passage, offset_history
from jobs.time_travel.reading import Condition, Reading, reading
from jobs.time_travel.stored_rows import count_rows
from jobs.time_travel.stream_tables import LookedAt, StreamTables
from jobs.verify.ledger_row import LedgerRow


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that took the record, with what is known of it.

    Attributes:
        passage: Of the ledger.
        reading: Where its rows can be read; None where nothing is left of them.
        opening: The process that made it; None if it is not kept.
        file: Whether the stream's file is kept as it was: `exact`, with the same rows (`rows`), or not (None).
    """

    passage: Passage
    reading: Reading | None
    opening: EpochRecord | None
    file: str | None

    @property
    def row(self) -> LedgerRow:
        """The row of the ledger."""
        return self.passage.row


@dataclass(frozen=True, slots=True)
class Place:
    """A table that may have the row of a record.

    Attributes:
        table: The table.
        commit: The one that brought the batch there.
        rows: Rows of the record in what can be read of that commit; None if rows do not say which records they are of,
            or if nothing is left.
        conditions: What its row fulfils.
    """

    table: LookedAt
    commit: Commit
    rows: int | None
    conditions: Sequence[Condition] = ()

    @property
    def exact(self) -> bool:
        """Whether the snapshot of that commit itself was looked at: a later one may lack what was deleted since."""
        return self.commit.reading is not None and self.commit.reading.exact


def rows_of(rows: Sequence[LedgerRow], looked_at: LookedAt) -> list[LedgerRow]:
    """The rows of the ledger about one table, as far as it was looked at."""
    last = getattr(looked_at.metadata, "last_sequence_number", None)
    # What the ledger got meanwhile is of a later version of the table.
    return [r for r in rows if r.table_uuid == looked_at.uuid and (last is None or r.sequence <= last)]


def commit_of(tables: StreamTables, looked_at: LookedAt, passage: Passage | None) -> Commit | None:
    """What is known of the commit of a passage."""
    if passage is None:
        return None
    row, store = passage.row, tables.store
    # What was rolled back is on no line that leads to a later snapshot.
    sequence = row.sequence if passage.removed_by is None else 2**62
    file = "exact" if has_exact_file(store, row.config, row.generation) else None
    if file is None and read_file(store, row.config, row.generation) is not None:
        file = "rows"
    return Commit(passage, reading(looked_at.metadata, row.snapshot_id, sequence), read_epoch(store, row.epoch), file)


def places_of(
    tables: StreamTables, rows: Sequence[LedgerRow], history: OffsetHistory, partition: TopicPartition, offset: int
) -> tuple[Place, ...]:
    """The tables that may have the row of a record that a batch took, the stream's own first.

    Args:
        rows: Of the ledger, about the offset, on all tables.
        history: Of the offset on the stream's own table, by a batch.
    """
    found: list[Place] = []
    for looked_at in tables.of_rows:
        own = looked_at is tables.sink
        passage = history.landing if own else passage_with(rows_of(rows, looked_at), history, partition, offset)
        commit = commit_of(tables, looked_at, passage)
        # Of a stream that routes nothing its table is asked in any case: a replay may have brought the row since.
        if commit is None or (commit.row.rows("rows") == 0 and (not own or commit.row.elsewhere)):
            continue
        conditions = looked_at.conditions(tables.spec.stream, *partition, offset)
        counted = None
        if conditions and commit.reading is not None:
            counted = count_rows(looked_at, conditions, commit.reading.snapshot_id)
        found.append(Place(looked_at, commit, counted, conditions))
    return tuple(found)


def passage_with(
    rows: Sequence[LedgerRow], history: OffsetHistory, partition: TopicPartition, offset: int
) -> Passage | None:
    """The commit on another table than the stream's own that goes with a batch of the record; None if none does.

    Only the stream's own table is stamped in every batch, and told of each answer, so it says which commits of the
    record stand and which are of another one that had its coordinates. The other got the same range as part of the
    same batch, by the same driver or by one that completed it. Where what it got had expired before it was noted, any
    may be.

    Args:
        rows: Of the ledger, about the other table.
        history: Of the offset on the stream's own table.
    """
    landing = history.landing
    if landing is None:
        return None
    every = offset_history(rows, partition, offset).passages
    standing = [each for each in every if each.removed_by is None and each.row.kind in ("batch", "unknown")]
    batches = [each.row for each in history.passages if each.removed_by is None and each.life == landing.life]
    # The first batch that took the record there: another one may have read it again, under another route.
    for batch in (landing.row, *batches):
        same = [each for each in standing if each.row.batch == batch.batch and each.row.range.end == batch.range.end]
        same.sort(key=lambda each: (each.row.epoch != batch.epoch, each.row.committed_at < batch.committed_at))
        if same:
            return same[0]
    return next((each for each in standing if each.row.kind == "unknown"), None)


def pending_tables(tables: StreamTables, landing: Commit | None) -> tuple[str, ...]:
    """The other tables that are still to get rows of the batch that took a record, as of a driver at its commits.

    Args:
        landing: The commit on the stream's own table, which comes first.
    """
    newest, sink = tables.newest, tables.sink
    # A claim repeats the batch before it, and so does the stamp of a driver that is to complete it.
    if landing is None or newest is None or landing.row.batch != newest.batch or landing.row.epoch > newest.epoch:
        return ()
    partition, end = landing.row.partition, landing.row.range.end
    if newest.position.get(partition) != end:
        return ()
    found: list[str] = []
    for each in tables.others:
        stamps = {each.target.name: history(each.metadata, tables.spec.stream).newest, sink.target.name: newest}
        stands = target_positions(stamps, sink.target.name)[each.target.name]
        if stands.get(partition, -1) < end:
            found.append(each.target.name)
    return tuple(found)
