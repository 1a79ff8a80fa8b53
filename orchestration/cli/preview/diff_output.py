"""The difference of two previews as people and programs read it, and the status that a check goes by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from jobs.commit.offsets import Ranges
from jobs.preview.difference import ColumnChange, PreviewDifference, RecordChange, Verdict, fate
from jobs.preview.record import PreviewedRecord, StreamPreview
from jobs.preview.values import json_value
from orchestration.cli.preview.output import (
    names_of,
    place_facts,
    print_summary,
    print_tables,
    range_facts,
    summary_facts,
    value_text,
)
from orchestration.cli.terminal import print_columns, visible

STATUS: Mapping[Verdict, int] = {"same": 0, "changed": 3, "lost": 4}
"""Of the command; an error is 1, a wrong command line 2."""

_SIGNS = {"added": "is new", "removed": "is gone", "changed": "has another value"}


def difference_facts(
    now: StreamPreview,
    then: StreamPreview,
    files: Sequence[str],
    ranges: Ranges,
    found: PreviewDifference,
    rows: int,
) -> dict[str, Any]:
    """The difference as JSON.

    Args:
        now: By the stream's file.
        then: By the other one.
        files: The two.
        ranges: The offsets that were looked at.
        found: What is different.
        rows: The most records that are listed one by one.
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
    """The two values as they may be shown."""
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
    """The difference for a person; arguments as of `difference_facts`."""
    click.echo(f"{now.stream}: {names_of(ranges, [now])}")
    for label, preview, file in (("now", now, files[0]), ("then", then, files[1])):
        click.echo(f"\n{label}: {file} (configuration {preview.config})")
        print_summary(preview)
        print_tables(preview)
    click.echo(f"\n{_verdict(found)}")
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


def _verdict(found: PreviewDifference) -> str:
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
