"""Record lookup: from topic, partition and offset to the commit that landed the record, and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table.refs import MAIN_BRANCH

from jobs.commit.expired_changes import expired_changes
from jobs.commit.offsets import TopicPartition
from jobs.deadletter.parked_letters import TABLE_PARKED, TARGET
from jobs.deadletter.retention import EXPIRED_BEFORE
from jobs.formats.problems import DISCARDED
from jobs.time_travel.offset_history import OffsetHistory, offset_history
from jobs.time_travel.record_fate import Found, RecordFate, batch_fate, unlanded_fate
from jobs.time_travel.record_places import Commit, Place, commit_of, pending_tables, places_of, rows_of
from jobs.time_travel.stored_rows import count_rows, letters_at
from jobs.time_travel.stream_tables import LookedAt, StreamTables
from jobs.verify.ledger_row import LedgerRow


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
