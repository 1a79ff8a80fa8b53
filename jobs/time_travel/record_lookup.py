"""Record lookup: from topic, partition and offset to the commit that landed the record, and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.table.refs import MAIN_BRANCH

from jobs.commit.offsets import TopicPartition
from jobs.deadletter.retention import EXPIRED_BEFORE
from jobs.formats.problems import DISCARDED
from jobs.state.epochs import EpochRecord, has_exact_file, read_epoch, read_file
from jobs.time_travel.offset_history import OffsetHistory, Passage, offset_history
from jobs.time_travel.reading import Condition, Reading, reading
from jobs.time_travel.record_fate import Found, RecordFate, batch_fate, unlanded_fate
from jobs.time_travel.stored_rows import count_rows, letters_at
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
class RecordAnswer:
    """What became of one record.

    Attributes:
        table: The table that was asked about.
        fate: Of the record.
        landing: The first commit that stands and took it; None if none does.
        others: Other commits that took these coordinates, in order.
        past: Whether the stream stands behind it; if not, it will be read, perhaps again.
        position: Where the stream stands; None if it has no position there.
        first: Where it began there; None if it is not known, or was not asked.
        letters: Dead letters of the record, with what became of them.
        letter_commit: The commit that brought them.
        conditions: What its row in the table fulfils.
        discarded: Dead letters of its row, which an operator took out before main had it.
        in_main: Of a record with such letters, whether main has a row of it all the same: one that came back.
    """

    stream: str
    table: LookedAt
    partition: TopicPartition
    offset: int
    fate: RecordFate
    landing: Commit | None
    others: tuple[Commit, ...]
    past: bool
    position: int | None
    first: int | None
    letters: tuple[dict[str, Any], ...]
    letter_commit: Commit | None
    conditions: Sequence[Condition]
    discarded: tuple[dict[str, Any], ...] = ()
    in_main: bool = False


def look_up_record(tables: StreamTables, partition: TopicPartition, offset: int) -> RecordAnswer:
    """What became of a record.

    Raises:
        FrazilError: A table or the ledger cannot be read.
    """
    rows = tables.recorded.of_offset(partition, offset)
    history = offset_history(_of(rows, tables.sink), partition, offset)
    landing = _commit(tables, tables.sink, history.landing)
    every = letters_at(tables, partition, offset)
    letters = [each for each in every if each.get("error_class") != DISCARDED]
    discarded = tuple(each for each in every if each.get("error_class") == DISCARDED)
    matched = _matching(letters, history)
    commit = _letter_commit(tables, rows, partition, offset, landing) if matched else None
    first, position = None, tables.positions.get(partition)
    if not history.passages:
        first = tables.recorded.first_offset(tables.sink.uuid, partition)
    fate = unlanded_fate(history, offset, first, position)
    found = RecordFate(fate) if fate is not None else _fate(tables, landing, matched, partition, offset)
    kept = [_commit(tables, tables.sink, each) for each in history.passages if each is not history.landing]
    asked = tables.table
    return RecordAnswer(
        tables.spec.stream,
        asked,
        partition,
        offset,
        found,
        landing,
        tuple(each for each in kept if each),
        history.past,
        position,
        first,
        tuple(matched),
        commit,
        asked.conditions(tables.spec.stream, *partition, offset),
        discarded,
        bool(discarded) and _is_in_main(tables, partition, offset),
    )


def _is_in_main(tables: StreamTables, partition: TopicPartition, offset: int) -> bool:
    """Whether main's newest snapshot has a row of a record."""
    head = tables.sink.table.metadata.refs.get(MAIN_BRANCH)
    conditions = tables.sink.conditions(tables.spec.stream, *partition, offset)
    return head is not None and bool(conditions) and count_rows(tables.sink, conditions, head.snapshot_id) > 0


def _of(rows: Sequence[LedgerRow], looked_at: LookedAt) -> list[LedgerRow]:
    last = getattr(looked_at.metadata, "last_sequence_number", None)
    # What the ledger got meanwhile is of a later version of the table.
    return [r for r in rows if r.table_uuid == looked_at.uuid and (last is None or r.sequence <= last)]


def _commit(tables: StreamTables, looked_at: LookedAt, passage: Passage | None) -> Commit | None:
    if passage is None:
        return None
    row, store = passage.row, tables.store
    # What was rolled back is on no line that leads to a later snapshot.
    sequence = row.sequence if passage.removed_by is None else 2**62
    file = "exact" if has_exact_file(store, row.config, row.generation) else None
    if file is None and read_file(store, row.config, row.generation) is not None:
        file = "rows"
    return Commit(passage, reading(looked_at.metadata, row.snapshot_id, sequence), read_epoch(store, row.epoch), file)


def _fate(
    tables: StreamTables,
    landing: Commit | None,
    letters: Sequence[dict[str, Any]],
    partition: TopicPartition,
    offset: int,
) -> RecordFate:
    """The fate of a record that a batch took."""
    assert landing is not None, "a batch took it"
    sink, dead, row = tables.sink, tables.dead, landing.row
    conditions = sink.conditions(tables.spec.stream, *partition, offset)
    rows = None
    if conditions and landing.reading is not None:
        rows = count_rows(sink, conditions, landing.reading.snapshot_id)
    found = Found(
        rows,
        None if dead is None else len(letters),
        landing.reading is not None and landing.reading.exact,
        dead is not None and EXPIRED_BEFORE in dead.metadata.properties,
    )
    return batch_fate(row.counts, row.range.end - row.range.start, found)


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
    passages = offset_history(_of(rows, tables.dead), partition, offset).passages
    standing = [each for each in passages if each.removed_by is None and each.row.kind == "batch"]
    own = [each for each in standing if each.row.batch == landing.row.batch]
    return _commit(tables, tables.dead, next(iter(own or standing), None))
