"""Output of `frazil compare`: as JSON, and for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from jobs.migration.comparison.result import AbsentRecords, Comparison, Example, OneSided
from jobs.migration.comparison.staged_rows import MatchBy
from jobs.migration.comparison.value_difference import REASONS
from jobs.records.schema.needs import Coordinates
from jobs.streaming.preview.values import json_value
from jobs.tables.commit.stamp.offsets import describe_ranges
from orchestration.cli.common.terminal import print_columns, visible
from orchestration.cli.stream_files.preview.output import value_text

_MATCHED: Mapping[MatchBy, str] = {
    "coordinates": "topic, partition and offset",
    "key": "the key",
    "rows": "whole rows: the table names no offsets, and no key is known",
}


def comparison_facts(found: Comparison) -> dict[str, Any]:
    """A comparison as JSON."""
    return {
        "stream": found.stream,
        "table": found.ours,
        "with": found.theirs,
        "snapshot": found.snapshot,
        "verdict": found.verdict,
        "ranges": [
            {"topic": each.topic, "partition": each.partition, "start": range_.start, "end": range_.end}
            for each, range_ in sorted(found.ranges.items())
        ],
        "whole_topics": found.whole,
        "matched_by": found.by,
        "key": list(found.key),
        "records": found.records,
        "rows": {
            "here": found.rows_here,
            "there": found.rows_there,
            "matched": found.matched,
            "equal": found.equal,
            "different": found.different,
            "only_here": found.only_here.rows,
            "newer_than_table": found.behind,
            "only_there": found.only_there.rows,
            "not_judged": found.not_judged,
            "doubled_there": found.doubled,
        },
        "differences": [
            {
                "column": each.path,
                "reason": each.reason,
                "meaning": REASONS[each.reason],
                "rows": each.rows,
                "examples": [_example_facts(example) for example in each.examples],
            }
            for each in found.differences
        ],
        "only_here": _one_sided_facts(found.only_here),
        "only_there": _one_sided_facts(found.only_there),
        "without_row_here": [_absent_facts(each) for each in found.absent],
        "missing_columns": [
            {"column": each.column, "lacks": "here" if each.here else "there", "rows": each.rows}
            for each in found.missing
        ],
        "tables": [
            {"fact": each.name, "here": each.ours, "there": each.theirs, "same": each.same, "note": each.note or None}
            for each in found.facts
        ],
        "sink": dict(found.marks),
        "notes": list(found.notes),
    }


def _absent_facts(absent: AbsentRecords) -> dict[str, Any]:
    return {
        "cause": absent.cause,
        "records": absent.records,
        "rows_there": absent.there,
        "message": absent.message,
        "reason": absent.reason,
        "examples": [_example_facts(each, here="in_record") for each in absent.examples],
    }


def _example_facts(example: Example, here: str = "here") -> dict[str, Any]:
    return {**_place(example.at), here: json_value(example.ours), "there": json_value(example.theirs)}


def _one_sided_facts(one: OneSided) -> list[dict[str, Any]]:
    return [{**_place(at), "row": {name: json_value(value) for name, value in row.items()}} for at, row in one.examples]


def _place(at: Coordinates | None) -> dict[str, Any]:
    return {"topic": None, "partition": None, "offset": None} if at is None else at._asdict()


def print_comparison(found: Comparison) -> None:
    """A comparison for a person."""
    click.echo(f"{found.stream}: rows of {found.ours} beside {found.theirs}, matched by {_matched_by(found)}")
    click.echo(f"  {found.records:,} records: {describe_ranges(found.ranges) or 'none'}")
    for line in _counts(found):
        click.echo(f"  {line}")
    _print_differences(found)
    _print_absent(found)
    _print_one_sided("only here", found.only_here)
    _print_one_sided("only there", found.only_there)
    click.echo()
    print_columns(
        ["of the tables", "frazil", "there", "note"],
        [[each.name, each.ours or "–", each.theirs or "–", each.note or _same(each.same)] for each in found.facts],
        text=["of the tables", "frazil", "there", "note"],
        whole=True,
    )
    for note in found.notes:
        click.echo(f"  {visible(note)}")
    click.echo(f"\n{_verdict(found)}")


def _matched_by(found: Comparison) -> str:
    return ", ".join(found.key) if found.by == "key" else _MATCHED[found.by]


def _counts(found: Comparison) -> Iterator[str]:
    lines = (
        (found.equal, "rows are equal"),
        (found.different, "rows differ"),
        (found.only_here.rows, "rows are only here"),
        (found.behind, "rows are newer than the last that the table has of their partition"),
        (found.only_there.rows, "rows are only there"),
        (found.doubled, "rows there are doubles of others"),
        (found.not_judged, "rows there may be of other records, and were not judged"),
    )
    for count, text in lines:
        if count or text == "rows are equal":
            yield f"{count:,} {text}"


def _print_differences(found: Comparison) -> None:
    for each in found.differences:
        click.echo(f"\n{each.rows:,} × {visible(each.path)}: {REASONS[each.reason]} ({each.reason})")
        _print_examples(each.examples)
    for each in found.missing:
        lacks, has = ("frazil's table", "there") if each.here else (found.theirs, "here")
        click.echo(f"\n{each.rows:,} × {visible(each.column)}: {lacks} lacks the column, which has values {has}")


def _print_absent(found: Comparison) -> None:
    for each in found.absent:
        there = "" if each.there is None else f", {each.there:,} of them have a row there"
        reason = f": {REASONS[each.reason]} ({each.reason})" if each.reason else ""
        click.echo(f"\n{each.records:,} × no row here, {visible(each.cause)}{there}{reason}")
        if each.message:
            click.echo(f"  {visible(each.message)}")
        _print_examples(each.examples)


def _print_examples(examples: tuple[Example, ...]) -> None:
    for each in examples:
        click.echo(f"  {each.at}: {value_text(json_value(each.ours))} → {value_text(json_value(each.theirs))}")


def _print_one_sided(side: str, one: OneSided) -> None:
    for at, row in one.examples:
        shown = ", ".join(f"{visible(name)} {value_text(json_value(value))}" for name, value in row.items())
        click.echo(f"\n{side}: {at if at is not None else 'a row'}\n  {shown}")


def _same(same: bool) -> str:
    return "same" if same else ""


def _verdict(found: Comparison) -> str:
    if found.verdict == "equal":
        return f"Equal: all {found.matched:,} rows that can be judged are the same."
    if not found.matched:
        return "Different: no row of one side belongs to a row of the other."
    return "Different: see above."
