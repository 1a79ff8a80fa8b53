"""Record lookup: the tables of a stream with a record's row, each with the commit that brought it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table.refs import MAIN_BRANCH

from jobs.clients.state_store.epochs import (
    EpochRecord,
    has_exact_file,
    read_epoch,
    read_file,
)
from jobs.proof.lookup.reading import Condition, Reading, reading
from jobs.proof.lookup.record_fate import (
    Found,
    OffsetHistory,
    Passage,
    RecordFate,
    batch_fate,
    offset_history,
    unlanded_fate,
)
from jobs.proof.lookup.stored_rows import count_rows, letters_at
from jobs.proof.lookup.stream_tables import LookedAt, StreamTables
from jobs.records.formats.interface.problems import DISCARDED
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.expired_changes import expired_changes
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.target_positions import target_positions
from jobs.tables.dead_letter_table.parked_letters import TABLE_PARKED, TARGET
from jobs.tables.dead_letter_table.retention import EXPIRED_BEFORE
from jobs.tables.ledger.ledger_row import LedgerRow


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that took the record, with its details.

    Attributes:
        passage: Passage of the ledger.
        reading: Snapshot from which its rows can be read; None if none exists.
        opening: Process that made it; None if not recorded.
        file: Whether the stream's file of that time is stored: `exact`, with the same rows (`rows`), or not (None).
    """

    passage: Passage
    reading: Reading | None
    opening: EpochRecord | None
    file: str | None

    @property
    def row(self) -> LedgerRow:
        """Row of the ledger."""
        return self.passage.row


@dataclass(frozen=True, slots=True)
class Place:
    """A table that may have the row of a record.

    Attributes:
        table: The table.
        commit: Commit that brought the batch there.
        rows: Rows of the record in the readable snapshot of that commit; None if rows lack coordinates, or no snapshot
            exists.
        conditions: Conditions that match its row.
    """

    table: LookedAt
    commit: Commit
    rows: int | None
    conditions: Sequence[Condition] = ()

    @property
    def exact(self) -> bool:
        """Whether the snapshot of that commit itself was read: a later one may lack deleted rows."""
        return self.commit.reading is not None and self.commit.reading.exact


def rows_of(rows: Sequence[LedgerRow], looked_at: LookedAt) -> list[LedgerRow]:
    """Ledger rows of one table, up to its loaded version."""
    last = getattr(looked_at.metadata, "last_sequence_number", None)
    # Rows that the ledger got meanwhile are of a later version of the table.
    return [r for r in rows if r.table_uuid == looked_at.uuid and (last is None or r.sequence <= last)]


def commit_of(tables: StreamTables, looked_at: LookedAt, passage: Passage | None) -> Commit | None:
    """Details of a passage's commit."""
    if passage is None:
        return None
    row, store = passage.row, tables.store
    # A commit that was rolled back is in no later snapshot's history.
    sequence = row.sequence if passage.removed_by is None else 2**62
    file = "exact" if has_exact_file(store, row.config, row.generation) else None
    if file is None and read_file(store, row.config, row.generation) is not None:
        file = "rows"
    return Commit(passage, reading(looked_at.metadata, row.snapshot_id, sequence), read_epoch(store, row.epoch), file)


def places_of(
    tables: StreamTables, rows: Sequence[LedgerRow], history: OffsetHistory, partition: TopicPartition, offset: int
) -> tuple[Place, ...]:
    """Tables that may have the row of a record that a batch took, the main table first.

    Args:
        rows: Ledger rows about the offset, of all tables.
        history: History of the offset on the main table, with a batch.
    """
    found: list[Place] = []
    for looked_at in tables.of_rows:
        own = looked_at is tables.sink
        passage = history.landing if own else passage_with(rows_of(rows, looked_at), history, partition, offset)
        commit = commit_of(tables, looked_at, passage)
        # Without a route the main table is always checked: a replay may have brought the row since.
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
    """Commit on another table that belongs to a batch of the record; None without one.

    Only the main table is stamped in every batch and with each answer. So it shows which commits of the record exist,
    and which are of another record with its coordinates. The other table got the same range as part of the same batch,
    from the same driver or from one that completed it. If its stamps had expired before they were recorded, any commit
    is possible.

    Args:
        rows: Ledger rows of the other table.
        history: History of the offset on the main table.
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
    """Other tables that have yet to get rows of the batch that took a record, while a driver commits.

    Args:
        landing: Commit on the main table, which comes first.
    """
    newest, sink = tables.newest, tables.sink
    # A claim repeats the previous batch, and so does the stamp of a driver that is to complete it.
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


@dataclass(frozen=True, slots=True)
class RecordAnswer:
    """Answer about one record.

    Attributes:
        table: The requested table.
        fate: Fate of the record.
        landing: First existing commit on the main table that took it; None without one.
        places: Tables that have its row, or may have it if their rows lack coordinates.
        pending: Other tables that have yet to get rows of its batch, perhaps its own.
        others: Other commits that took these coordinates, in order.
        past: Whether the stream is past it; otherwise it will be read, perhaps again.
        position: Position of the stream; None without one.
        first: First offset of the stream there; None if unknown or not requested.
        letters: Dead letters of the record, with their state.
        letter_commit: Commit that brought them.
        discarded: Dead letters of its row, which an operator discarded before publication.
        waiting: Dead letters that wait, or have waited, for tables that are or were suspended.
        in_main: For a record with such dead letters, whether main has a row of it nevertheless, from a replay.
    """

    stream: str
    table: LookedAt
    partition: TopicPartition
    offset: int
    fate: RecordFate
    landing: Commit | None
    places: tuple[Place, ...]
    others: tuple[Commit, ...]
    past: bool
    position: int | None
    first: int | None
    letters: tuple[dict[str, Any], ...]
    letter_commit: Commit | None
    discarded: tuple[dict[str, Any], ...] = ()
    in_main: bool = False
    pending: tuple[str, ...] = ()
    waiting: tuple[dict[str, Any], ...] = ()

    def place_in(self, table: str) -> Place | None:
        """Table entry with its row; None if the table does not have it."""
        return next((each for each in self.places if each.table.target.name == table), None)


def look_up_record(tables: StreamTables, partition: TopicPartition, offset: int) -> RecordAnswer:
    """Look up the fate of a record.

    Raises:
        FrazilError: A table or the ledger cannot be read.
    """
    rows = tables.recorded.of_offset(partition, offset)
    history = offset_history(rows_of(rows, tables.sink), partition, offset)
    landing = commit_of(tables, tables.sink, history.landing)
    every = letters_at(tables, partition, offset)
    letters = [each for each in every if each.get("error_class") not in (DISCARDED, TABLE_PARKED)]
    waiting = tuple(each for each in every if each.get("error_class") == TABLE_PARKED)
    discarded = tuple(each for each in every if each.get("error_class") == DISCARDED)
    matched = _matching(letters, history)
    commit = _letter_commit(tables, rows, partition, offset, landing) if matched else None
    first, position = None, tables.positions.get(partition)
    if not history.passages:
        first = tables.recorded.first_offset(tables.sink.uuid, partition)
    fate = unlanded_fate(history, offset, first, position)
    places = places_of(tables, rows, history, partition, offset) if fate is None else ()
    found = RecordFate(fate) if fate is not None else _fate(tables, landing, places, matched)
    if waiting and found.fate in ("row", "undecided") and not any(each.rows for each in places):
        found = RecordFate("parked")
    if found.fate == "row" and found.deleted:
        found = replace(found, expired=_has_expired([each.table for each in places], partition, offset))
    kept = [commit_of(tables, tables.sink, each) for each in history.passages if each is not history.landing]
    return RecordAnswer(
        tables.spec.stream,
        tables.table,
        partition,
        offset,
        found,
        landing,
        _having(places) if found.fate == "row" and not found.deleted else (),
        tuple(each for each in kept if each),
        history.past,
        position,
        first,
        tuple(matched),
        commit,
        discarded,
        bool(discarded) and _is_in_main(tables, partition, offset),
        tuple(
            name
            for name in (pending_tables(tables, landing) if fate is None else ())
            if name not in {each.get(TARGET) for each in waiting}
        ),
        waiting,
    )


def _has_expired(tables: Sequence[LookedAt], partition: TopicPartition, offset: int) -> bool:
    """Whether a row is a change that expired by age, and was not deleted otherwise."""
    known = (expired_changes(each.table.metadata.properties, each.target.name) for each in tables)
    return any(each is not None and offset < each.offsets.get(partition, 0) for each in known)


def _is_in_main(tables: StreamTables, partition: TopicPartition, offset: int) -> bool:
    """Whether main's newest snapshot has a row of a record."""
    head = tables.sink.table.metadata.refs.get(MAIN_BRANCH)
    conditions = tables.sink.conditions(tables.spec.stream, *partition, offset)
    return head is not None and bool(conditions) and count_rows(tables.sink, conditions, head.snapshot_id) > 0


def _fate(
    tables: StreamTables, landing: Commit | None, places: Sequence[Place], letters: Sequence[dict[str, Any]]
) -> RecordFate:
    """Fate of a record that a batch took."""
    assert landing is not None, "a batch took it"
    dead, row = tables.dead, landing.row
    counted = [each.rows for each in places if each.rows is not None]
    others = sum(each.commit.row.rows("rows") or 0 for each in places if each.table is not tables.sink)
    # A dropped table, or one whose rows lack coordinates, may have the row nevertheless.
    known = len(counted) == len(places) and others >= row.elsewhere
    rows = sum(counted) if known or any(counted) else None
    found = Found(
        rows,
        None if dead is None else len(letters),
        all(each.exact for each in places),
        dead is not None and EXPIRED_BEFORE in dead.metadata.properties,
    )
    return batch_fate(row.counts, row.range.end - row.range.start, found)


def _having(places: Sequence[Place]) -> tuple[Place, ...]:
    """Places with a row of the record, or possibly with one if rows lack coordinates."""
    return tuple(each for each in places if each.rows is None or each.rows)


def _matching(letters: list[dict[str, Any]], history: OffsetHistory) -> list[dict[str, Any]]:
    """Dead letters of the landing batch, among all at the coordinates."""
    landing = history.landing
    if landing is None or landing.row.kind != "batch":
        return []
    row = landing.row
    exact = [each for each in letters if (each.get("epoch"), each.get("batch_id")) == (row.epoch, row.batch)]
    if exact or sum(each.removed_by is None for each in history.passages) == 1:
        return exact or letters
    # A batch committed by a later driver from the record has that driver's epoch; its dead letters have the reader's.
    return [each for each in letters if each.get("batch_id") == row.batch and (each.get("epoch") or 0) <= row.epoch]


def _letter_commit(
    tables: StreamTables, rows: Sequence[LedgerRow], partition: TopicPartition, offset: int, landing: Commit | None
) -> Commit | None:
    """Commit on the dead letters that belongs to the batch."""
    if tables.dead is None or landing is None:
        return None
    passages = offset_history(rows_of(rows, tables.dead), partition, offset).passages
    standing = [each for each in passages if each.removed_by is None and each.row.kind == "batch"]
    own = [each for each in standing if each.row.batch == landing.row.batch]
    return commit_of(tables, tables.dead, next(iter(own or standing), None))
