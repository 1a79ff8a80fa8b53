"""Output of `frazil at`: the facts that `--json` prints, and the text that is made from them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from jobs.clients.state_store.epochs import EpochRecord
from jobs.proof.lookup.python_code import python_code
from jobs.proof.lookup.reading import (
    Condition,
    Reading,
    pyiceberg_filter,
    pyiceberg_line,
    pyiceberg_scan,
    spark_sql,
)
from jobs.proof.lookup.record_fate import sentence
from jobs.proof.lookup.record_lookup import Commit, Place, RecordAnswer
from jobs.proof.lookup.snapshot_lookup import InstantAnswer, SnapshotAnswer
from jobs.proof.lookup.source_record import SourceLogs
from jobs.proof.lookup.stream_tables import StreamTables
from jobs.tables.commit.stamp.event_times import EventTimes, as_datetime
from jobs.tables.commit.stamp.lateness import LATENESS_NAMES
from jobs.tables.commit.stamp.offsets import by_topic
from jobs.tables.ledger.ledger_row import LedgerRow
from orchestration.formatting import lateness

_SHOWN = 8


def record_facts(tables: StreamTables, answer: RecordAnswer, logs: SourceLogs) -> dict[str, Any]:
    """Outcome of a record as JSON, and whether Kafka still has the record."""
    dead = tables.dead
    # A dead letter is read in the dead-letter table, whichever table was asked about.
    in_letters = answer.fate.fate == "dead_letter" and dead is not None
    # If several tables have the row, the one that was asked about comes first.
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
    """Table with a record's row as JSON: the commit that landed the row, and queries that read it."""
    row, name = place.commit.row, place.table.target.name
    return {
        "table": name,
        # In a table without Kafka's columns, rows do not name their records.
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
    """Process that opened the stream's epoch as JSON; None if it was not recorded."""
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
    """Queries that read the rows at a snapshot as JSON; None if no snapshot can be read."""
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
        "python": python_code(tables.settings.catalog, table, pyiceberg_scan(found, conditions)),
        "pyiceberg_filter": pyiceberg_filter(conditions) or None,
    }


def snapshot_facts(tables: StreamTables, found: SnapshotAnswer | None) -> dict[str, Any] | None:
    """Snapshot as JSON; None if there is none."""
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
    """Event times of a snapshot's rows as JSON, with late records and the watermark before and after."""
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
    """Row of the ledger as JSON, with topic and partition."""
    return {"topic": row.partition.topic, "partition": row.partition.partition, **_range_facts(row)}


def instant_facts(tables: StreamTables, found: InstantAnswer) -> dict[str, Any]:
    """Snapshots of an instant as JSON."""
    return {
        "stream": tables.spec.stream,
        "timestamp": found.at.isoformat(timespec="milliseconds"),
        "complete": snapshot_facts(tables, found.complete),
        "up_to": snapshot_facts(tables, found.up_to),
        "current": snapshot_facts(tables, found.current),
        "older_have_expired": found.expired,
    }


def print_record(facts: dict[str, Any]) -> None:
    """Print the outcome of a record, the process that landed it, and queries that read it."""
    stream, read = facts["stream"], facts["read"]
    where = f"topic {facts['topic']}, partition {facts['partition']}, offset {facts['offset']}"
    click.echo(f"{stream}: {where} {facts['sentence']}{_of_tables(facts)}.")
    if facts["branch"] != facts["branch_written"]:
        _line("branch", f"{facts['branch']}; the stream writes {facts['branch_written']}")
    # With outputs, the batch's commit is shown for the main table, and each row's commit for its own table.
    elsewhere = [row["table"] for row in facts["rows"]] not in ([], [facts["landing_table"]])
    if landing := facts["landing"]:
        _print_commit(stream, landing, facts, f" of {facts['landing_table']}" if elsewhere else "")
    for letter in [*facts["letters"], *facts["discarded"]]:
        at = f" at {letter['field']}" if letter.get("field") else ""
        state = letter.get("state", "new")
        _line("letter", f"{letter.get('error_class', 'failed')} in {letter.get('stage', 'a stage')}{at}; {state}")
        if letter in facts["discarded"]:
            _line("", f"discarded {_when(str(letter['first_seen']))}, before main had it")
        elif commit := facts["letters_landing"]:
            _line("", f"came {_when(commit['committed_at'])}, snapshot {commit['snapshot_id'] or 'unknown'}")
        place = f"{facts['topic']}:{facts['partition']}:{facts['offset']}-{facts['offset']}"
        _line("", f"frazil letters {stream} --offsets {place} --state all")
        if letter.get("replay_snapshot_id"):
            run = f", Dagster run {letter['run_id']}" if letter.get("run_id") else ""
            _line("", f"came back by replay {letter.get('replay')}{run} in snapshot {letter['replay_snapshot_id']}")
    for letter in facts["parked"]:
        state = letter.get("state", "new")
        _line("parked", f"a dead letter for table {letter.get('target')}; {state}")
        if letter.get("replay_snapshot_id"):
            _line("", f"came back by replay {letter.get('replay')}")
    for other in facts["others"]:
        _line("also", _other(other))
    if facts["to_be_read_again"]:
        _line("next", f"it will be read again: the stream is at {facts['stands_at'] or 0}")
    if facts["pending_tables"]:
        _line("pending", f"{', '.join(facts['pending_tables'])}: the rows of its batch are not committed there yet")
    if elsewhere:
        for row in facts["rows"]:
            _print_row(row)
    elif read is not None:
        _print_reading(read)
    if facts["published"] is not None:
        _print_published(facts)
    _print_source(facts["source"])


def _of_tables(facts: dict[str, Any]) -> str:
    """Tables with the row or the dead letter, as the words after `is a row`."""
    if facts["fate"] not in ("row", "dead_letter"):
        return ""
    names = [row["table"] for row in facts["rows"]]
    if len(names) > 1:
        joined = "and" if all(row["certain"] for row in facts["rows"]) else "or"
        return f" of {', '.join(names[:-1])} {joined} {names[-1]}"
    if facts["fate"] == "row" and not names and facts["pending_tables"]:
        return f" of {' or '.join(facts['pending_tables'])}, where it is not committed yet"
    if facts["fate"] == "row" and not names and not facts["deleted"]:
        return ", of a table that is not there any more"
    return f" of {facts['table']}"


def _print_row(row: dict[str, Any]) -> None:
    """Print one of several tables with the row of a record."""
    snapshot = f"snapshot {row['snapshot_id']}" if row["snapshot_id"] else "a snapshot that is not known any more"
    may = "" if row["certain"] else ", perhaps: its rows do not say which records they are of"
    _line("row in", f"{row['table']}{may}")
    _line("committed", f"{_when(row['committed_at'])}, {snapshot}")
    if row["read"] is None:
        _line("read", "nothing is left of it")
    else:
        _print_reading(row["read"])


def _print_source(source: dict[str, Any]) -> None:
    """Print whether Kafka still has the record, and the command that reads it."""
    first, end = source["first_offset"], source["end_offset"]
    states = {
        "kept": f"keeps offsets [{first}, {end}) of the partition, so the record may be read",
        "removed": f"has removed it: the log begins at offset {first}",
        "not written": f"does not have it: {source['why'] or f'the log ends at offset {end}'}",
        "another": "has another record at this offset by now, if any",
        "unknown": f"was not asked whether it still has it: {source['why']}",
    }
    _line("Kafka", states[source["state"]])
    if source["state"] in ("kept", "unknown"):
        _line("", source["kcat"])


def _print_published(facts: dict[str, Any]) -> None:
    """Print whether main has the row of the stream's branch."""
    published = facts["published"]
    if facts["discarded"]:
        _line("main", "has a row that came back" if published["in_main"] else "has none of it: it was discarded")
    elif not published["in_main"]:
        _line("main", f"lacks it: it is on branch {facts['branch']} only; frazil publish {facts['stream']}")
    elif (read := published["read"]) is not None:
        since = "since" if read["exact"] else "since before"
        _line("main", f"has it {since} snapshot {read['snapshot_id']}, {_when(read['committed_at'])}")
        _line("", read["spark"])


def _print_commit(stream: str, commit: dict[str, Any], facts: dict[str, Any], of: str) -> None:
    snapshot = f"snapshot {commit['snapshot_id']}" if commit["snapshot_id"] else "a snapshot that is not known any more"
    gone = ", which has expired" if commit["expired"] and commit["snapshot_id"] else ""
    _line("committed", f"{_when(commit['committed_at'])}, {snapshot}{of}{gone}")
    counts = commit["counts"]
    said = "" if counts is None else f": {_counts(counts)}"
    _line(commit["kind"], f"{commit['batch']} of epoch {commit['epoch']}, offsets {_range(commit)}{said}")
    _line("by", _by(commit["opened_by"]))
    selected = f"--topic {facts['topic']} --partition {facts['partition']} --offset {facts['offset']}"
    kept = {
        "exact": f"frazil at {stream} {selected} --config prints the stream's file as it was",
        "rows": f"frazil at {stream} {selected} --config prints the file that made the same rows",
    }
    file = kept.get(commit["file_kept"], "its file is not kept")
    _line("config", f"{commit['config_hash']}, generation {commit['generation'] or 'not known'}; {file}")
    if commit["ended_by"] == "retired":
        _line("", "the topic was read to its end since, and is deleted")
    elif commit["ended_by"]:
        _line("", "of the record that had these coordinates before: " + commit["ended_by"].replace("_", " "))


def _other(commit: dict[str, Any]) -> str:
    snapshot = f"snapshot {commit['snapshot_id']}" if commit["snapshot_id"] else "an unknown snapshot"
    said = f"{commit['kind']} {commit['batch']} of epoch {commit['epoch']}, {snapshot}, {_when(commit['committed_at'])}"
    if commit["removed_at"]:
        return f"{said}; taken out by a rollback, {_when(commit['removed_at'])}"
    if commit["ended_by"]:
        return f"{said}; of another record that had these coordinates: {commit['ended_by'].replace('_', ' ')}"
    return f"{said}: the same record once more" if commit["kind"] == "batch" else said


def print_snapshot(stream: str, facts: dict[str, Any], heading: str | None = None) -> None:
    """Print the details of a snapshot."""
    on = "" if facts["branch"] == "main" else f" on branch {facts['branch']}"
    click.echo(heading or f"{stream}: snapshot {facts['snapshot_id']} of {facts['table']}{on}")
    if heading:
        _line("snapshot", f"{facts['snapshot_id']} of {facts['table']}{on}")
    _line("committed", _when(facts["committed_at"]))
    if facts["stamped_by"] is None:
        _line("kind", f"{facts['kind']}, by no stream")
    else:
        own = "" if facts["stamped_by"] == stream else f" of {facts['stamped_by']}"
        # A claim has the number of the batch before it.
        number = "" if facts["kind"] == "claim" else f" {facts['batch']}"
        _line("kind", f"{facts['kind']}{number} of epoch {facts['epoch']}{own}")
        _line("by", _by(facts["opened_by"]))
        _line("config", f"{facts['config_hash']}, generation {facts['generation'] or 'not known'}")
    if facts["complete_through"]:
        _line("complete", f"through {_when(facts['complete_through'])}, by the records' time")
    if facts["event_time"]:
        _print_event_times(facts["event_time"])
    for each in facts["ranges"][:_SHOWN]:
        counts = f": {_counts(each['counts'])}" if each["counts"] else ""
        place = f"{each['topic']}-{each['partition']}" if each["topic"] else "all partitions"
        _line("offsets", f"{each['kind']} {place} {_range(each)}{counts}")
    if len(facts["ranges"]) > _SHOWN:
        _line("", f"and {len(facts['ranges']) - _SHOWN:,} partitions more; --json has them all")
    if not facts["in_line"]:
        _line("", "it is not in the branch: the branch was moved back, or it belongs to another one")
    if facts["read"] is None:
        _line("read", "nothing is left of it")
    else:
        _print_reading(facts["read"])


def _print_event_times(times: dict[str, Any]) -> None:
    """Print the event times of a snapshot's rows, its late records, and the watermark."""
    if times["least"]:
        _line("event time", f"{times['column']} from {_when(times['least'])} to {_when(times['greatest'])}")
    if times["late"]:
        by = lateness(tuple(times["late_by"].values()), round(times["latest_late_seconds"] * 1000))
        became = [
            f"{times[key]:,} {what}"
            for key, what in (("late_dead_letters", "dead letters"), ("late_in_their_table", "in their own table"))
            if times[key]
        ]
        _line("late", f"{times['late']:,} records: {by}{''.join(f', {each}' for each in became)}")
    if times["watermark"]:
        _line("watermark", _when(times["watermark"]))


def print_instant(facts: dict[str, Any]) -> None:
    """Print the snapshots of an instant."""
    stream, at = facts["stream"], _when(facts["timestamp"])
    headings = {
        "complete": f"The first snapshot in which every record older than {at} is in (record time):",
        "up_to": f"The newest that is complete only up to a time not after {at} (record time):",
        "current": f"The snapshot that was current at {at} (commit time):",
    }
    click.echo(f"{stream}: {at}")
    for name, heading in headings.items():
        click.echo()
        if facts[name] is None:
            click.echo(heading)
            _line("", _none(name, expired=facts["older_have_expired"]))
        else:
            print_snapshot(stream, facts[name], heading)
    if facts["older_have_expired"]:
        click.echo("\nOlder snapshots have expired; frazil at … --offset finds their records.")


def _none(name: str, *, expired: bool) -> str:
    if name == "complete":
        return "none yet: the stream is not complete through that time, or has no watermark"
    if name == "up_to":
        return "no remaining one shows it"
    return "none that is left" if expired else "none: the table had no snapshot then"


def _print_reading(read: dict[str, Any]) -> None:
    if read["exact"]:
        tags = f", tagged {', '.join(read['tags'])}" if read["tags"] else ""
        _line("readable", f"yes, as snapshot {read['snapshot_id']}{tags}")
    else:
        when = _when(read["committed_at"])
        _line(
            "readable",
            f"its snapshot has expired; the oldest that is left with its rows is {read['snapshot_id']}, of {when}",
        )
    _line("Spark", read["spark"])
    if read["spark_by_time"]:
        _line("", read["spark_by_time"])
    # The program is not indented, as Python refuses lines that begin with spaces.
    _line("PyIceberg", "this program:")
    click.echo(read["python"])


def _by(opened: dict[str, Any] | None) -> str:
    if opened is None:
        return "not known: who opened the stream is not kept of that time"
    attempt = f", attempt {opened['attempt']}" if opened["attempt"] is not None else ""
    run = f" {opened['run_id']}" if opened["run_id"] else ""
    return f"{opened['what']}{run}{attempt}: process {opened['pid']} on {opened['host']}, from {_when(opened['at'])}"


def _counts(counts: dict[str, int]) -> str:
    rest = ", ".join(f"{counts[name]:,} {name}" for name in ("landed", "dead", "tombstones", "filtered"))
    return f"{counts['read']:,} read ({rest})"


def _range(each: dict[str, Any]) -> str:
    return f"[{each['start_offset']}, {each['end_offset']})"


def _when(text: str) -> str:
    at = datetime.fromisoformat(text)
    milliseconds = f".{at.microsecond // 1000:03d}" if at.microsecond else ""
    return f"{at:%Y-%m-%d %H:%M:%S}{milliseconds} UTC"


def _line(label: str, text: str) -> None:
    click.echo(f"  {label:<11}{text}")
