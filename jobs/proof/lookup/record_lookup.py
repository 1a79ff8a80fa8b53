"""Places of a record: the tables of a stream that have its row, each with the commit that brought it there."""

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


@dataclass(frozen=True, slots=True)
class RecordAnswer:
    """What became of one record.

    Attributes:
        table: The table that was asked about.
        fate: Of the record.
        landing: The first commit on the stream's own table that stands and took it; None if none does.
        places: The tables that have its row; of a table whose rows do not say which records they are of, those that
            may.
        pending: Other tables that are still to get rows of its batch, perhaps its own.
        others: Other commits that took these coordinates, in order.
        past: Whether the stream stands behind it; if not, it will be read, perhaps again.
        position: Where the stream stands; None if it has no position there.
        first: Where it began there; None if it is not known, or was not asked.
        letters: Dead letters of the record, with what became of them.
        letter_commit: The commit that brought them.
        discarded: Dead letters of its row, which an operator took out before main had it.
        waiting: Dead letters of it that wait, or have waited, for tables that are parked, or were.
        in_main: Of a record with such letters, whether main has a row of it all the same: one that came back.
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
        """Where a table has its row; None if it does not."""
        return next((each for each in self.places if each.table.target.name == table), None)


def look_up_record(tables: StreamTables, partition: TopicPartition, offset: int) -> RecordAnswer:
    """What became of a record.

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
    """Whether a row is a change that went by age, and not by somebody's hand."""
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
    """The fate of a record that a batch took."""
    assert landing is not None, "a batch took it"
    dead, row = tables.dead, landing.row
    counted = [each.rows for each in places if each.rows is not None]
    others = sum(each.commit.row.rows("rows") or 0 for each in places if each.table is not tables.sink)
    # A table whose rows do not tell, or that is gone, may have the row all the same.
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
    """The places that have a row of the record, or may: those whose rows do not tell."""
    return tuple(each for each in places if each.rows is None or each.rows)


def _matching(letters: list[dict[str, Any]], history: OffsetHistory) -> list[dict[str, Any]]:
    """The letters of the batch that is the landing, of all at the coordinates."""
    landing = history.landing
    if landing is None or landing.row.kind != "batch":
        return []
    row = landing.row
    exact = [each for each in letters if (each.get("epoch"), each.get("batch_id")) == (row.epoch, row.batch)]
    if exact or sum(each.removed_by is None for each in history.passages) == 1:
        return exact or letters
    # A batch that a later driver committed from the record has that one's epoch; its letters say who read them.
    return [each for each in letters if each.get("batch_id") == row.batch and (each.get("epoch") or 0) <= row.epoch]


def _letter_commit(
    tables: StreamTables, rows: Sequence[LedgerRow], partition: TopicPartition, offset: int, landing: Commit | None
) -> Commit | None:
    """The commit on the dead letters that goes with the batch."""
    if tables.dead is None or landing is None:
        return None
    passages = offset_history(rows_of(rows, tables.dead), partition, offset).passages
    standing = [each for each in passages if each.removed_by is None and each.row.kind == "batch"]
    own = [each for each in standing if each.row.batch == landing.row.batch]
    return commit_of(tables, tables.dead, next(iter(own or standing), None))
