"""Facts of `frazil at`: what was found, as `--json` prints it and as the text is made of."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from jobs.commit.event_times import EventTimes, as_datetime
from jobs.commit.lateness import LATENESS_NAMES
from jobs.commit.offsets import by_topic
from jobs.state.epochs import EpochRecord
from jobs.time_travel.reading import Condition, Reading, pyiceberg_filter, pyiceberg_line, spark_sql
from jobs.time_travel.record_fate import sentence
from jobs.time_travel.record_lookup import Commit, Place, RecordAnswer
from jobs.time_travel.snapshot_lookup import InstantAnswer, SnapshotAnswer
from jobs.time_travel.source_record import SourceLogs
from jobs.time_travel.stream_tables import StreamTables
from jobs.verify.ledger_row import LedgerRow


def record_facts(tables: StreamTables, answer: RecordAnswer, logs: SourceLogs) -> dict[str, Any]:
    """What became of a record, and whether Kafka still has it."""
    dead = tables.dead
    # A dead letter is read in the table of the dead letters, whichever was asked about.
    in_letters = answer.fate.fate == "dead_letter" and dead is not None
    # Of several tables with its row the one that was asked about is told first.
    places = sorted(answer.places, key=lambda each: each.table is not answer.table)
    where = dead if in_letters and dead is not None else places[0].table if places else tables.sink
    landed = answer.landing.passage if answer.landing else None
    rows = [_row_facts(tables, answer, each) for each in places]
    read = rows[0]["read"] if rows else None
    if in_letters and not answer.fate.deleted:
        found = answer.letter_commit.reading if answer.letter_commit else None
        conditions = where.conditions(answer.stream, *answer.partition, answer.offset)
        read = reading_facts(tables, where.target.name, found, conditions)
    return {
        "stream": answer.stream,
        "topic": answer.partition.topic,
        "partition": answer.partition.partition,
        "offset": answer.offset,
        "table": where.target.name,
        "fate": answer.fate.fate,
        "possible": list(answer.fate.possible),
        "deleted": answer.fate.deleted,
        "sentence": sentence(answer.fate, landed, answer.position, answer.first),
        "to_be_read_again": bool(answer.landing or answer.others) and not answer.past and not _retired(answer),
        "stands_at": answer.position,
        "landing_table": tables.sink.target.name,
        "landing": _commit_facts(answer.landing) if answer.landing else None,
        "rows": rows,
        "pending_tables": list(answer.pending),
        "letters": [_letter(each) for each in answer.letters],
        "letters_landing": _commit_facts(answer.letter_commit) if answer.letter_commit else None,
        "parked": [_letter(each) for each in answer.waiting],
        "discarded": [_letter(each) for each in answer.discarded],
        "others": [_commit_facts(each) for each in answer.others],
        "branch": where.branch,
        "branch_written": where.target.branch,
        "source": _source(answer, logs),
        "published": rows[0]["published"] if rows and where is tables.sink else None,
        "read": read,
    }


def _row_facts(tables: StreamTables, answer: RecordAnswer, place: Place) -> dict[str, Any]:
    """A table that has the row of a record, the commit that brought it there, and how to read it."""
    row, name = place.commit.row, place.table.target.name
    return {
        "table": name,
        # Rows of a table without Kafka's columns do not say which records they are of.
        "certain": place.rows is not None,
        "snapshot_id": row.snapshot_id or None,
        "committed_at": row.committed_at.isoformat(timespec="milliseconds"),
        "expired": not place.exact,
        "branch": place.table.branch,
        "branch_written": place.table.target.branch,
        "published": _published(tables, answer, place),
        "read": reading_facts(tables, name, place.commit.reading, list(place.conditions)),
    }


def _published(tables: StreamTables, answer: RecordAnswer, place: Place) -> dict[str, Any] | None:
    """Whether main has the row; None if the stream writes main."""
    found = tables.published(place.commit.row.sequence) if place.table is tables.sink else None
    if not found:
        return None
    if answer.discarded:
        return {"in_main": answer.in_main, "read": None}
    name = place.table.target.name
    return {"in_main": found.in_main, "read": reading_facts(tables, name, found.reading, list(place.conditions))}


def _source(answer: RecordAnswer, logs: SourceLogs) -> dict[str, Any]:
    ended = answer.landing.passage.ended_by if answer.landing else None
    found = logs.record(answer.partition, answer.offset, another=ended is not None)
    return {
        "state": found.state,
        "first_offset": found.first,
        "end_offset": found.end,
        "why": found.why or None,
        "kcat": found.command,
    }


def _retired(answer: RecordAnswer) -> bool:
    return answer.landing is not None and answer.landing.passage.ended_by == "retired"


def _letter(letter: dict[str, Any]) -> dict[str, Any]:
    state = {} if "state" not in letter else {"state": letter["state"] or "new"}
    return {name: value for name, value in letter.items() if value is not None and name != "offset"} | state


def _commit_facts(commit: Commit) -> dict[str, Any]:
    row, passage = commit.row, commit.passage
    return {
        "snapshot_id": row.snapshot_id or None,
        "committed_at": row.committed_at.isoformat(timespec="milliseconds"),
        "expired": commit.reading is None or not commit.reading.exact,
        **_range_facts(row),
        "epoch": row.epoch,
        "batch": row.batch,
        "config_hash": row.config,
        "generation": row.generation or None,
        "file_kept": commit.file,
        "answer": row.answer,
        "note": row.note,
        "ended_by": passage.ended_by,
        "removed_at": passage.removed_by.committed_at.isoformat(timespec="milliseconds")
        if passage.removed_by
        else None,
        "opened_by": opening_facts(commit.opening),
    }


def _range_facts(row: LedgerRow) -> dict[str, Any]:
    counts = msgspec.structs.asdict(row.counts) if row.counts else None
    return {"kind": row.kind, "start_offset": row.range.start, "end_offset": row.range.end, "counts": counts}


def opening_facts(opening: EpochRecord | None) -> dict[str, Any] | None:
    """Who opened the stream; None if it is not kept."""
    if opening is None:
        return None
    at = datetime.fromtimestamp(opening.at, UTC).isoformat(timespec="seconds")
    return {
        "what": opening.opener.what,
        "attempt": opening.opener.attempt,
        "run_id": opening.opener.run_id,
        "host": opening.host,
        "pid": opening.pid,
        "at": at,
    }


def reading_facts(
    tables: StreamTables, table: str, found: Reading | None, conditions: list[Condition]
) -> dict[str, Any] | None:
    """How to read rows as they were; None if nothing can be read."""
    if found is None:
        return None
    catalog = tables.settings.catalog.name
    return {
        "snapshot_id": found.snapshot_id,
        "committed_at": found.committed_at.isoformat(timespec="milliseconds"),
        "exact": found.exact,
        "tags": list(found.tags),
        "spark": spark_sql(catalog, table, found, conditions),
        "spark_by_time": spark_sql(catalog, table, found, conditions, by="timestamp") if found.at else None,
        "pyiceberg": pyiceberg_line(catalog, table, found, conditions),
        "pyiceberg_filter": pyiceberg_filter(conditions) or None,
    }


def snapshot_facts(tables: StreamTables, found: SnapshotAnswer | None) -> dict[str, Any] | None:
    """What is known of a snapshot."""
    if found is None:
        return None
    name = tables.table.target.name
    return {
        "table": name,
        "branch": tables.table.branch,
        "snapshot_id": found.snapshot_id,
        "committed_at": found.committed_at.isoformat(timespec="milliseconds"),
        "kind": found.kind,
        "stamped_by": found.stream,
        "epoch": found.epoch,
        "batch": found.batch,
        "config_hash": found.config or None,
        "generation": found.generation or None,
        "complete_through": found.valid_through.isoformat(timespec="milliseconds") if found.valid_through else None,
        "event_time": _event_time_facts(found.event_time),
        "in_line": found.in_line,
        "ranges": [_by_partition(row) for row in found.ranges],
        "positions": by_topic(found.positions),
        "opened_by": opening_facts(found.opening),
        "read": reading_facts(tables, name, found.reading, []),
    }


def _event_time_facts(times: EventTimes | None) -> dict[str, Any] | None:
    """The event times of a snapshot's rows, how late records were, and the watermark before and behind it."""
    if times is None:
        return None

    def told(at_ms: int | None) -> str | None:
        at = as_datetime(at_ms)
        return at and at.isoformat(timespec="milliseconds")

    batch = times.batch
    return {
        "column": times.column,
        "least": told(batch.least_ms),
        "greatest": told(batch.greatest_ms),
        "without": batch.nulls,
        "ahead": batch.ahead,
        "late": batch.late_records,
        "late_by": dict(zip(LATENESS_NAMES, batch.late, strict=True)),
        "latest_late_seconds": batch.latest_ms / 1000,
        "late_dead_letters": batch.dead,
        "late_in_their_table": batch.aside,
        "watermark": told(times.watermark_ms),
        "watermark_before": told(times.bound_ms),
    }


def _by_partition(row: LedgerRow) -> dict[str, Any]:
    """A row of the ledger by topic and partition."""
    return {"topic": row.partition.topic, "partition": row.partition.partition, **_range_facts(row)}


def instant_facts(tables: StreamTables, found: InstantAnswer) -> dict[str, Any]:
    """The snapshots that go with an instant."""
    return {
        "stream": tables.spec.stream,
        "timestamp": found.at.isoformat(timespec="milliseconds"),
        "complete": snapshot_facts(tables, found.complete),
        "up_to": snapshot_facts(tables, found.up_to),
        "current": snapshot_facts(tables, found.current),
        "older_have_expired": found.expired,
    }
