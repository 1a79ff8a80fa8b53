"""Output of a preview, or of the difference of two, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from jobs.records.schema.needs import Coordinates
from jobs.streaming.preview.difference import (
    ColumnChange,
    PreviewDifference,
    RecordChange,
    Verdict,
    fate,
)
from jobs.streaming.preview.record import (
    Outcome,
    PreviewedPartition,
    PreviewedRecord,
    PreviewedTable,
    StreamPreview,
    letter_causes,
)
from jobs.streaming.preview.values import Hiding, Row, json_value
from jobs.tables.commit.stamp.offsets import Ranges, describe_ranges
from jobs.tables.dead_letter_table.masking import MARK
from orchestration.cli.common.terminal import print_columns, visible

_LONGEST_CELL = 60
_MOST_PARTITIONS = 10
_ABSENT = "–"
_STATES = {"there": "exists", "new": "would be created", "differs": "exists, does not fit the rows"}
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
STATUS: Mapping[Verdict, int] = {"same": 0, "changed": 3, "lost": 4}
"""Exit status of the command by verdict. Errors exit with 1, wrong command lines with 2."""
_SIGNS = {"added": "is new", "removed": "is missing", "changed": "has another value"}


def place_facts(at: Coordinates) -> dict[str, Any]:
    """Coordinates of a record as JSON."""
    return {"topic": at.topic, "partition": at.partition, "offset": at.offset}


def range_facts(ranges: Ranges) -> list[dict[str, Any]]:
    """Offset ranges as JSON; ends are exclusive."""
    return [
        {"topic": place.topic, "partition": place.partition, "start": each.start, "end": each.end}
        for place, each in sorted(ranges.items())
    ]


def preview_facts(found: StreamPreview, file: str, ranges: Ranges, rows: int) -> dict[str, Any]:
    """Preview as JSON.

    Args:
        found: The preview.
        file: The stream's file, as messages show it.
        ranges: Offset ranges that were read.
        rows: Largest number of rows for each outcome.
    """
    return {
        "stream": found.stream,
        "file": file,
        "ranges": range_facts(ranges),
        **summary_facts(found),
        "rows": [
            {
                **place_facts(each.at),
                "outcome": each.outcome,
                "before": shown_row(each.decoded, found.decoded_hiding),
                "after": {table: shown_row(row, found.hiding(table)) for table, row in sorted(each.rows.items())},
                "warned": list(each.warned),
            }
            for each in shown_records(found, rows)
        ],
        "letters": list(_letter_facts(found)),
    }


def summary_facts(found: StreamPreview) -> dict[str, Any]:
    """Totals of a preview as JSON, without single records."""
    return {
        "config": found.config,
        "counts": {
            "read": found.read,
            "landed": found.count("landed"),
            "dead": found.count("dead"),
            "tombstones": found.count("tombstone"),
            "filtered": found.count("filtered"),
            "not_read": found.count("not_read"),
        },
        "warned": found.warned,
        "left_out": dict(found.left_out),
        "changes": {
            "made": list(found.changes.made),
            "proposed": list(found.changes.proposed),
            "refused": list(found.changes.refused),
            "failed": list(found.changes.failed),
        },
        "notes": list(found.notes),
        "tables": [_table_facts(each, found) for each in found.tables],
    }


def shown_row(row: Row | None, hiding: Hiding) -> dict[str, Any] | None:
    """Row as JSON, without hidden values."""
    return None if row is None else {name: json_value(value) for name, value in hiding.shown(row).items()}


def shown_records(found: StreamPreview, most: int) -> list[PreviewedRecord]:
    """The newest `most` records that land, then the newest `most` that a step filters; oldest first."""

    def newest(outcome: Outcome) -> list[PreviewedRecord]:
        of = [each for each in found.records.values() if each.outcome == outcome and each.decoded is not None]
        return sorted(of, key=lambda each: (each.timestamp or _LONG_AGO, each.at))[-most:] if most else []

    return [*newest("landed"), *newest("filtered")]


def _table_facts(table: PreviewedTable, found: StreamPreview) -> dict[str, Any]:
    return {
        "table": table.name,
        "role": "sink" if table.role == "rows" else "dead_letters",
        "state": table.state,
        "problem": table.problem,
        "rows": table.rows,
        "files": table.files,
        "bytes": table.bytes,
        "partitions": [
            {
                "partition": _partition(each, found.hiding(table.name), table),
                "rows": each.rows,
                "files": each.files,
                "bytes": each.bytes,
            }
            for each in table.partitions
        ],
    }


def _partition(partition: PreviewedPartition, hiding: Hiding, table: PreviewedTable) -> dict[str, str]:
    hidden = hiding.hides if table.role == "rows" else lambda column: False
    return {each.name: MARK if hidden(each.column) else each.text for each in partition.values}


def _letter_facts(found: StreamPreview) -> Iterator[dict[str, Any]]:
    for cause, records in letter_causes(found.records.values()).items():
        first, letter = records[0], records[0].letter
        yield {
            "reason": cause.error_class,
            "stage": cause.stage,
            "field": cause.field or None,
            "needs": cause.needs or None,
            "records": len(records),
            "example": {
                **place_facts(first.at),
                "field": letter.field if letter else None,
                "message": letter.message if letter else None,
                "value": letter.value if letter else None,
                "masked": letter.masked if letter else None,
                "row_before": letter.row_before if letter else None,
            },
        }


def print_preview(found: StreamPreview, file: str, ranges: Ranges, rows: int) -> None:
    """Print a preview as text; the arguments are those of `preview_facts`."""
    click.echo(f"{found.stream}: {file} (configuration {found.config}) on {_looked_at(found, ranges)}")
    print_summary(found)
    for each in shown_records(found, rows):
        click.echo(f"\n{each.at} {_fate(each)}")
        _print_row(each, found)
    _print_letters(found)
    click.echo()
    print_tables(found)


def print_summary(found: StreamPreview) -> None:
    """Print the counts and notes of a preview."""
    counts = [
        f"{count:,} {what}"
        for what, count in (
            ("landed", found.count("landed")),
            ("dead letters", found.count("dead")),
            ("tombstones", found.count("tombstone")),
            ("filtered", found.count("filtered")),
            ("of topics that it does not read", found.count("not_read")),
        )
        if count or what == "landed"
    ]
    click.echo(f"  {', '.join(counts)}")
    for name, count in found.warned.items():
        click.echo(f"  {count:,} broke the rule {name}, and landed")
    for path, count in found.left_out.items():
        click.echo(f"  {visible(path)} is left out of {count:,} records: no column takes it")
    changes = found.changes
    for said, sentences in (
        ("the table would be changed", changes.made),
        ("a change would be proposed", changes.proposed),
        ("the table is not changed", changes.refused),
        ("the stream would stop", changes.failed),
    ):
        for sentence in sentences:
            click.echo(f"  {said}: {visible(sentence)}")
    for note in found.notes:
        click.echo(f"  {note}")


def _looked_at(found: StreamPreview, ranges: Ranges) -> str:
    return f"{len(found.records):,} records" + (f": {describe_ranges(ranges)}" if ranges else "")


def _fate(record: PreviewedRecord) -> str:
    if record.outcome != "landed":
        return f"is {record.outcome}"
    broke = f", breaks {', '.join(record.warned)}" if record.warned else ""
    return f"lands in {', '.join(sorted(record.rows))}{broke}"


def _print_row(record: PreviewedRecord, found: StreamPreview) -> None:
    """Print a record's columns side by side: as decoded, and in each of its tables."""
    sides = [(shown_row(record.decoded, found.decoded_hiding) or {})]
    sides += [shown_row(row, found.hiding(table)) or {} for table, row in sorted(record.rows.items())]
    tables = sorted(record.rows)
    names = ["column", "decoded", *(["landed"] if len(tables) == 1 else tables)]
    columns = dict.fromkeys(column for side in sides for column in side)
    cells = [[f"  {visible(column)}", *(cell(side, column) for side in sides)] for column in columns]
    print_columns(names, cells, text=names)


def cell(row: Mapping[str, Any], column: str) -> str:
    """Text of a row's value for a terminal; a dash if the row lacks the column."""
    if column not in row:
        return _ABSENT
    return value_text(row[column])


def value_text(value: Any) -> str:
    """Text of a JSON value for a terminal, cut to one short line."""
    shown = visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return shown if len(shown) <= _LONGEST_CELL else f"{shown[: _LONGEST_CELL - 1]}…"


def _print_letters(found: StreamPreview) -> None:
    for cause, records in letter_causes(found.records.values()).items():
        field = f" at {visible(cause.field)}" if cause.field else ""
        needs = f": {visible(cause.needs)}" if cause.needs else ""
        click.echo(f"\n{len(records):,} × {cause.error_class} in {cause.stage}{field}{needs}")
        first, letter = records[0], records[0].letter
        said = f": {visible(letter.message)}" if letter and letter.message else ""
        click.echo(f"  {first.at}{said}")
        for what, text in (
            ("", letter.value if letter else None),
            ("before the step: ", letter.row_before if letter else None),
            ("masked: ", letter.masked if letter else None),
        ):
            if text:
                click.echo(f"    {what}{visible(text)}")


def print_tables(found: StreamPreview) -> None:
    """Print a line for each table, and the partitions with the most rows."""
    print_columns(
        ["table", "state", "rows", "partitions", "files", "bytes"],
        [
            [each.name, _STATES[each.state], each.rows, len(each.partitions), each.files, each.bytes]
            for each in found.tables
        ],
        text=["table", "state"],
    )
    for table in found.tables:
        parts = [each for each in table.partitions if each.values]
        if not parts:
            continue
        click.echo(f"\n{table.name}")
        shown = sorted(parts, key=lambda each: -each.rows)[:_MOST_PARTITIONS]
        hiding = found.hiding(table.name)
        print_columns(
            ["partition", "rows", "files", "bytes"],
            [[f"  {_path(_partition(each, hiding, table))}", each.rows, each.files, each.bytes] for each in shown],
            text=["partition"],
        )
        if len(parts) > len(shown):
            click.echo(f"  and {len(parts) - len(shown):,} more")


def _path(partition: Mapping[str, str]) -> str:
    return visible("/".join(f"{name}={value}" for name, value in partition.items()))


def names_of(ranges: Ranges, previews: Sequence[StreamPreview]) -> str:
    """Sentence part that names the number and the ranges of the records."""
    return _looked_at(previews[0], ranges)


def difference_facts(
    now: StreamPreview,
    then: StreamPreview,
    files: Sequence[str],
    ranges: Ranges,
    found: PreviewDifference,
    rows: int,
) -> dict[str, Any]:
    """Difference of two previews as JSON.

    Args:
        now: Preview with the stream's file.
        then: Preview with the other file.
        files: Both files, as messages show them.
        ranges: Offset ranges that were read.
        found: The difference.
        rows: Largest number of records that are listed one by one.
    """
    return {
        "stream": now.stream,
        "ranges": range_facts(ranges),
        "records": found.records,
        "verdict": found.verdict,
        "changed": len(found.changes),
        "lost": found.lost,
        "now": {"file": files[0], "stream": now.stream, **summary_facts(now)},
        "then": {"file": files[1], "stream": then.stream, **summary_facts(then)},
        "moves": [
            {"from": before, "to": after, "records": len(records), "example": place_facts(records[0].at)}
            for (before, after), records in found.moves.items()
        ],
        "columns": [
            {
                "table": table,
                "column": column,
                "change": kind,
                "records": len(records),
                "example": {**place_facts(records[0][0].at), **_values(records[0][1], now, then)},
            }
            for (table, column, kind), records in found.columns.items()
        ],
        "types": [
            {"table": each.table, "column": each.column, "now": each.before, "then": each.after} for each in found.types
        ],
        "rows": [_row_facts(each, now, then) for each in found.changes[:rows]],
    }


def _row_facts(change: RecordChange, now: StreamPreview, then: StreamPreview) -> dict[str, Any]:
    return {
        **place_facts(change.at),
        "now": _side(change.before),
        "then": _side(change.after),
        "columns": [
            {"table": each.other, "column": each.column, "change": each.kind, **_values(each, now, then)}
            for each in change.columns
        ],
    }


def _side(record: PreviewedRecord) -> dict[str, Any]:
    letter = record.letter
    return {
        "outcome": record.outcome,
        "tables": sorted(record.rows),
        "reason": letter.error_class if letter else None,
        "stage": letter.stage if letter else None,
        "field": letter.field if letter else None,
        "message": letter.message if letter else None,
    }


def _values(change: ColumnChange, now: StreamPreview, then: StreamPreview) -> dict[str, Any]:
    """Both values of a changed column as JSON, without hidden parts."""
    before = now.hiding(change.table).shown({change.column: change.before})[change.column]
    after = then.hiding(change.other).shown({change.column: change.after})[change.column]
    return {"now": json_value(before), "then": json_value(after)}


def print_difference(
    now: StreamPreview,
    then: StreamPreview,
    files: Sequence[str],
    ranges: Ranges,
    found: PreviewDifference,
    rows: int,
) -> None:
    """Print the difference of two previews as text; the arguments are those of `difference_facts`."""
    click.echo(f"{now.stream}: {names_of(ranges, [now])}")
    for label, preview, file in (("now", now, files[0]), ("then", then, files[1])):
        click.echo(f"\n{label}: {file} (configuration {preview.config})")
        print_summary(preview)
        print_tables(preview)
    click.echo(f"\n{_difference_verdict(found)}")
    if found.types:
        print_columns(
            ["column", "table", "now", "then"],
            [[each.column, each.table, each.before, each.after] for each in found.types],
            text=["column", "table", "now", "then"],
        )
    for (before, after), records in found.moves.items():
        click.echo(f"{len(records):,} × {visible(before)} → {visible(after)}, such as {records[0].at}")
    for (table, column, kind), records in found.columns.items():
        values = _values(records[0][1], now, then)
        shown = {
            "added": value_text(values["then"]),
            "removed": value_text(values["now"]),
            "changed": f"{value_text(values['now'])} → {value_text(values['then'])}",
        }[kind]
        click.echo(
            f"{len(records):,} × {visible(column)} in {table} {_SIGNS[kind]}, such as {records[0][0].at}: {shown}"
        )
    for change in found.changes[:rows]:
        _print_change(change, now, then)
    if len(found.changes) > rows:
        click.echo(f"\nand {len(found.changes) - rows:,} more records; --rows shows them")


def _difference_verdict(found: PreviewDifference) -> str:
    if found.verdict == "same":
        return f"Nothing would change: all {found.records:,} records become the same."
    lost = f", and {found.lost:,} would land no more, or in fewer tables" if found.lost else ""
    return f"{len(found.changes):,} of {found.records:,} records would become something else{lost}."


def _print_change(change: RecordChange, now: StreamPreview, then: StreamPreview) -> None:
    moved = f"{fate(change.before)} → {fate(change.after)}" if change.moves else fate(change.after)
    click.echo(f"\n{change.at} {visible(moved)}")
    for letter in (change.before.letter, change.after.letter):
        if letter is not None and letter.message and change.moves:
            click.echo(f"  {visible(letter.message)}")
    if change.columns:
        names = ["column", "now", "then"]
        print_columns(names, list(_cells(change, now, then)), text=names)


def _cells(change: RecordChange, now: StreamPreview, then: StreamPreview) -> Iterator[list[str]]:
    for each in change.columns:
        values = _values(each, now, then)
        yield [
            f"  {visible(each.column)}",
            "–" if each.kind == "added" else value_text(values["now"]),
            "–" if each.kind == "removed" else value_text(values["then"]),
        ]
